"""Several hosts (docs/several-hosts.md): what joining hosts are told, the nodes' doors, the store of artefacts."""

from __future__ import annotations

from controlplane.settings import env

INFLIGHT_DATABASE_URL = env.text("DATABASE_URL")
# Addresses of the database and of Redis as other hosts reach them; empty: this installation's own.
INFLIGHT_JOIN_DATABASE_URL = env.text("INFLIGHT_JOIN_DATABASE_URL")
INFLIGHT_JOIN_REDIS_URL = env.text("INFLIGHT_JOIN_REDIS_URL")
# The node's door: where it listens, and the name or address by which the other hosts reach it (default: the same).
INFLIGHT_DOOR_HOST = env.text("INFLIGHT_DOOR_HOST", "127.0.0.1")
INFLIGHT_DOOR_PORT = env.integer("INFLIGHT_DOOR_PORT", 0)
INFLIGHT_DOOR_ADDRESS = env.text("INFLIGHT_DOOR_ADDRESS", INFLIGHT_DOOR_HOST)
# Where engines are kept for all hosts: a folder that they share, or s3://bucket/prefix. Empty: each host its own.
INFLIGHT_STORE = env.text("INFLIGHT_STORE")
INFLIGHT_STORE_ENDPOINT = env.text("INFLIGHT_STORE_ENDPOINT")
INFLIGHT_STORE_REGION = env.text("INFLIGHT_STORE_REGION", "us-east-1")
INFLIGHT_STORE_KEY_ID = env.text("INFLIGHT_STORE_KEY_ID")
INFLIGHT_STORE_SECRET = env.text("INFLIGHT_STORE_SECRET")
