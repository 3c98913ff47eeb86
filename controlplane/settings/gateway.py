"""The OpenAI-compatible gateway: where it listens and which hosts its external deployments may have."""

from __future__ import annotations

from controlplane.settings import env

INFLIGHT_GATEWAY_PORT = env.integer("INFLIGHT_GATEWAY_PORT", 8001)
# What clients are told to call: the public address where something stands before the gateway.
INFLIGHT_GATEWAY_URL = env.text("INFLIGHT_GATEWAY_URL", f"http://127.0.0.1:{INFLIGHT_GATEWAY_PORT}")
# Hosts of external deployments: names, addresses, networks, each with :port if wanted (core/outbound.py). No other
# may be used, loopback included.
INFLIGHT_UPSTREAM_ALLOW = env.words("INFLIGHT_UPSTREAM_ALLOW", [])
