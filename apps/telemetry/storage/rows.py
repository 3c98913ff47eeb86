"""Reading of stored steps, with the last minutes out of the live samples where no step is written yet."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator
from dataclasses import dataclass

import orjson

from apps.telemetry import store
from apps.telemetry.domain.rollup import Bucket, of_document, unpack
from apps.telemetry.storage import policy
from apps.telemetry.storage.models import Rollup, ScopeKind

log = logging.getLogger(__name__)

# Live samples are read up to so far back: an hour is kept, but reading it all takes longer than a chart may.
RAW_SECONDS = 900.0
# Of seconds that a step has not been written for yet.
_TAIL_SECONDS = 120.0

KINDS: dict[str, int] = {
    "fleet": ScopeKind.FLEET,
    "deployment": ScopeKind.DEPLOYMENT,
    "instance": ScopeKind.INSTANCE,
    "gpu": ScopeKind.GPU,
    "node": ScopeKind.NODE,
}


@dataclass(frozen=True, slots=True)
class Step:
    """One stored step, or one live sample: it begins at `at` and lasts `seconds`."""

    at: float
    seconds: int
    bucket: Bucket


def step_for(since: float, until: float, now: float, most: int) -> int:
    """Which step suits a range: the finest that reaches back to `since` and has at most `most` steps in it; 1:
    raw.
    """
    span = max(until - since, 1.0)
    if now - since <= RAW_SECONDS and span <= max(most, RAW_SECONDS):
        return 1
    for step in policy.STEPS:
        if span / step <= most and now - since <= policy.retention(step):
            return step
    return policy.STEPS[-1]


def read(
    kind: str,
    scope_id: int,
    since: float,
    until: float,
    step: int,
    now: float,
    histograms: Collection[str] | None = None,
    names: Collection[str] | None = None,
) -> list[Step]:
    """Steps that overlap [since, until), oldest first; the newest seconds as live samples.

    `histograms` and `names`: those that are needed (default: all).
    """
    if step == 1:
        return list(_raw(kind, scope_id, since, until, histograms))
    rows = (
        Rollup.objects.filter(scope=KINDS[kind], scope_id=scope_id, step=step)
        .filter(at__gt=since - step, at__lt=until)
        .order_by("at")
        .values_list("at", "data")
    )
    found = [
        Step(float(at), step, bucket)
        for at, data in rows
        if (bucket := _unpacked(bytes(data), histograms, names)) is not None
    ]
    stored_until = found[-1].at + step if found else since
    finer = [each for each in policy.STEPS if each < step]
    if finer and until > stored_until:
        # The longer step is not over yet: its beginning is there in shorter ones.
        found += read(kind, scope_id, stored_until, until, finer[-1], now, histograms, names)
    elif until > stored_until and now - until < _TAIL_SECONDS:
        found += _raw(kind, scope_id, max(stored_until, now - _TAIL_SECONDS), until, histograms)
    return found


def _unpacked(
    data: bytes, histograms: Collection[str] | None, names: Collection[str] | None
) -> Bucket | None:
    try:
        return unpack(data, histograms, names, orjson.loads)
    except ValueError as error:
        log.warning("A stored step is passed over: %s", error)
        return None


def _raw(
    kind: str, scope_id: int, since: float, until: float, histograms: Collection[str] | None
) -> Iterator[Step]:
    for sample, more in store.read_full(store.key_of(kind, scope_id), since, until):
        bucket = of_document(more, histograms) if more else Bucket()
        bucket.add_sample(sample)
        yield Step(sample["at"] or 0.0, 1, bucket)
