"""Redis, the channel layer and Celery. One Redis server, separate database numbers for each use."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from kombu import Queue

from controlplane.settings import env

# Either redis://host:port or unix:///path/to/socket, without a database number.
INFLIGHT_REDIS_URL = env.text("INFLIGHT_REDIS_URL", "redis://127.0.0.1:6379")
# Identity of the node on this host; unique to each INFLIGHT_HOME. Empty where only the web runs.
INFLIGHT_NODE_ID = env.text("INFLIGHT_NODE_ID")


def redis_url(database: int, celery: bool = False) -> str:
    """URL of one database number of the Redis server, in redis-py's spelling or in kombu's."""
    if INFLIGHT_REDIS_URL.startswith("unix://"):
        path = INFLIGHT_REDIS_URL.removeprefix("unix://")
        return f"redis+socket://{path}?virtual_host={database}" if celery else f"unix://{path}?db={database}"
    return f"{INFLIGHT_REDIS_URL.rstrip('/')}/{database}"


def node_queues(node_id: str) -> list[str]:
    """Names of the queues that the workers of one node may consume; GPU slots 0 to 15."""
    if not node_id:
        return ["control"]
    slots = [f"node.{node_id}.gpu{index}" for index in range(16)]
    return ["control", f"node.{node_id}.ctl", f"node.{node_id}.load", *slots]


REDIS_URL = redis_url(3)

CACHES = {
    "default": {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": redis_url(2)},
}

CHANNEL_LAYERS: dict[str, Any] = {
    "default": {
        # The core layer drops silently at 100 waiting messages; pub/sub delivers (docs/architecture.md).
        "BACKEND": "channels_redis.pubsub.RedisPubSubChannelLayer",
        "CONFIG": {"hosts": [redis_url(1)], "prefix": "inflight"},
    }
}

CELERY_BROKER_URL = redis_url(0, celery=True)
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_BROKER_TRANSPORT_OPTIONS = {"visibility_timeout": 3600}
CELERY_TASK_SERIALIZER = "json"
CELERY_ACCEPT_CONTENT = ["json"]
CELERY_TASK_IGNORE_RESULT = True
# Early ack: a long task that is acknowledged late is delivered again at the visibility timeout and runs twice.
CELERY_TASK_ACKS_LATE = False
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
CELERY_WORKER_DISABLE_PREFETCH = True
CELERY_WORKER_SOFT_SHUTDOWN_TIMEOUT = 20
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_WORKER_SEND_TASK_EVENTS = False
CELERY_TASK_CREATE_MISSING_QUEUES = False
CELERY_TASK_DEFAULT_QUEUE = "control"
# Missing queues are not created: a worker declares the queues of its node here, a dispatcher passes its own.
CELERY_TASK_QUEUES = [Queue(name) for name in node_queues(INFLIGHT_NODE_ID)]
CELERY_TIMEZONE = "UTC"

# Every entry expires before the next one, so a dead worker builds no backlog.
CELERY_BEAT_SCHEDULE: dict[str, Any] = {
    "sweep": {
        "task": "workers.sweep",
        "schedule": timedelta(seconds=5),
        "options": {"expires": 4, "queue": f"node.{INFLIGHT_NODE_ID}.ctl"},
    },
}
