"""The open step, its hand-over to the database, and a restart in the middle of it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from django.db import OperationalError

from apps.telemetry.domain import derive, prometheus
from apps.telemetry.domain.derive import Window
from apps.telemetry.domain.marks import load
from apps.telemetry.domain.rollup import of_intervals, unpack
from apps.telemetry.storage import keeper
from apps.telemetry.storage.models import Rollup, ScopeKind
from apps.telemetry.storage.rollups import Marked, Rollups, Storer

KEY = (int(ScopeKind.INSTANCE), 5)


def reading(requests: int, at: float) -> derive.Reading:
    text = f'nv_inference_request_success{{model="m",version="1"}} {requests}'
    return derive.read(prometheus.parse(text, derive.WANTED), at)


def total() -> float:
    """Requests of all stored steps of ten seconds."""
    rows = Rollup.objects.filter(step=10)
    return sum(unpack(bytes(row.data)).amounts.get("requests", 0.0) for row in rows)


def count(rollups: Rollups, new: derive.Reading, old: derive.Reading) -> None:
    rollups.join(KEY, of_intervals([derive.interval(new, old, Window())]))
    rollups.marks["i5"] = Marked(7.0, new)


def test_a_step_is_closed_when_its_time_is_over() -> None:
    rollups = Rollups()
    assert not rollups.roll(rollups._at + 9.9)
    rollups.add_sample(KEY, {"at": 1.0, "requests_running": 2.0})
    assert rollups.roll(rollups._at + 10.0)
    closed = rollups.take()
    assert closed is not None
    assert closed.buckets[KEY].value("requests_running") == 2.0
    assert rollups.take() is None
    rollups.close()  # nothing happened since
    assert rollups.take() is None


@pytest.mark.django_db(transaction=True)
async def test_a_killed_process_counts_nothing_twice_and_loses_nothing() -> None:
    rollups = Rollups()
    storer = Storer(rollups)
    count(rollups, reading(10, 101.0), reading(0, 100.0))
    rollups.close()
    await storer.store()
    # Counted after the write, and lost with the process before it is written.
    count(rollups, reading(13, 102.0), reading(10, 101.0))

    known = await storer.marks()
    document = known["i5"]
    assert document["created"] == 7.0
    restored = load(document, 200.0, document["at"] + 4.0)
    assert restored is not None
    again = Rollups()
    count(again, reading(17, 200.0), restored)
    again.close()
    await Storer(again).store()
    assert await asyncio.to_thread(total) == 17


@pytest.mark.django_db(transaction=True)
async def test_a_database_that_is_away_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    write, away = keeper.write, True

    def sometimes(*args: Any) -> int:
        if away:
            raise OperationalError("database is locked")
        return write(*args)

    monkeypatch.setattr(keeper, "write", sometimes)
    rollups = Rollups()
    storer = Storer(rollups)
    count(rollups, reading(4, 101.0), reading(0, 100.0))
    rollups.close()
    await storer.store()
    assert "database is locked" in caplog.text
    assert await asyncio.to_thread(total) == 0
    away = False
    await storer.store()
    assert await asyncio.to_thread(total) == 4
