"""Fewer points of a long history, without hiding peaks or gaps."""

from __future__ import annotations

import math
from collections.abc import Sequence

from apps.telemetry.domain.derive import Sample
from apps.telemetry.domain.vocabulary import BY_NAME, NAMES


def thin(samples: Sequence[Sample], max_points: int) -> list[Sample]:
    """At most about `max_points` samples, one for each equal step of time that has any.

    Percentiles and flags keep the highest value of a step, amounts are added, everything else is its mean. A step
    without samples gives none: a gap stays a gap.
    """
    if len(samples) <= max_points or max_points < 1:
        return list(samples)
    first, last = samples[0]["at"] or 0.0, samples[-1]["at"] or 0.0
    step = max((last - first) / max_points, 1e-3)
    thinned: list[Sample] = []
    group: list[Sample] = []
    number = -1
    for sample in samples:
        mine = min(math.floor(((sample["at"] or 0.0) - first) / step), max_points - 1)
        if mine != number and group:
            thinned.append(_one_of(group))
            group = []
        number = mine
        group.append(sample)
    thinned.append(_one_of(group))
    return thinned


def _one_of(group: Sequence[Sample]) -> Sample:
    one: Sample = {"at": group[-1]["at"]}
    for name in NAMES:
        known = [value for value in (sample.get(name) for sample in group) if value is not None]
        if not known:
            one[name] = None
        elif BY_NAME[name].kind in ("quantile", "flag"):
            one[name] = max(known)
        elif BY_NAME[name].kind == "amount":
            one[name] = round(sum(known), 4)
        else:
            one[name] = round(sum(known) / len(known), 4)
    return one
