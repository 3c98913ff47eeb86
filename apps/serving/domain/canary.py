"""The steps of a canary, and who gets which share of new requests while two revisions serve."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Step:
    """`weight`: hundredths of new requests that the new revision gets (1 to 99), for `seconds` at least."""

    weight: int
    seconds: float


def wanted_at(weight: int, replicas: int) -> int:
    """Servers of the new revision that a weight asks for: at least one, at most all."""
    return max(1, min(replicas, math.ceil(replicas * weight / 100)))


def shares(
    active: int, whole: bool, pending: int, steps: Sequence[Step], step: int | None, promoted: bool
) -> tuple[float, float]:
    """Weights of the active and the pending revision, out of 100, by their numbers of serving instances.

    A canary's weight holds from its first step on, and not before. Without steps, or once they are over, each serving
    instance counts the same as soon as the active revision is not `whole` any more: its servers are exchanged one by
    one. What has no instance gets nothing, unless neither has.
    """
    if active == 0 and pending == 0:
        return 100.0, 0.0
    if steps and not promoted:
        share = float(steps[min(step, len(steps) - 1)].weight) if step is not None else 0.0
        if active == 0:
            # Better the one on trial than an error.
            return 0.0, 100.0
        return (100.0 - share, share) if pending else (100.0, 0.0)
    if whole:
        return 100.0, 0.0
    both = active + pending
    return 100.0 * active / both, 100.0 * pending / both
