"""URL routes: the pages (apps.dashboard draws all of them), the admin, the REST API, health."""

from __future__ import annotations

from django.contrib import admin
from django.urls import include, path

from apps.specs import api
from apps.telemetry import exporter

urlpatterns = [
    path("", include("apps.dashboard.urls.frame")),
    path("checkpoints/", include("apps.dashboard.urls.checkpoints")),
    path("planner/", include("apps.dashboard.urls.planner")),
    path("builds/", include("apps.dashboard.urls.builds")),
    path("deployments/", include("apps.dashboard.urls.deployments")),
    path("repositories/", include("apps.dashboard.urls.repositories")),
    path("playground/", include("apps.dashboard.urls.playground")),
    path("load-tests/", include("apps.dashboard.urls.loads")),
    path("metrics", exporter.metrics, name="prometheus"),
    path("metrics/", include("apps.dashboard.urls.metrics")),
    path("metrics/alerts/", include("apps.dashboard.urls.alerts")),
    path("fleet/", include("apps.dashboard.urls.fleet")),
    path("gateway/", include("apps.dashboard.urls.gateway")),
    path("admin/", admin.site.urls),
    path("api/v1/", api.urls()),
]
