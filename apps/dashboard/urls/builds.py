"""Addresses below /builds/."""

from __future__ import annotations

from django.urls import path

from apps.dashboard.views import build_tools, engines, paste
from apps.dashboard.views import builds as views

app_name = "engines"
urlpatterns = [
    path("", views.builds, name="builds"),
    path("new/", views.new, name="new"),
    path("preview/", views.preview, name="preview"),
    path("paste/", paste.paste, name="paste"),
    path("compare/", build_tools.compare, name="compare"),
    path("clean-up/", engines.clean_up, name="clean_up"),
    path("clean-up/run/", engines.clean, name="clean"),
    path("clean-up/pin/", engines.pin, name="pin"),
    path("clean-up/policy/", engines.policy, name="policy"),
    path("import/", engines.import_engine, name="import"),
    path("engines/<int:pk>/", engines.engine, name="engine"),
    path("<int:number>/", views.build, name="build"),
    path("<int:number>/remedy/", build_tools.apply_remedy, name="apply_remedy"),
    path("<int:number>/rebuild/", build_tools.rebuild, name="rebuild"),
    path("<int:number>/log", views.log, name="log"),
    path("<int:number>/cancel/", views.cancel, name="cancel"),
    path("<int:number>/retry/", views.retry, name="retry"),
    path("<int:number>/delete-engine/", views.delete_engine, name="delete_engine"),
]
