"""Base consumer and the live socket."""

from __future__ import annotations

from channels.generic.websocket import AsyncJsonWebsocketConsumer


class LiveConsumer(AsyncJsonWebsocketConsumer):
    """Live topics of the pages."""
