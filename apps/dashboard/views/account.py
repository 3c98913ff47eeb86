"""Sign in, sign out, the words of the scripts."""

from __future__ import annotations

from django.contrib.auth.views import LoginView, LogoutView
from django.urls import URLPattern, path
from django.views.decorators.cache import cache_control
from django.views.i18n import JavaScriptCatalog

words = cache_control(private=True, max_age=3600)(JavaScriptCatalog.as_view(packages=["apps.dashboard"]))


class SignIn(LoginView):
    """Name and password; leads on to where the person wanted to go."""

    template_name = "pages/sign_in.html"
    redirect_authenticated_user = True


urlpatterns: list[URLPattern] = [
    path("sign-in/", SignIn.as_view(), name="sign_in"),
    path("sign-out/", LogoutView.as_view(), name="sign_out"),
    path("words.js", words, name="words"),
]
