"""Redis, the channel layer and Celery. One Redis server, separate database numbers for each use."""

from __future__ import annotations

import ssl
from datetime import timedelta
from typing import Any
from urllib.parse import urlencode

from kombu import Queue

from controlplane.settings import env

# redis://[user:password@]host:port, rediss:// for TLS, or unix:///path/to/socket; without a database number.
INFLIGHT_REDIS_URL = env.text("INFLIGHT_REDIS_URL", "redis://127.0.0.1:6379")
# For rediss://: the authority that signed the server's certificate (default: the system's), and a certificate of ours
# with its key where the server wants one. PEM files.
INFLIGHT_REDIS_CA = env.text("INFLIGHT_REDIS_CA")
INFLIGHT_REDIS_CERT = env.text("INFLIGHT_REDIS_CERT")
INFLIGHT_REDIS_KEY = env.text("INFLIGHT_REDIS_KEY")
# Identity of the node on this host; unique to each INFLIGHT_HOME. Empty where only the web runs.
INFLIGHT_NODE_ID = env.text("INFLIGHT_NODE_ID")


def redis_url(database: int, celery: bool = False) -> str:
    """URL of one database number of the Redis server, in redis-py's spelling or in kombu's."""
    if INFLIGHT_REDIS_URL.startswith("unix://"):
        path = INFLIGHT_REDIS_URL.removeprefix("unix://")
        return f"redis+socket://{path}?virtual_host={database}" if celery else f"unix://{path}?db={database}"
    base = f"{INFLIGHT_REDIS_URL.rstrip('/')}/{database}"
    return base if celery or not redis_tls() else f"{base}?{urlencode(redis_tls())}"


def redis_tls() -> dict[str, str]:
    """What redis-py is told of TLS, in its spelling; nothing without rediss://. A certificate is always checked."""
    if not INFLIGHT_REDIS_URL.startswith("rediss://"):
        return {}
    files = {
        "ssl_ca_certs": INFLIGHT_REDIS_CA,
        "ssl_certfile": INFLIGHT_REDIS_CERT,
        "ssl_keyfile": INFLIGHT_REDIS_KEY,
    }
    return {"ssl_cert_reqs": "required", **{key: path for key, path in files.items() if path}}


def node_queues(node_id: str) -> list[str]:
    """Names of the queues that the workers of one node may consume; GPU slots 0 to 15 and 8 MIG slices of each.

    Slices are numbered as in apps/fleet/domain/slots.py.
    """
    if not node_id:
        return ["control"]
    numbers = [*range(16), *(100 + 16 * gpu + part for gpu in range(16) for part in range(8))]
    slots = [f"node.{node_id}.gpu{index}" for index in numbers]
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
# kombu takes TLS apart from the address, and wants the ssl module's constant.
CELERY_BROKER_USE_SSL: dict[str, Any] | None = (
    {**redis_tls(), "ssl_cert_reqs": ssl.CERT_REQUIRED} if redis_tls() else None
)
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
