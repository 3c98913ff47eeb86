"""Addresses below /builds/."""

from __future__ import annotations

from django.urls import URLPattern

app_name = "engines"
urlpatterns: list[URLPattern] = []
