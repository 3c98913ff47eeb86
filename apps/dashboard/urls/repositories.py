"""Addresses below /repositories/. No name begins with a dash, so `-/` is free for pages."""

from __future__ import annotations

from django.urls import path

from apps.dashboard.views import repositories as views

app_name = "repositories"
urlpatterns = [
    path("", views.repositories, name="repositories"),
    path("-/new/", views.new, name="new"),
    path("-/line/", views.line, name="line"),
    path("<str:name>/", views.repository, name="repository"),
    path("<str:name>/check/", views.check, name="check"),
    path("<str:name>/delete/", views.delete, name="delete"),
]
