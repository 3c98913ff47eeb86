"""Progress over all steps, rate and ETA, at most two writes a second."""

from __future__ import annotations

from pathlib import Path

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
