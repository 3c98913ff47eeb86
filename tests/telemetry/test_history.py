"""Curves, distributions and totals over stored steps and live samples."""

from __future__ import annotations

import math
import time
from typing import Any

import orjson
import pytest

from apps.telemetry import history, store
from apps.telemetry.domain.derive import Interval
from apps.telemetry.domain.histogram import Histogram
from apps.telemetry.domain.rollup import Bucket, pack, unpack
from apps.telemetry.domain.vocabulary import NAMES
from apps.telemetry.history import Scope
from apps.telemetry.storage import keeper
from apps.telemetry.storage.models import Rollup, ScopeKind

DEPLOYMENT = (int(ScopeKind.DEPLOYMENT), 7)
SCOPE = Scope("deployment", 7)


@pytest.fixture(autouse=True)
def no_live_samples(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Live samples that the test puts in."""
    live: list[Any] = []
    monkeypatch.setattr(
        store,
        "read_full",
        lambda key, since, until: [(s, more) for s, more in live if since <= s["at"] < until],
    )
    return live


def ttft(fast: int, slow: int) -> Histogram:
    """`fast` values up to 100 ms and `slow` ones up to 1 s."""
    return Histogram((100.0, 1000.0, math.inf), (fast, fast + slow, fast + slow), fast * 50.0 + slow * 500.0)


def bucket(running: float = 2.0, requests: float = 5.0, fast: int = 5, slow: int = 0) -> Bucket:
    """A step of ten seconds."""
    found = Bucket()
    for _second in range(10):
        found.add_sample({"at": 0.0, "requests_running": running, "requests_per_second": requests / 10})
    amounts = {"requests": requests, "ended/error": 1.0, "cached": 10.0, "prompt": 20.0}
    parts = {"cached": 10.0, "prompt": 20.0}
    found.add_interval(Interval({}, {}, parts, {}, {"ttft": ttft(fast, slow)}, amounts))
    return found


def past(seconds: float) -> int:
    """A whole ten seconds so long ago."""
    return int(time.time() - seconds) // 10 * 10


def test_a_bucket_is_the_same_after_storage() -> None:
    one = bucket(running=2.5)
    one.add_sample({"at": 0.0, "requests_waiting": 1.0, "targets_lost": 1.0, "gpu_energy_joules": 5.0})
    other = unpack(pack(one))
    assert other == one
    point = other.point(100.0)
    assert set(point) == {"at", *NAMES}
    assert point["requests_running"] == 2.5
    assert point["requests_waiting"] == 1.0  # one second knew it
    assert point["targets_lost"] == 1.0
    assert point["gpu_energy_joules"] == 5.0
    assert point["cached_prompt_share"] == 0.5
    assert point["kv_use"] is None
    with pytest.raises(ValueError, match="not a stored step"):
        unpack(b"x")
    part = unpack(
        pack(one), {"ttft"}, ["requests_running", "ttft_p50_ms", "cached_prompt_share"], orjson.loads
    )
    assert set(part.sums) == {"requests_running"}
    wanted = ("requests_running", "ttft_p50_ms", "cached_prompt_share")
    assert part.point(1.0, wanted) == one.point(1.0, wanted)
    assert unpack(pack(one), ()).histograms == {}


def test_percentiles_of_a_long_step_come_from_added_histograms() -> None:
    one, other = bucket(fast=98, slow=0), bucket(fast=0, slow=2)
    one.join(other)
    assert one.value("ttft_p50_ms") == pytest.approx(100 * 50 / 98)
    assert one.value("ttft_p99_ms") == pytest.approx(100 + 900 * (99 - 98) / 2)


@pytest.mark.django_db
def test_a_restart_adds_to_the_step_and_longer_steps_can_be_made_twice() -> None:
    at = past(7200)
    keeper.write(at, {DEPLOYMENT: bucket()})
    keeper.write(at, {DEPLOYMENT: bucket()})  # another process in the same ten seconds
    assert unpack(bytes(Rollup.objects.get(step=10).data)).amounts["requests"] == 10
    for _twice in range(2):
        keeper.compact(time.time())
    minute = Rollup.objects.get(step=60)
    assert unpack(bytes(minute.data)).amounts["requests"] == 10
    hour = Rollup.objects.get(step=3600)
    assert unpack(bytes(hour.data)).amounts["requests"] == 10
    assert hour.at <= at < hour.at + 3600


@pytest.mark.django_db
def test_marks_live_as_long_as_they_mean_something(monkeypatch: pytest.MonkeyPatch) -> None:
    keeper.write(past(10), {}, {"i1": {"created": 1.0}})
    assert keeper.marks() == {"i1": {"created": 1.0}}
    monkeypatch.setattr(keeper, "MARK_SECONDS", -1.0)
    assert keeper.marks() == {}


@pytest.mark.django_db
def test_rows_past_their_time_are_pruned_and_no_others() -> None:
    now = time.time()
    for age in (60, 4 * 3600):
        keeper.write(past(age), {DEPLOYMENT: bucket()})
    keeper.compact(now)
    before = Rollup.objects.filter(step=60).count()
    assert keeper.prune(now) == 1
    assert Rollup.objects.filter(step=10).count() == 1
    assert Rollup.objects.filter(step=60).count() == before


@pytest.mark.django_db
def test_curves_of_an_hour_with_a_gap() -> None:
    start = past(3600)
    for number in range(360):
        if not 100 <= number < 200:
            keeper.write(start + number * 10, {DEPLOYMENT: bucket(running=float(number < 100))})
    found = history.series(SCOPE, start, start + 3600, 300, ["requests_running", "ttft_p99_ms", "kv_use"])
    assert found.source == "10s"
    assert found.step_seconds == 20
    assert found.points[0] == {
        "at": start // 20 * 20,
        "requests_running": 1.0,
        "ttft_p99_ms": pytest.approx(99.0),
        "kv_use": None,
    }
    gap = [point for point in found.points if point["requests_running"] is None]
    assert len(gap) == 1
    assert start + 990 <= (gap[0]["at"] or 0) <= start + 1020
    assert [p["at"] for p in found.points] == sorted(p["at"] or 0 for p in found.points)
    assert len(found.points) <= 301
    with pytest.raises(ValueError, match="nonsense"):
        history.series(SCOPE, start, start + 10, 10, ["nonsense"])
    assert history.series(SCOPE, start + 10, start, 10).points == []
    assert history.series(Scope("deployment", 8), start, start + 3600).points == []


@pytest.mark.django_db
def test_a_long_range_uses_long_steps_and_the_newest_short_ones() -> None:
    now = time.time()
    for hours in range(1, 30):
        data = pack(bucket(requests=float(hours)))
        at = int(now - hours * 3600) // 600 * 600
        Rollup.objects.create(scope=DEPLOYMENT[0], scope_id=7, step=600, at=at, data=data)
    keeper.write(past(30), {DEPLOYMENT: bucket(requests=1000.0)})
    found = history.series(SCOPE, now - 30 * 3600, now, 200, ["requests_running"])
    assert found.source == "10m"
    assert len(found.points) >= 29
    assert (found.points[-1]["at"] or 0) >= now - 1200
    total = history.window(SCOPE, now - 30 * 3600, now)
    assert total["requests"] == sum(range(1, 30)) + 1000


@pytest.mark.django_db
def test_live_seconds_are_curves_of_their_own(no_live_samples: list[Any]) -> None:
    now = time.time()
    for second in range(60, 0, -1):
        sample = {"at": now - second, **dict.fromkeys(NAMES, None), "requests_running": 3.0}
        sample["ttft_p99_ms"] = 40.0
        more = {"a": {"requests": 1}, "h": {"ttft": [[100, 1000], [0, 1], 50]}}
        no_live_samples.append((sample, more))
    found = history.series(SCOPE, now - 60, now, 300)
    assert (found.source, found.step_seconds, len(found.points)) == ("raw", 1.0, 60)
    assert found.points[-1]["ttft_p99_ms"] == 40.0  # as it was shown live
    coarse = history.series(SCOPE, now - 60, now, 10, ["ttft_p99_ms"])
    assert coarse.points[-1]["ttft_p99_ms"] == pytest.approx(99.0)
    total = history.window(SCOPE, now - 61, now)
    assert total["requests"] == 60
    assert total["histograms"]["ttft"]["count"] == 60
    assert total["means"]["requests_running"] == 3.0


@pytest.mark.django_db
def test_seconds_that_no_step_holds_yet_come_from_live_samples(no_live_samples: list[Any]) -> None:
    now = time.time()
    for age in range(2000, 40, -10):
        keeper.write(past(age), {DEPLOYMENT: bucket(running=1.0)})
    stored_until = Rollup.objects.latest("at").at + 10
    no_live_samples.append(({"at": stored_until - 3.0, "requests_running": 50.0}, None))
    no_live_samples.append(({"at": now - 1.0, "requests_running": 9.0}, None))
    found = history.series(SCOPE, now - 2000, now, 300, ["requests_running"])
    assert found.points[-1]["requests_running"] == 9.0
    assert 50.0 not in [point["requests_running"] for point in found.points]  # stored already


@pytest.mark.django_db
def test_a_distribution_over_time() -> None:
    start = past(1800)
    for number in range(60):
        keeper.write(start + number * 10, {DEPLOYMENT: bucket(fast=number, slow=1)})
    heat = history.distribution(SCOPE, "ttft", start, start + 600, max_columns=30)
    assert heat.bounds == [100.0, 1000.0, None]
    assert (heat.unit, heat.histogram, heat.source) == ("ms", "ttft", "10s")
    assert len(heat.times) == len(heat.counts) <= 31
    assert sum(sum(column) for column in heat.counts) == sum(range(60)) + 60
    assert sum(column[1] for column in heat.counts) == 60
    nothing = history.distribution(SCOPE, "itl", start, start + 600)
    assert (nothing.times, nothing.bounds, nothing.counts) == ([], [], [])


@pytest.mark.django_db
def test_totals_of_a_range() -> None:
    start = past(1800)
    for number in range(6):
        keeper.write(start + number * 10, {DEPLOYMENT: bucket(fast=9, slow=1)})
    total = history.window(SCOPE, start, start + 60)
    assert (total["since"], total["until"], total["source"]) == (start, start + 60, "10s")
    assert total["requests"] == 30
    assert total["ended"] == {"error": 6}
    assert (total["failed"], total["rejected"], total["cancelled"]) == (6, 0, 0)
    assert total["energy_joules"] is None
    assert total["generated_tokens"] is None
    assert total["histograms"]["ttft"] == {
        "unit": "ms",
        "count": 60,
        "mean": pytest.approx(95.0),
        "p50": pytest.approx(100 * 30 / 54),
        "p90": pytest.approx(100.0),
        "p99": pytest.approx(100 + 900 * (59.4 - 54) / 6),
    }
    empty = history.window(Scope("fleet"), start, start + 60)
    assert empty["requests"] is None
    assert empty["failed"] is None
