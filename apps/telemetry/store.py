"""Where samples lie: Redis streams of the last hour, one entry a second."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from apps.realtime.redis_clients import REDIS_ERRORS, answer, async_client, sync_client
from apps.telemetry.domain.derive import Sample

# Entries kept of each stream: an hour at one a second.
KEPT = 3600
# A stream that nobody writes to is forgotten after so many seconds.
TTL_SECONDS = 7200
FLEET = "samples:fleet"
BEAT = "telemetry:beat"
BEAT_SECONDS = 5


def deployment_key(deployment_id: int) -> str:
    """Stream of a deployment's samples."""
    return f"samples:deployment:{deployment_id}"


def instance_key(instance_id: int) -> str:
    """Stream of one server's samples."""
    return f"samples:instance:{instance_id}"


def gpu_key(gpu_id: int) -> str:
    """Stream of one GPU's samples."""
    return f"samples:gpu:{gpu_id}"


def node_key(node_id: int) -> str:
    """Stream of one host's samples."""
    return f"samples:node:{node_id}"


def key_of(kind: str, scope_id: int) -> str:
    """Stream of any object: fleet, deployment, instance, gpu or node."""
    return FLEET if kind == "fleet" else f"samples:{kind}:{scope_id}"


async def write(
    samples: Mapping[str, Sample], more: Mapping[str, Mapping[str, Any]] | None = None, alive: bool = True
) -> None:
    """Append one sample to each stream, and say that telemetry is alive. Raises a Redis error where it is away.

    A node's own scraper is not the telemetry process and says nothing of it (`alive` False).

    `more` holds, by stream, what the counters grew by and the histograms observed in that second
    (domain/rollup.py, `increments`).
    """
    pipeline = async_client().pipeline(transaction=False)
    for key, sample in samples.items():
        fields = {"sample": json.dumps(sample)}
        if more and more.get(key):
            fields["more"] = json.dumps(more[key], separators=(",", ":"))
        pipeline.xadd(key, fields, maxlen=KEPT, approximate=True)  # type: ignore[arg-type]
        pipeline.expire(key, TTL_SECONDS)
    if alive:
        pipeline.set(BEAT, "1", ex=BEAT_SECONDS)
    # A thousand objects at once take a moment to be written out.
    async with answer(len(samples) / 1000):
        await pipeline.execute()


def read(key: str, since: float) -> list[Sample]:
    """Samples of a stream after epoch second `since`, oldest first; none where Redis does not answer."""
    try:
        entries: Any = sync_client().xrange(key, min=str(max(0, int(since * 1000) - 1000)))
    except REDIS_ERRORS:
        return []
    samples = [orjson.loads(fields["sample"]) for _entry, fields in entries]
    return [sample for sample in samples if sample["at"] > since]


def read_full(key: str, since: float, until: float) -> list[tuple[Sample, dict[str, Any] | None]]:
    """Samples from `since` up to before `until` with their increments; none where Redis does not answer."""
    try:
        entries: Any = sync_client().xrange(key, min=str(max(0, int(since * 1000) - 1000)))
    except REDIS_ERRORS:
        return []
    found = []
    for _entry, fields in entries:
        sample = orjson.loads(fields["sample"])
        if since <= sample["at"] < until:
            found.append((sample, orjson.loads(fields["more"]) if "more" in fields else None))
    return found


def newest(key: str, within: float) -> Sample | None:
    """The newest sample of a stream, if it is at most `within` seconds old."""
    try:
        entries: Any = sync_client().xrevrange(key, count=1)
    except REDIS_ERRORS:
        return None
    if not entries:
        return None
    sample: Sample = json.loads(entries[0][1]["sample"])
    return sample if (sample["at"] or 0.0) >= time.time() - within else None


def newest_of(keys: Sequence[str], within: float) -> list[Sample | None]:
    """The newest sample of each stream in one round trip; None where there is none that recent."""
    pipeline = sync_client().pipeline(transaction=False)
    for key in keys:
        pipeline.xrevrange(key, count=1)
    try:
        answers: Any = pipeline.execute()
    except REDIS_ERRORS:
        return [None] * len(keys)
    samples = [orjson.loads(entries[0][1]["sample"]) if entries else None for entries in answers]
    least = time.time() - within
    return [sample if sample is not None and (sample["at"] or 0.0) >= least else None for sample in samples]


def is_alive() -> bool | None:
    """Whether the telemetry process wrote within BEAT_SECONDS; None where Redis does not answer."""
    try:
        return bool(sync_client().exists(BEAT))
    except REDIS_ERRORS:
        return None
