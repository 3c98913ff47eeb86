"""Names under which our own /metrics shows samples of the vocabulary."""

from __future__ import annotations

from apps.telemetry.domain.key import Key
from apps.telemetry.domain.vocabulary import KEYS

# inflight_ alone is the prefix of the embedded model's own families.
PREFIX = "inflight_telemetry_"

# Everything that /metrics can show besides the vocabulary's keys.
OWN_FAMILIES = (
    "inflight_info",
    "inflight_builds",
    "inflight_deployments",
    "inflight_instances",
    "inflight_nodes",
    "inflight_redis_up",
    "inflight_telemetry_up",
    "inflight_websockets",
)


def name_of(key: Key | str) -> str:
    """Name of a key's family."""
    return f"{PREFIX}{key if isinstance(key, str) else key.name}"


def help_of(key: Key) -> str:
    """HELP text of a key's family."""
    unit = "" if key.unit == "1" else f" ({key.unit})"
    return f"{key.title}{unit}. {key.limits}".strip()


FAMILIES: frozenset[str] = frozenset({*OWN_FAMILIES, *(name_of(key) for key in KEYS)})
