"""Pages that belong to no single app: overview, sign-in, palette, health."""

from __future__ import annotations

from django.urls import path

from apps.dashboard.health import healthz, readyz

app_name = "dashboard"
urlpatterns = [
    path("healthz", healthz, name="healthz"),
    path("readyz", readyz, name="readyz"),
]
