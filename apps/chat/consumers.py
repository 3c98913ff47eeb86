"""The playground's socket."""

from __future__ import annotations

from channels.generic.websocket import AsyncJsonWebsocketConsumer


class ChatConsumer(AsyncJsonWebsocketConsumer):
    """Chat of one conversation."""
