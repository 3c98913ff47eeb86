"""The channel layer, and what of its wire form synchronous code needs."""

from __future__ import annotations

from typing import Any

from channels.layers import get_channel_layer
from django.conf import settings

from apps.realtime.redis_clients import answer, async_client


def channel_layer() -> Any:
    """The configured layer; Any, because the pub/sub layer's own methods are not in the stubs."""
    return get_channel_layer()


def is_shared() -> bool:
    """Whether messages go through Redis: false only in tests with the in-memory layer."""
    return hasattr(channel_layer(), "serialize")


def wire_name(group: str) -> str:
    """Redis pub/sub channel of a group, as RedisPubSubLoopLayer names it."""
    prefix = settings.CHANNEL_LAYERS["default"].get("CONFIG", {}).get("prefix", "asgi")
    return f"{prefix}__group__{group}"


async def require_redis() -> None:
    """Raise a Redis error where the layer's Redis does not answer.

    Asked before a channel is made: the layer keeps the queue of a channel that it could not subscribe to.
    """
    if is_shared():
        async with answer():
            await async_client().ping()
