"""Progress over all steps, rate and ETA, at most two writes a second."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from apps.core import clock
from workers.builders.base import Step
from workers.progress import Progress

Written = list[tuple[float | None, float | None, float | None]]


class Clock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(clock, "monotonic", lambda: self.now)


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def steps(*seconds: float) -> list[Step]:
    return [
        Step(name=f"s{index}", title="S", argv=("x",), cwd=Path("/"), expected_seconds=length)
        for index, length in enumerate(seconds)
    ]


def test_shares_rate_and_eta(time: Clock) -> None:
    written: Written = []
    first, second = steps(10, 30)
    progress = Progress([first, second], lambda *values: written.append(values))
    progress.begin(first)
    time.now += 5
    progress.update(500, 1000)
    [(share, rate, eta)] = written
    assert share == pytest.approx(0.125)
    assert rate == pytest.approx(100)
    # 5 s left of this step, which goes as expected, and 30 s of the next.
    assert eta == pytest.approx(35)
    time.now += 5
    progress.finish()
    assert written[-1] == (pytest.approx(0.25), None, 30)
    progress.begin(second)
    time.now += 15
    progress.update(1, 1)
    assert written[-1][0] == pytest.approx(1.0)
    assert written[-1][2] == pytest.approx(0)


def test_a_machine_that_is_slower_than_expected_shows_in_the_eta(time: Clock) -> None:
    written: Written = []
    first, second = steps(10, 10)
    progress = Progress([first, second], lambda *values: written.append(values))
    progress.begin(first)
    time.now += 20
    progress.update(500, 1000)
    assert written[-1][2] == pytest.approx(20 + 40)


def test_at_most_two_writes_a_second(time: Clock) -> None:
    written: Written = []
    [only] = steps(10)
    progress = Progress([only], lambda *values: written.append(values))
    progress.begin(only)
    for done in range(1, 1001):
        time.now += 0.01
        progress.update(done, 1000)
    assert 18 <= len(written) <= 20


def test_what_cannot_be_told_is_none(time: Clock) -> None:
    written: Written = []
    [only] = steps(10)
    progress = Progress([only], lambda *values: written.append(values))
    progress.update(5, 10)
    progress.begin(only)
    time.now += 1
    progress.update(0, 10)
    progress.update(1, 0)
    assert written == [(0.0, None, None)]


@pytest.mark.parametrize("pace", [0.85, 1.0, 1.2])
@pytest.mark.parametrize("speaks", [True, False])
def test_an_eta_out_of_history_comes_true_within_a_quarter(
    monkeypatch: pytest.MonkeyPatch, pace: float, speaks: bool
) -> None:
    """Three builds took these times; the next one goes at another pace. From its first look on, what has passed and
    what is said to be left add up to what it really takes."""
    usual = {"quantize": 3600.0, "build": 1800.0, "publish": 120.0}
    said: list[tuple[float, Any]] = []
    now = SimpleNamespace(at=0.0)
    monkeypatch.setattr(clock, "monotonic", lambda: now.at)
    steps = [Step(name, name, ("x",), Path("/"), expected_seconds=seconds) for name, seconds in usual.items()]
    made = Progress(steps, lambda progress, rate, eta: said.append((now.at, eta)), usual)
    for step in steps:
        made.begin(step)
        real = usual[step.name] * pace
        for percent in range(1, 100):
            now.at += real / 100
            # A log tells coarsely how far it is, and not in step with time.
            made.update(*((percent / 100) ** 2, 1.0) if speaks else (0.0, 0.0))
        now.at += real / 100
        made.finish()
    total = sum(usual.values()) * pace
    assert None not in [eta for _at, eta in said[:-1]]
    for at, eta in said[:-1]:
        assert abs(at + eta - total) <= 0.25 * total
    # Once one stage has shown the pace, what is said to be left is true by itself.
    behind = [(at, eta) for at, eta in said if usual["quantize"] * pace < at < 0.95 * total]
    assert all(abs(eta - (total - at)) <= 0.25 * (total - at) for at, eta in behind)
