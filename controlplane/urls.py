"""URL routes: each app's pages under its own name, the admin, the REST API, health."""

from __future__ import annotations

from django.contrib import admin
from django.urls import include, path

from apps.specs import api

urlpatterns = [
    path("", include("apps.dashboard.urls")),
    path("checkpoints/", include("apps.registry.urls")),
    path("builds/", include("apps.engines.urls")),
    path("deployments/", include("apps.serving.urls")),
    path("playground/", include("apps.chat.urls")),
    path("admin/", admin.site.urls),
    path("api/v1/", api.urls()),
]
