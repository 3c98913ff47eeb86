"""Waking a worker up through its queue. A message is only a hint: a row is the work."""

from __future__ import annotations

from typing import Any

from celery import current_app
from kombu import Queue
from kombu.exceptions import KombuError
from redis.exceptions import RedisError

from apps.realtime.redis_clients import sync_client

# What a broker that is gone raises, whatever the layer that noticed.
BROKER_ERRORS = (KombuError, RedisError, OSError)


def wake(task: str, row_id: int, queue_name: str, life_seconds: float) -> None:
    """Send a task by name, with the row's id, to one queue; the message is worth nothing after so many seconds.

    Raises one of BROKER_ERRORS.
    """
    # Asked first, because the broker's own client tries for six seconds where Redis is away, and a person waits.
    sync_client().ping()
    # Any: the stubs know names only, and a name would be refused, because queues are never made by a typo.
    queue: Any = Queue(queue_name)
    current_app.send_task(
        task, args=[row_id], queue=queue, expires=life_seconds, retry=False, ignore_result=True
    )
