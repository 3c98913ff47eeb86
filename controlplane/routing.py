"""Websocket routes."""

from __future__ import annotations

from django.urls import path

from apps.chat.consumers import ChatConsumer
from apps.realtime.consumers import LiveConsumer

websocket_urlpatterns = [
    path("ws/live/", LiveConsumer.as_asgi()),
    path("ws/chat/<int:conversation_id>/", ChatConsumer.as_asgi()),
]
