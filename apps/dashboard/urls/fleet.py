"""Addresses below /fleet/."""

from __future__ import annotations

from django.urls import path

from apps.dashboard.views import fleet as views
from apps.dashboard.views import fleet_actions as doing
from apps.dashboard.views import fleet_join as joining
from apps.dashboard.views import fleet_node as one

app_name = "fleet"
urlpatterns = [
    path("", views.fleet, name="fleet"),
    # No node's id is a dash, so `-/` is free for pages.
    path("-/join/", joining.join, name="join"),
    path("-/join/<int:pk>/revoke/", joining.revoke, name="revoke_join"),
    path("-/install.py", joining.installer, name="installer"),
    path("-/source.tar.gz", joining.source, name="source"),
    path("<str:node_id>/", one.node, name="node"),
    path("<str:node_id>/data.json", one.node_data, name="node_data"),
    path("<str:node_id>/<int:index>/", one.slot, name="slot"),
    path("<str:node_id>/<int:index>/data.json", one.slot_data, name="slot_data"),
    path("<str:node_id>/cordon/", views.cordon, name="cordon"),
    path("<str:node_id>/uncordon/", views.uncordon, name="uncordon"),
    path("<str:node_id>/maintenance/", doing.maintenance, name="maintenance"),
    path("<str:node_id>/resume/", doing.resume, name="resume"),
    path("<str:node_id>/labels/", doing.labels, name="labels"),
    path("<str:node_id>/policy/", doing.policy, name="policy"),
    path("<str:node_id>/forget/", doing.forget, name="forget"),
    path("<str:node_id>/probe/", views.probe, name="probe"),
    path("<str:node_id>/<int:index>/price/", views.price, name="price"),
]
