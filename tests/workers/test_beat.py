"""What beat counts by."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from controlplane import beat
from controlplane.beat import app

BOOTED = datetime(2001, 1, 1, tzinfo=UTC)


def test_a_wall_clock_that_is_set_holds_no_sweep_up(monkeypatch: pytest.MonkeyPatch) -> None:
    up: list[Any] = [timedelta(hours=1)]
    monkeypatch.setattr(beat, "since_boot", lambda: BOOTED + up[0])
    monkeypatch.setattr(type(app), "now", lambda self: pytest.fail("the wall clock was asked"))
    scheduler = beat.Scheduler(app)
    entry = scheduler.schedule["sweep"]
    every = app.conf.beat_schedule["sweep"]["schedule"]
    assert not entry.is_due()[0]
    up[0] += every
    assert entry.is_due()[0]
    following = next(entry)
    assert isinstance(following, beat.Entry)
    assert not following.is_due()[0]
    up[0] += every
    assert following.is_due()[0]


def test_it_counts_seconds() -> None:
    first = beat.since_boot()
    assert timedelta() <= beat.since_boot() - first < timedelta(seconds=30)
