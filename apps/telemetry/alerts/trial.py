"""What a condition says right now, before it is saved as a rule."""

from __future__ import annotations

import time
from dataclasses import dataclass

from apps.telemetry.alerts.watching import Memory, Watched, everything
from apps.telemetry.domain.alerting import judge
from apps.telemetry.domain.alerting.conditions import AnyCondition, Change, InState, Threshold
from apps.telemetry.domain.alerting.judge import Verdict

MOST_OBJECTS = 20


@dataclass(frozen=True, slots=True)
class Trial:
    """One object that the rule would be about, with its verdict where it can be had at once."""

    watched: Watched
    verdict: Verdict | None


def trial(condition: AnyCondition, target: str, selector: str) -> tuple[list[Trial], int]:
    """Verdicts for the first objects that fit, and how many fit in all. Reads samples of the condition's windows."""
    now = time.time()
    objects = [each for each in everything() if each.kind == target and each.fits(selector)]
    shown = objects[:MOST_OBJECTS]
    memory = Memory()
    if isinstance(condition, Threshold | Change):
        keys = [key for key in (condition.key, getattr(condition, "per", None)) if key]
        streams = [each.stream for each in shown if each.stream]
        memory.look(streams, keys, judge.needed_seconds(condition), now)
    return [Trial(each, _verdict(condition, each, memory, now)) for each in shown], len(objects)


def _verdict(condition: AnyCondition, watched: Watched, memory: Memory, now: float) -> Verdict | None:
    if isinstance(condition, InState):
        return judge.in_state(condition, watched.state)
    if isinstance(condition, Threshold) and watched.stream:
        return judge.threshold(condition, memory.of(watched.stream), now)
    if isinstance(condition, Change) and watched.stream:
        return judge.change(condition, memory.of(watched.stream), now)
    return None
