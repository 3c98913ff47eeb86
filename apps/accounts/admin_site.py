"""The admin's site: who enters, where one signs in, and its Content-Security-Policy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from csp.decorators import csp_update
from django.conf import settings
from django.contrib.auth.decorators import login_not_required
from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseBase, HttpResponseRedirect
from django.urls import reverse
from django.utils.decorators import method_decorator
from django.utils.translation import gettext_lazy as _
from django.views.decorators.cache import never_cache
from unfold.sites import UnfoldAdminSite

from apps.accounts.roles import Action, may

# Alpine, which unfold's pages are made with, compiles the expressions in its attributes. Pages have no such need,
# so only the admin's answers carry this.
RELAXED = {"script-src": ["'unsafe-eval'"]}


def may_administer(request: HttpRequest) -> bool:
    """Whether the navigation shows people, roles and tokens."""
    return may(request.user, Action.ADMINISTER)


class InflightAdminSite(UnfoldAdminSite):
    """Open to every role (each object asks for its own); `is_staff` plays no part."""

    index_title = _("Configuration")

    def has_permission(self, request: HttpRequest) -> bool:
        """Whether the person holds any role at all."""
        return may(request.user, Action.VIEW)

    def admin_view(self, view: Callable[..., Any], cacheable: bool = False) -> Callable[..., Any]:
        """Wrap a view as Django does, and relax the policy of what it answers."""
        relaxed: Callable[..., HttpResponseBase] = csp_update(RELAXED)(super().admin_view(view, cacheable))
        return relaxed

    @method_decorator(never_cache)
    @method_decorator(login_not_required)
    def login(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """Send people to the one sign-in page; who is signed in without a role is told so."""
        wanted = request.GET.get("next", "")
        if not request.user.is_authenticated:
            return redirect_to_login(wanted or reverse("admin:index"), settings.LOGIN_URL)
        if not self.has_permission(request):
            raise PermissionDenied
        return HttpResponseRedirect(reverse("admin:index"))
