"""Beats and echoes of nodes in Redis.

`beat:<node id>` says that the node is alive (a thread of its control worker writes it), `echo:<node id>` that it
takes tasks from its queue (a task writes it). Ages come from the keys' remaining life, so only Redis' clock counts.
"""

from __future__ import annotations

from dataclasses import dataclass

from apps.fleet.policy import BEAT_KEPT_SECONDS
from apps.realtime.redis_clients import sync_client


@dataclass(frozen=True, slots=True)
class Ages:
    """Seconds since a node's last beat and last echo; None where Redis knows of none."""

    beat: float | None
    echo: float | None


def write(what: str, node_id: str) -> None:
    """Write a `beat` or an `echo` of a node. Raises redis.RedisError."""
    sync_client().set(f"{what}:{node_id}", "1", px=BEAT_KEPT_SECONDS * 1000)


def ages(node_ids: list[str]) -> dict[str, Ages]:
    """Ages of the beats and echoes of several nodes in one round trip. Raises redis.RedisError."""
    if not node_ids:
        return {}
    pipe = sync_client().pipeline(transaction=False)
    for node_id in node_ids:
        pipe.pttl(f"beat:{node_id}")
        pipe.pttl(f"echo:{node_id}")
    left = pipe.execute()
    return {
        node_id: Ages(_age(left[2 * index]), _age(left[2 * index + 1]))
        for index, node_id in enumerate(node_ids)
    }


def _age(left_ms: int) -> float | None:
    # PTTL answers -2 for a key that is not there and -1 for one without an end, which is not ours.
    return None if left_ms < 0 else max(0.0, BEAT_KEPT_SECONDS - left_ms / 1000)
