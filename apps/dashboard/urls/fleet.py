"""Addresses below /fleet/."""

from __future__ import annotations

from django.urls import URLPattern

app_name = "fleet"
urlpatterns: list[URLPattern] = []
