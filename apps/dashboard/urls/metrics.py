"""Addresses below /metrics/. The scrape endpoint of the control plane has no slash at its end and is not here."""

from __future__ import annotations

from django.urls import path

from apps.dashboard.views import metrics as views

app_name = "metrics"
urlpatterns = [
    path("", views.metrics, name="metrics"),
    path("data.json", views.data, name="data"),
]
