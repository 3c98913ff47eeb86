"""Telemetry: how long stored figures are kept, a Prometheus as their source, who may read /metrics."""

from __future__ import annotations

from controlplane.settings import env

_HOUR, _DAY = 3600, 86_400

# Seconds for which steps of 10 s, 1 min, 10 min, 1 h and 8 h are kept. A thousand servers write some 0.5 MB a minute.
INFLIGHT_RETENTION_SECONDS: dict[int, int] = {
    10: env.integer("INFLIGHT_KEEP_10S_HOURS", 3) * _HOUR,
    60: env.integer("INFLIGHT_KEEP_1M_DAYS", 2) * _DAY,
    600: env.integer("INFLIGHT_KEEP_10M_DAYS", 14) * _DAY,
    3600: env.integer("INFLIGHT_KEEP_1H_DAYS", 90) * _DAY,
    28_800: env.integer("INFLIGHT_KEEP_8H_DAYS", 800) * _DAY,
}
# A Prometheus that scrapes this control plane; long ranges are then read from it (docs/telemetry.md).
INFLIGHT_PROMETHEUS_URL = env.text("INFLIGHT_PROMETHEUS_URL")
# The playground's background load: the most synthetic users, and the longest time, that anybody may ask for.
INFLIGHT_BACKGROUND_USERS = env.integer("INFLIGHT_BACKGROUND_USERS", 32)
INFLIGHT_BACKGROUND_SECONDS = env.integer("INFLIGHT_BACKGROUND_SECONDS", 600)
# Whether this machine itself may read /metrics without a token.
INFLIGHT_METRICS_ON_LOOPBACK = env.flag("INFLIGHT_METRICS_ON_LOOPBACK", True)
