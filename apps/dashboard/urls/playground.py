"""Addresses below /playground/."""

from __future__ import annotations

from django.urls import path

from apps.dashboard.views import playground as views

app_name = "chat"
urlpatterns = [
    path("", views.playground, name="playground"),
    path("new/", views.new, name="new"),
    path("<int:pk>/", views.conversation, name="conversation"),
    path("<int:pk>/rename/", views.rename, name="rename"),
    path("<int:pk>/delete/", views.delete, name="delete"),
]
