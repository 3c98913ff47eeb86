"""Addresses below /builds/."""

from __future__ import annotations

from django.urls import path

from apps.dashboard.views import builds as views
from apps.dashboard.views import paste

app_name = "engines"
urlpatterns = [
    path("", views.builds, name="builds"),
    path("new/", views.new, name="new"),
    path("preview/", views.preview, name="preview"),
    path("paste/", paste.paste, name="paste"),
    path("<int:number>/", views.build, name="build"),
    path("<int:number>/log", views.log, name="log"),
    path("<int:number>/cancel/", views.cancel, name="cancel"),
    path("<int:number>/retry/", views.retry, name="retry"),
    path("<int:number>/delete-engine/", views.delete_engine, name="delete_engine"),
]
