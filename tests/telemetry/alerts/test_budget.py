"""Requests good and bad, as an objective counts them out of stored figures."""

from __future__ import annotations

from typing import Any

import pytest

from apps.telemetry import history
from apps.telemetry.alerts import budget
from apps.telemetry.alerts.watching import Watched
from apps.telemetry.domain.alerting.burn import Requests
from apps.telemetry.domain.alerting.conditions import BurnRate
from apps.telemetry.history import Heat, Scope

NOW = 10_000.0
DEMO = Watched("deployment", "7", "demo")


def condition(indicator: str, limit_ms: float | None = None) -> BurnRate:
    return BurnRate.model_validate(
        {"kind": "burn_rate", "indicator": indicator, "objective": 0.99, "limit_ms": limit_ms}
    )


def told(monkeypatch: pytest.MonkeyPatch, **values: Any) -> list[tuple[Any, ...]]:
    """What `window` finds; (scope, since, until) of what was asked."""
    asked: list[tuple[Any, ...]] = []
    whole = {"failed": None, "ended": {}, "requests": None, **values}

    def window(scope: Scope, since: float, until: float) -> dict[str, Any]:
        asked.append((scope, since, until))
        return whole

    monkeypatch.setattr(history, "window", window)
    return asked


@pytest.mark.parametrize(
    ("values", "found"),
    [
        # The reasons name bad ends alone.
        (
            {"failed": 3.0, "requests": 100.0, "ended": {"error": 3.0, "rejected": 7.0}},
            Requests(100.0, 3.0),
        ),
        # The engine counts only what ended well, and nothing did.
        ({"failed": 3.0, "requests": None, "ended": {"error": 3.0}}, Requests(3.0, 3.0)),
        # The engine counts only what ended well.
        ({"failed": 0.0, "requests": 40.0}, Requests(40.0, 0.0)),
        # It tells no failures: not known is not none.
        ({"failed": None, "requests": 40.0}, Requests(None, None)),
        ({}, Requests(None, None)),
    ],
)
def test_errors(monkeypatch: pytest.MonkeyPatch, values: dict[str, Any], found: Requests) -> None:
    asked = told(monkeypatch, **values)
    assert budget.counter(condition("errors"), DEMO, NOW)(600) == found
    assert asked == [(Scope("deployment", 7), NOW - 600, NOW)]


def test_the_fleet_has_no_number(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = told(monkeypatch)
    budget.counter(condition("errors"), Watched("fleet", "", ""), NOW)(60)
    assert asked[0][0] == Scope("fleet", 0)


def heat(*columns: list[float]) -> Heat:
    bounds: list[float | None] = [100.0, 200.0, 400.0, None]
    times = [float(at) for at in range(len(columns))]
    return Heat(60.0, "1m", "ttft", "ms", times, bounds, list(columns))


@pytest.mark.parametrize(
    ("limit", "bad"),
    [
        # At a bound: exact.
        (200.0, 4 + 2.0),
        (100.0, 3 + 4 + 2.0),
        (400.0, 2.0),
        # Inside a bucket: its part above the limit, evenly spread.
        (150.0, 1.5 + 4 + 2),
        (300.0, 2.0 + 2),
        # Above every bound nobody knows how slow they were: all of that bucket count.
        (1000.0, 2.0),
        (0.0, 10 + 3 + 4 + 2.0),
    ],
)
def test_slow_requests(monkeypatch: pytest.MonkeyPatch, limit: float, bad: float) -> None:
    found = heat([6.0, 1.0, 4.0, 0.0], [4.0, 2.0, 0.0, 2.0])
    monkeypatch.setattr(history, "distribution", lambda *_args, **_more: found)
    assert budget.counter(condition("ttft", limit or 0.001), DEMO, NOW)(60).bad == pytest.approx(
        bad, abs=1e-3
    )
    assert budget.counter(condition("ttft", limit or 0.001), DEMO, NOW)(60).total == 19.0


def test_nothing_observed_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "distribution", lambda *_args, **_more: heat())
    assert budget.counter(condition("e2e", 500.0), DEMO, NOW)(60) == Requests(None, None)
