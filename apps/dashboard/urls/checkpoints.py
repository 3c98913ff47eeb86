"""Addresses below /checkpoints/. No name begins with a dash, so `-/` is free for pages."""

from __future__ import annotations

from django.urls import path

from apps.dashboard.views import checkpoints as views

app_name = "registry"
urlpatterns = [
    path("", views.checkpoints, name="checkpoints"),
    path("-/new/", views.new, name="new"),
    path("-/check/", views.check, name="check"),
    path("-/hub/", views.access, name="access"),
    path("<str:name>/", views.checkpoint, name="checkpoint"),
    path("<str:name>/inspect/", views.inspect, name="inspect"),
    path("<str:name>/log/", views.log, name="log"),
    path("<str:name>/cancel/", views.cancel, name="cancel"),
    path("<str:name>/retry/", views.retry, name="retry"),
    path("<str:name>/delete/", views.delete, name="delete"),
]
