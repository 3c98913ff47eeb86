"""Usage and recent requests: counted once, kept while the database is away, removed in time."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import OperationalError

from apps.core import clock
from apps.gateway import services
from apps.gateway.domain.facts import Priority, RequestRecord
from apps.gateway.models import GatewayKey, RequestLog, UsageHour
from apps.gateway.usage import counting, recorder, store
from apps.gateway.usage.recorder import Recorder
from tests.people import person
from tests.support.waiting import eventually

AT = datetime(2026, 3, 1, 10, 59, 59, tzinfo=UTC).timestamp()
RECORD = RequestRecord(
    request_id="r1",
    key_id=7,
    key_name="app",
    route="demo",
    upstream="abc",
    revision=3,
    endpoint="chat",
    at=AT,
    status=200,
    outcome="ok",
    streamed=True,
    priority=Priority.HIGH,
    prompt_tokens=10,
    completion_tokens=20,
    cached_tokens=4,
    queue_seconds=0.25,
    ttft_seconds=0.15,
    total_seconds=1.5,
    overhead_seconds=0.0004,
)


def sums() -> dict[str, int]:
    return {
        name: sum(UsageHour.objects.values_list(name, flat=True))
        for name in ("requests", "errors", "refused", "cancelled", "prompt_tokens", "completion_tokens")
    }


@pytest.mark.django_db(transaction=True)
class TestRecorder:
    """What is put is written once."""

    def test_counts_and_lists(self) -> None:
        taken = Recorder()
        for number in range(30):
            taken.put(replace(RECORD, request_id=f"r{number}"))
        taken.put(replace(RECORD, outcome="error", status=500, prompt_tokens=None, ttft_seconds=None))
        taken.put(replace(RECORD, outcome="refused", status=429))
        taken.put(replace(RECORD, outcome="cancelled", at=AT + 2))
        assert taken.flush()
        first, second = UsageHour.objects.order_by("hour")
        assert (first.requests, second.requests) == (32, 1)
        assert (first.errors, first.refused, second.cancelled) == (1, 1, 1)
        assert (first.prompt_tokens, first.completion_tokens, first.cached_tokens) == (310, 640, 128)
        assert (first.ttft_count, first.ttft_ms, first.ttft_200, first.ttft_100) == (31, 4650, 31, 0)
        assert RequestLog.objects.count() == 33
        row = RequestLog.objects.filter(outcome="ok").first()
        assert row is not None
        assert (row.ttft_ms, row.queue_ms, row.total_ms, row.overhead_ms) == (150.0, 250.0, 1500.0, 0.4)
        assert (row.priority, row.prompt, row.bodies_until) == ("high", None, None)
        assert taken.flush()
        assert sums()["requests"] == 33

    def test_two_processes_add_to_the_same_hour(self) -> None:
        first, second = Recorder(), Recorder()
        for taken in (first, second):
            for _n in range(10):
                taken.put(RECORD)
        assert first.flush()
        assert second.flush()
        assert UsageHour.objects.get().requests == 20

    def test_what_a_stranger_sends_is_no_place_of_its_own(self) -> None:
        taken = Recorder()
        for number in range(50):
            taken.put(
                replace(RECORD, key_id=None, key_name="", route=f"x{number}", status=401, outcome="refused")
            )
            taken.put(replace(RECORD, route=f"y{number}", status=404, outcome="refused"))
        assert taken.flush()
        assert {(row.key_id, row.route): row.requests for row in UsageHour.objects.all()} == {
            (0, ""): 50,
            (7, ""): 50,
        }
        # Requests of nobody fill no list.
        assert RequestLog.objects.count() == 50

    def test_hostile_texts_are_kept_as_text(self) -> None:
        taken = Recorder(body_days=lambda route: 3)
        ugly = "a\x00\ud800" + "x" * 300
        taken.put(replace(RECORD, request_id=ugly, upstream=ugly, reason=ugly, prompt=ugly, answer="ok\x00"))
        assert taken.flush()
        row = RequestLog.objects.get()
        assert len(row.request_id) == 128
        assert "\x00" not in (row.request_id + row.upstream + row.reason + str(row.prompt) + str(row.answer))
        assert row.bodies_until is not None
        assert row.bodies_until - clock.now() == pytest.approx(timedelta(days=3), abs=timedelta(minutes=1))

    def test_last_use_of_a_key(self) -> None:
        key, _text = services.create_key(person("operator"), {"name": "a"})
        taken = Recorder()
        taken.put(replace(RECORD, key_id=key.pk, at=AT))
        taken.put(replace(RECORD, key_id=key.pk, at=AT - 60))
        assert taken.flush()
        key.refresh_from_db()
        assert key.last_used_at == datetime.fromtimestamp(AT, UTC)
        taken.put(replace(RECORD, key_id=key.pk, at=AT - 120))
        assert taken.flush()
        assert GatewayKey.objects.get().last_used_at == datetime.fromtimestamp(AT, UTC)

    def test_a_database_that_is_away_loses_nothing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        taken, write = Recorder(), store.write

        def fail(*args: Any) -> None:
            raise OperationalError("away")

        monkeypatch.setattr(store, "write", fail)
        for _n in range(3):
            taken.put(RECORD)
            assert not taken.flush()
        assert taken.waiting == 3
        monkeypatch.setattr(store, "write", write)
        assert taken.flush()
        assert (sums()["requests"], RequestLog.objects.count(), taken.waiting) == (3, 3, 0)

    def test_a_list_that_grows_too_long_keeps_its_counts(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(recorder, "KEPT", 10)
        taken = Recorder()
        for number in range(25):
            taken.put(replace(RECORD, request_id=f"r{number}"))
        assert taken.flush()
        assert (sums()["requests"], RequestLog.objects.count(), taken.lost) == (25, 10, 15)
        assert RequestLog.objects.order_by("pk").first().request_id == "r15"  # type: ignore[union-attr]

    def test_batches_of_one_flush_count_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(recorder, "BATCH", 4)
        taken = Recorder()
        for _n in range(10):
            taken.put(RECORD)
        assert taken.flush()
        assert (sums()["requests"], RequestLog.objects.count()) == (10, 10)

    def test_a_thread_writes_by_itself_and_at_the_end(self) -> None:
        taken = Recorder()
        taken.start()
        began = time.monotonic()
        taken.put(RECORD)
        assert time.monotonic() - began < 0.1
        eventually(lambda: RequestLog.objects.count() == 1, "it is written")
        taken.put(RECORD)
        taken.stop()
        assert RequestLog.objects.count() == 2


@pytest.mark.django_db
class TestRemoval:
    """Texts have days, lists have bounds."""

    def made(self, **columns: Any) -> RequestLog:
        given = {"request_id": "r", "at": clock.now(), "route": "demo", "endpoint": "chat", "status": 200}
        return RequestLog.objects.create(**{**given, "outcome": "ok", **columns})

    def test_texts_go_and_the_row_stays(self) -> None:
        over = self.made(prompt="a", answer="b", bodies_until=clock.now() - timedelta(seconds=1))
        kept = self.made(prompt="a", answer="b", bodies_until=clock.now() + timedelta(days=1))
        store.sweep()
        over.refresh_from_db()
        kept.refresh_from_db()
        assert (over.prompt, over.answer, over.bodies_until) == (None, None, None)
        assert kept.prompt == "a"

    def test_old_requests_and_old_usage_go(self) -> None:
        self.made(at=clock.now() - timedelta(days=store.LOG_DAYS, minutes=1))
        young = self.made()
        long_ago = clock.now() - timedelta(days=store.USAGE_DAYS, hours=1)
        UsageHour.objects.create(hour=long_ago, route="demo")
        store.sweep()
        assert list(RequestLog.objects.all()) == [young]
        assert not UsageHour.objects.exists()

    def test_too_many_requests_go_oldest_first(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(store, "LOG_ROWS", 3)
        rows = [self.made() for _n in range(5)]
        store.sweep()
        assert set(RequestLog.objects.all()) == set(rows[2:])
        store.sweep()
        assert RequestLog.objects.count() == 3

    def test_the_sweep_runs_regularly(self) -> None:
        from apps.telemetry import chores

        assert any(chore.function is store.sweep for chore in chores.registered())


@pytest.mark.parametrize(
    ("milliseconds", "column"),
    [(0, "ttft_50"), (50, "ttft_50"), (50.1, "ttft_100"), (25600, "ttft_25600"), (25601, "ttft_more")],
)
def test_buckets(milliseconds: float, column: str) -> None:
    counts = counting.Counts()
    counts.add(replace(RECORD, ttft_seconds=milliseconds / 1000))
    assert getattr(counts, column) == 1
    assert sum(getattr(counts, name) for name in counting.TTFT_COLUMNS) == 1


def test_the_columns_are_those_of_the_row() -> None:
    columns = {field.name for field in UsageHour._meta.get_fields()}
    assert set(counting.Counts.__dataclass_fields__) <= columns
    assert set(counting.Counts().changes()) == set()
