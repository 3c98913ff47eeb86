"""Where samples lie: Redis streams of the last hour, one entry a second."""

from __future__ import annotations

import json
import time
from typing import Any

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


async def write(samples: dict[str, Sample]) -> None:
    """Append one sample to each stream, and say that telemetry is alive. Raises a Redis error where it is away."""
    pipeline = async_client().pipeline(transaction=False)
    for key, sample in samples.items():
        pipeline.xadd(key, {"sample": json.dumps(sample)}, maxlen=KEPT, approximate=True)
        pipeline.expire(key, TTL_SECONDS)
    pipeline.set(BEAT, "1", ex=BEAT_SECONDS)
    async with answer():
        await pipeline.execute()


def read(key: str, since: float) -> list[Sample]:
    """Samples of a stream after epoch second `since`, oldest first; none where Redis does not answer."""
    try:
        entries: Any = sync_client().xrange(key, min=str(max(0, int(since * 1000) - 1000)))
    except REDIS_ERRORS:
        return []
    samples = [json.loads(fields["sample"]) for _entry, fields in entries]
    return [sample for sample in samples if sample["at"] > since]


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


def is_alive() -> bool | None:
    """Whether the telemetry process wrote within BEAT_SECONDS; None where Redis does not answer."""
    try:
        return bool(sync_client().exists(BEAT))
    except REDIS_ERRORS:
        return None
