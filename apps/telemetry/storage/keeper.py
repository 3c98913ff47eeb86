"""Writing of steps: one thread, one short transaction each ten seconds, old rows pruned a few hundred at a time.

Restart-safe: where the counters stood (`Mark`) is written in the transaction of the steps that hold what they
counted, so after a kill nothing is counted twice and nothing that a server counted meanwhile is lost. Longer steps
are made anew out of shorter ones, so making one twice gives the same.
"""

from __future__ import annotations

import json
import logging
import time
import zlib
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from django.db import transaction

from apps.telemetry.domain.rollup import Bucket, joined, pack, unpack
from apps.telemetry.storage import policy
from apps.telemetry.storage.models import Mark, Rollup

log = logging.getLogger(__name__)

Scoped = tuple[int, int]

# Rows of one statement, of one delete, and deletes of one round: no lock is held for longer than some 20 ms.
BATCH = 250
PRUNED_AT_ONCE = 500
PRUNE_ROUNDS = 40
PRUNE_PAUSE_SECONDS = 0.02
READINGS = "readings"
# A mark that is older is not taken up: what happened in so long a silence belongs to no step.
MARK_SECONDS = 900.0


def write(at: int, buckets: Mapping[Scoped, Bucket], marks: Mapping[str, Any] | None = None) -> int:
    """Store the finest steps that began at `at`; a row that a process before this one left is added to.

    `marks` is kept in the same transaction. Returns the number of rows.
    """
    rows = Rollup.objects.filter(step=policy.FINEST, at=at)
    before = {(row.scope, row.scope_id): row for row in rows} if buckets else {}
    merged = {}
    for key, bucket in buckets.items():
        old = _bucket_of(before[key]) if key in before else None
        merged[key] = joined([old, bucket]) if old is not None else bucket
    new = [_row(key, policy.FINEST, at, bucket) for key, bucket in merged.items()]
    packed = zlib.compress(json.dumps(marks).encode(), 1) if marks is not None else None
    with transaction.atomic():
        _save(new)
        if packed is not None:
            Mark.objects.update_or_create(name=READINGS, defaults={"at": time.time(), "data": packed})
    return len(new)


def marks() -> dict[str, Any]:
    """What was written last with `write`; nothing where it is too old or unreadable."""
    row = Mark.objects.filter(name=READINGS).first()
    if row is None or not 0 <= time.time() - row.at <= MARK_SECONDS:
        return {}
    try:
        found = json.loads(zlib.decompress(row.data))
    except (ValueError, zlib.error):
        log.warning("Where the counters stood could not be read; counting begins anew.")
        return {}
    return found if isinstance(found, dict) else {}


def compact(now: float) -> int:
    """Make the longer steps that are complete and not made yet. Returns the number of rows written."""
    written = 0
    for finer, step in zip(policy.STEPS, policy.STEPS[1:], strict=False):
        end = int(now) // step * step
        for at in _missing(finer, step, end, now):
            written += _compact_one(finer, step, at)
    return written


def _missing(finer: int, step: int, end: int, now: float) -> Iterator[int]:
    """Beginnings of complete steps after the newest that exists, as far back as the finer rows reach."""
    newest = Rollup.objects.filter(step=step).order_by("-at").values_list("at", flat=True).first()
    if newest is None:
        newest = Rollup.objects.filter(step=finer).order_by("at").values_list("at", flat=True).first()
        if newest is None:
            return
        newest = newest // step * step - step
    first = max(newest + step, (int(now) - policy.retention(finer)) // step * step)
    yield from range(first, end, step)


def _compact_one(finer: int, step: int, at: int) -> int:
    found: dict[Scoped, list[Bucket]] = defaultdict(list)
    rows = Rollup.objects.filter(step=finer, at__gte=at, at__lt=at + step)
    for row in rows.iterator(chunk_size=1000):
        bucket = _bucket_of(row)
        if bucket is not None:
            found[row.scope, row.scope_id].append(bucket)
    new = [_row(key, step, at, joined(buckets)) for key, buckets in found.items()]
    for start in range(0, len(new), BATCH):
        with transaction.atomic():
            _save(new[start : start + BATCH])
    return len(new)


def prune(now: float) -> int:
    """Delete what is past its retention, in small pieces. Returns the number of rows."""
    deleted = 0
    rounds = 0
    for step in policy.STEPS:
        old = Rollup.objects.filter(step=step, at__lt=int(now) - policy.retention(step))
        while rounds < PRUNE_ROUNDS:
            rounds += 1
            keys = list(old.order_by("at").values_list("pk", flat=True)[:PRUNED_AT_ONCE])
            if not keys:
                break
            deleted += Rollup.objects.filter(pk__in=keys).delete()[0]
            time.sleep(PRUNE_PAUSE_SECONDS)
    return deleted


def _row(key: Scoped, step: int, at: int, bucket: Bucket) -> Rollup:
    return Rollup(scope=key[0], scope_id=key[1], step=step, at=at, data=pack(bucket))


def _save(rows: list[Rollup]) -> None:
    Rollup.objects.bulk_create(
        rows,
        batch_size=BATCH,
        update_conflicts=True,
        unique_fields=["scope", "scope_id", "step", "at"],
        update_fields=["data"],
    )


def _bucket_of(row: Rollup) -> Bucket | None:
    try:
        return unpack(bytes(row.data))
    except ValueError as error:
        log.warning("%s cannot be read and is passed over: %s", row, error)
        return None
