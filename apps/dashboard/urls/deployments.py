"""Addresses below /deployments/."""

from __future__ import annotations

from django.urls import URLPattern

app_name = "serving"
urlpatterns: list[URLPattern] = []
