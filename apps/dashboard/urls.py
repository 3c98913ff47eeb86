"""Pages that belong to no single app: overview, sign-in, health."""

from __future__ import annotations

from django.urls import path

from apps.dashboard.health import healthz

app_name = "dashboard"
urlpatterns = [path("healthz", healthz, name="healthz")]
