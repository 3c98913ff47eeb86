"""Addresses below /planner/."""

from __future__ import annotations

from django.urls import path

from apps.dashboard.views import planner as views

app_name = "planner"
urlpatterns = [
    path("", views.view, name="planner"),
    path("result/", views.result, name="result"),
]
