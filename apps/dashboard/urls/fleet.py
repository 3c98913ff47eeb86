"""Addresses below /fleet/."""

from __future__ import annotations

from django.urls import path

from apps.dashboard.views import fleet as views

app_name = "fleet"
urlpatterns = [
    path("", views.fleet, name="fleet"),
    path("<str:node_id>/cordon/", views.cordon, name="cordon"),
    path("<str:node_id>/uncordon/", views.uncordon, name="uncordon"),
    path("<str:node_id>/probe/", views.probe, name="probe"),
    path("<str:node_id>/<int:index>/price/", views.price, name="price"),
]
