"""Addresses below /checkpoints/."""

from __future__ import annotations

from django.urls import URLPattern

app_name = "registry"
urlpatterns: list[URLPattern] = []
