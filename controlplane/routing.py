"""Websocket routes."""

from __future__ import annotations

from typing import Any

from django.urls import path

from apps.chat.consumers import ChatConsumer
from apps.realtime.consumers import LiveConsumer

# Channels routes with ASGI applications where Django has views; the stubs know only views.
_consumers: list[tuple[str, Any]] = [
    ("ws/live/", LiveConsumer.as_asgi()),
    ("ws/chat/<int:conversation_id>/", ChatConsumer.as_asgi()),
]
websocket_urlpatterns: list[Any] = [path(route, consumer) for route, consumer in _consumers]
