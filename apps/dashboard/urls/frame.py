"""Pages that belong to no single app: overview, sign-in, palette, health."""

from __future__ import annotations

from django.urls import path

from apps.dashboard.health import healthz, readyz
from apps.dashboard.views import account
from apps.dashboard.views.overview import overview, running_work
from apps.dashboard.views.palette import palette

app_name = "dashboard"
urlpatterns = [
    path("", overview, name="overview"),
    path("work/", running_work, name="work"),
    path("palette.json", palette, name="palette"),
    *account.urlpatterns,
    path("healthz", healthz, name="healthz"),
    path("readyz", readyz, name="readyz"),
]
