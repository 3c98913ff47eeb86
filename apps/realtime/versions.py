"""One growing number per topic, in Redis.

A number starts at the milliseconds of the epoch, so that it also grows over a Redis that lost its memory: a browser
that holds version 57 would take a restarted count for old news. Milliseconds stay below 2^53 (JavaScript).
"""

from __future__ import annotations

import time
from collections.abc import Iterable

import redis

from apps.realtime.redis_clients import answer, async_client

_KEEP_SECONDS = 7 * 86_400


def _key(topic: str) -> str:
    return f"topic-version:{topic}"


def _start() -> int:
    return int(time.time() * 1000)


def bump(client: redis.Redis, topics: Iterable[str]) -> list[int]:
    """Next version of each topic, in one round trip. Raises a Redis error where it is away."""
    names = list(topics)
    pipeline = client.pipeline(transaction=False)
    for name in names:
        pipeline.set(_key(name), _start(), nx=True, ex=_KEEP_SECONDS)
        pipeline.incr(_key(name))
        pipeline.expire(_key(name), _KEEP_SECONDS)
    return [int(number) for number in pipeline.execute()[1::3]]


async def current(topic: str) -> int:
    """Version of a topic now; read it before the data, so that the data is at least as new."""
    pipeline = async_client().pipeline(transaction=False)
    pipeline.set(_key(topic), _start(), nx=True, ex=_KEEP_SECONDS)
    pipeline.get(_key(topic))
    async with answer():
        answers = await pipeline.execute()
    return int(answers[1])


async def known(topics: list[str]) -> dict[str, int]:
    """Versions of the topics that have one, in one round trip."""
    if not topics:
        return {}
    async with answer():
        answers = await async_client().mget([_key(topic) for topic in topics])
    return {topic: int(found) for topic, found in zip(topics, answers, strict=True) if found}
