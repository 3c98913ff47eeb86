"""Connections to Redis for live topics, samples and chat buffers (REDIS_URL, database 3).

Timeouts are short everywhere: a Redis that is away must cost a page or a worker moments, not minutes.
"""

from __future__ import annotations

import asyncio
import os
import weakref

import redis
from django.conf import settings
from redis import asyncio as async_redis
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.retry import Retry

CONNECT_SECONDS = 1.0
ANSWER_SECONDS = 3.0

# What a Redis that is away, or just went away, raises.
REDIS_ERRORS: tuple[type[Exception], ...] = (redis.RedisError, OSError)

_sync: dict[tuple[int, str], redis.Redis] = {}
_async: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, async_redis.Redis]] = (
    weakref.WeakKeyDictionary()
)


def sync_client() -> redis.Redis:
    """Client of this process (a forked child gets its own), thread-safe, text in and out."""
    key = (os.getpid(), settings.REDIS_URL)
    if key not in _sync:
        _sync[key] = redis.Redis.from_url(
            settings.REDIS_URL,
            decode_responses=True,
            socket_connect_timeout=CONNECT_SECONDS,
            socket_timeout=ANSWER_SECONDS,
            # One fresh connection where the server closed an idle one.
            retry=Retry(NoBackoff(), 1),
        )
    return _sync[key]


def async_client() -> async_redis.Redis:
    """Client of the running event loop, text in and out. Use it inside `answer()`: it has no timeout of its own."""
    clients = _async.setdefault(asyncio.get_running_loop(), {})
    if settings.REDIS_URL not in clients:
        clients[settings.REDIS_URL] = _new_async_client()
    return clients[settings.REDIS_URL]


def _new_async_client() -> async_redis.Redis:
    return async_redis.Redis.from_url(
        settings.REDIS_URL,
        decode_responses=True,
        socket_connect_timeout=CONNECT_SECONDS,
        # With a timeout redis-py writes through asyncio.wait_for, which on Python 3.11 loses a cancel that arrives
        # meanwhile: the task then runs on.
        socket_timeout=None,
        retry=AsyncRetry(NoBackoff(), 1),
    )


def answer(more: float = 0.0) -> asyncio.Timeout:
    """`async with answer():` around commands of `async_client`. Its TimeoutError is one of REDIS_ERRORS.

    `more` are seconds that a blocking read may take besides.
    """
    return asyncio.timeout(ANSWER_SECONDS + more)


async def close_async_client() -> None:
    """Close the running loop's client; for programs that end, and tests."""
    for client in _async.pop(asyncio.get_running_loop(), {}).values():
        await client.aclose()
