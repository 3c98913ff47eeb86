"""Addresses below /gateway/. No public name begins with a dash, so `-/` is free for pages."""

from __future__ import annotations

from django.urls import path

from apps.dashboard.views import gateway_keys as keys
from apps.dashboard.views import gateway_live as live
from apps.dashboard.views import gateway_routes as routes
from apps.dashboard.views import gateway_usage as usage

app_name = "gateway"
urlpatterns = [
    path("", keys.keys, name="keys"),
    path("keys/new/", keys.new, name="new_key"),
    path("keys/preview/", keys.preview, name="preview"),
    path("keys/<int:pk>/", keys.key, name="key"),
    path("keys/<int:pk>/edit/", keys.edit, name="edit_key"),
    path("keys/<int:pk>/revoke/", keys.revoke, name="revoke_key"),
    path("usage/", usage.usage, name="usage"),
    path("usage/export/", usage.export, name="export"),
    path("requests/", live.requests, name="requests"),
    path("requests/<int:pk>/", live.request_page, name="request"),
    path("requests/running/<str:request_id>/cancel/", live.cancel, name="cancel"),
    path("routes/", routes.routes, name="routes"),
    path("routes/-/new/", routes.new, name="new_route"),
    path("routes/<str:name>/", routes.edit, name="route"),
    path("routes/<str:name>/delete/", routes.delete, name="delete_route"),
    path("external/-/new/", routes.new_external, name="new_external"),
    path("external/<str:name>/", routes.edit_external, name="external"),
    path("external/<str:name>/delete/", routes.delete_external, name="delete_external"),
]
