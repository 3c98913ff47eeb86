"""Addresses below /fleet/."""

from __future__ import annotations

from django.urls import path

from apps.dashboard.views import fleet as views
from apps.dashboard.views import fleet_node as one

app_name = "fleet"
urlpatterns = [
    path("", views.fleet, name="fleet"),
    path("<str:node_id>/", one.node, name="node"),
    path("<str:node_id>/data.json", one.node_data, name="node_data"),
    path("<str:node_id>/<int:index>/", one.slot, name="slot"),
    path("<str:node_id>/<int:index>/data.json", one.slot_data, name="slot_data"),
    path("<str:node_id>/cordon/", views.cordon, name="cordon"),
    path("<str:node_id>/uncordon/", views.uncordon, name="uncordon"),
    path("<str:node_id>/probe/", views.probe, name="probe"),
    path("<str:node_id>/<int:index>/price/", views.price, name="price"),
]
