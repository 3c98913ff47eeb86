"""Burn rates: how fast an objective's error budget is used up, over several pairs of windows.

A burn rate of 1 uses the budget up exactly by the end of the objective's period; `bad / all / (1 - objective)`.
Source: Google, The Site Reliability Workbook, chapter 5, "Alerting on SLOs", approach 6.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from apps.telemetry.domain.alerting.conditions import BurnRate
from apps.telemetry.domain.alerting.judge import Verdict, unknown


@dataclass(frozen=True, slots=True)
class Requests:
    """Requests of one window: all that ended, and those of them that were bad; None where it is not told."""

    total: float | None
    bad: float | None


def rate(requests: Requests, objective: float) -> float | None:
    """The burn rate; None where nothing was told or nothing ended."""
    if requests.total is None or requests.bad is None or requests.total <= 0:
        return None
    return requests.bad / requests.total / (1 - objective)


def judge(condition: BurnRate, requests_of: Callable[[int], Requests]) -> Verdict:
    """The verdict over all pairs of windows; `requests_of(seconds)` counts the requests of the last `seconds`.

    Too few requests in a long window say nothing. It is over as soon as no short window burns too fast.
    """
    told, active, hot = False, False, False
    worst: tuple[float, float] | None = None
    for window in condition.windows:
        over_long, over_short = requests_of(window.long_seconds), requests_of(window.short_seconds)
        if over_long.total is None or over_long.bad is None:
            continue
        if over_long.total < condition.at_least_requests:
            continue
        told = True
        long_rate = rate(over_long, condition.objective) or 0.0
        # Nothing ended lately: nothing is burnt now.
        short_rate = rate(over_short, condition.objective) or 0.0
        hot |= short_rate > window.factor
        active |= long_rate > window.factor and short_rate > window.factor
        if worst is None or long_rate / window.factor > worst[0] / worst[1]:
            worst = (long_rate, window.factor)
    if not told or worst is None:
        return unknown("null")
    return Verdict(active, not hot, worst[0], worst[1], facts={"objective": condition.objective})
