"""Scraper and writer against real HTTP servers and a real Redis."""

from __future__ import annotations

import asyncio
import itertools
import os
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import psutil
import pytest
from channels.layers import get_channel_layer

from apps.fleet.processes import identify
from apps.realtime.tasks import end
from apps.telemetry import devices, process, selectors, store
from apps.telemetry.scraper import Scraper
from apps.telemetry.targets import Target
from apps.telemetry.writer import Writer
from tests.support.waiting import aeventually
from tests.telemetry.conftest import Engine

pytestmark = pytest.mark.integration

Start = Callable[..., Awaitable[Engine]]


def started(pid: int) -> float:
    """Start time of a process as the instance row keeps it: seconds since boot."""
    found = identify(pid)
    assert found is not None
    return found.created


def target(url: str, instance: int = 1, deployment: int = 1, **given: Any) -> Target:
    return Target(instance_id=instance, uid=f"i{instance}", deployment_id=deployment, url=url, **given)


@pytest.fixture
async def telemetry(redis_server: Any, fast_clock: None) -> AsyncIterator[Callable[..., Scraper]]:
    """Run scraper and writer over a list of targets, which the test may change."""
    running: list[asyncio.Task[None]] = []

    def start(targets: list[Target]) -> Scraper:
        async def find() -> list[Target]:
            return list(targets)

        scraper = Scraper(find, refresh=0.05)
        running.append(asyncio.create_task(scraper.run()))
        running.append(asyncio.create_task(Writer(scraper).run()))
        return scraper

    yield start
    await end(running)


async def samples(key: str, enough: int = 1) -> list[Any]:
    """At least `enough` samples of a stream."""
    found: list[Any] = []

    def look() -> bool:
        found[:] = store.read(key, 0)
        return len(found) >= enough

    await aeventually(lambda: asyncio.to_thread(look))
    return found


async def test_samples_of_a_server_are_kept_and_published(telemetry: Any, engine: Start) -> None:
    layer: Any = get_channel_layer()
    channel = await layer.new_channel()
    await layer.group_add("metrics.7", channel)
    await layer.group_add("metrics", channel)
    server = await engine()
    telemetry([target(server.url, instance=3, deployment=7)])
    found = (await samples("samples:deployment:7", 3))[-1]
    assert found["requests_per_second"] > 0
    assert found["requests_running"] == 2
    assert found["gpu_use"] is None
    assert await samples("samples:instance:3", 2)
    assert await samples(store.FLEET, 2)
    heard = [await asyncio.wait_for(layer.receive(channel), 5) for _number in range(2)]
    assert {message["topic"] for message in heard} == {"metrics:7", "metrics"}
    assert heard[0]["type"] == "topic.samples"
    assert selectors.is_alive()
    totals = await asyncio.to_thread(selectors.totals)
    assert totals is not None
    assert totals["slots"] == 4


async def test_a_slow_and_a_dead_server_delay_nobody(telemetry: Any, engine: Start) -> None:
    quick, slow = await engine(), await engine(delay=30.0)
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        dead = f"http://127.0.0.1:{closed.getsockname()[1]}/metrics"
        scraper = telemetry(
            [target(quick.url, 1, 1), target(slow.url, 2, 2), target(dead, 3, 3)],
        )
        started = time.monotonic()
        await samples("samples:deployment:1", 8)
        assert time.monotonic() - started < 5.0
        # That they are lost is told, and nothing else of them.
        for deployment in (2, 3):
            found = (await samples(f"samples:deployment:{deployment}"))[-1]
            told = {name: value for name, value in found.items() if value is not None and name != "at"}
            assert told == {"targets": 1, "targets_lost": 1}
        # Asked less often the longer it is silent.
        await aeventually(lambda: scraper.scrapes[3].failures >= 4)
        assert scraper.scrapes[3]._pause() >= 0.4
        assert (await samples(store.FLEET))[-1]["targets_lost"] == 2


async def test_a_deployment_of_two_servers_is_their_sum(telemetry: Any, engine: Start) -> None:
    one, other = await engine(), await engine()
    telemetry([target(one.url, 1, 1), target(other.url, 2, 1)])
    await samples("samples:instance:1", 2)
    await samples("samples:instance:2", 2)
    found = (await samples("samples:deployment:1", 4))[-1]
    assert found["slots"] == 8
    assert found["requests_running"] == 4
    assert found["kv_use"] == 0.1


async def test_a_server_that_errs_gives_a_gap_and_comes_back(telemetry: Any, engine: Start) -> None:
    server = await engine()
    telemetry([target(server.url)])
    before = len(await samples("samples:deployment:1", 2))
    server.status = 500
    await aeventually(lambda: server.scrapes > before + 4)
    gap_from = time.time()
    server.status = 200
    await aeventually(lambda: (store.newest("samples:deployment:1", 5.0) or {}).get("slots") is not None)
    found = await samples("samples:deployment:1", before + 3)
    told = [sample for sample in found if sample["requests_running"] is not None]
    longest = max(b["at"] - a["at"] for a, b in itertools.pairwise(told))
    assert longest > 0.15
    assert told[-1]["at"] > gap_from
    lost = [sample for sample in found if sample["targets_lost"]]
    assert lost
    assert all(sample["slots"] is None for sample in lost)


async def test_what_is_no_exposition_is_survived(telemetry: Any, engine: Start) -> None:
    server = await engine(body=lambda requests: "\x00\xff <html> { }}} not metrics \n" * 50)
    scraper = telemetry([target(server.url)])
    found = (await samples("samples:deployment:1", 2))[-1]
    told = {name for name, value in found.items() if value is not None}
    assert told == {"at", "targets", "targets_lost", "scrape_seconds", "unreadable_lines"}
    assert found["targets_lost"] == 0
    assert scraper.scrapes[1].failures == 0


async def test_servers_come_and_go_with_their_rows(telemetry: Any, engine: Start) -> None:
    one, other = await engine(), await engine()
    targets = [target(one.url, 1, 1)]
    scraper = telemetry(targets)
    await samples("samples:deployment:1")
    targets[:] = [target(other.url, 2, 2)]
    await samples("samples:deployment:2")
    assert set(scraper.scrapes) == {2}
    asked = one.scrapes
    await samples("samples:deployment:2", 4)
    assert one.scrapes == asked


async def test_redis_away_is_a_gap_and_nothing_more(
    telemetry: Any, engine: Start, redis_server: Any, caplog: pytest.LogCaptureFixture
) -> None:
    server = await engine()
    telemetry([target(server.url)])
    await samples("samples:deployment:1", 2)
    await asyncio.to_thread(redis_server.stop)
    scrapes = server.scrapes
    await aeventually(lambda: server.scrapes > scrapes + 3)
    assert await asyncio.to_thread(selectors.totals) is None
    assert await asyncio.to_thread(selectors.is_alive) is None
    await asyncio.to_thread(redis_server.start)
    await samples("samples:deployment:1", 2)
    assert "Samples are not kept" in caplog.text


async def test_process_and_history(telemetry: Any, engine: Start) -> None:
    server = await engine()
    me = psutil.Process(os.getpid())
    telemetry([target(server.url, pid=me.pid, created=started(me.pid))])
    found = (await samples("samples:deployment:1", 3))[-1]
    assert found["rss_bytes"] > 10_000_000
    assert 0 <= found["cpu_use"] <= 1.5
    history = await asyncio.to_thread(selectors.history, 1, 60, 2)
    assert 1 <= len(history) <= 2
    since = found["at"]
    assert all(s["at"] > since for s in await asyncio.to_thread(selectors.missed, 1, since))
    assert await asyncio.to_thread(selectors.missed, 1, None)


def test_a_reused_pid_is_not_measured() -> None:
    me = psutil.Process(os.getpid())
    gauge = devices.ProcessGauge(me.pid, started(me.pid) - 500)
    assert gauge.read() == {"cpu_use": None, "rss_bytes": None}
    assert devices.ProcessGauge(2**22 + 1, None).read() == {"cpu_use": None, "rss_bytes": None}


def test_gpus_without_a_driver_are_null(monkeypatch: pytest.MonkeyPatch) -> None:
    import pynvml

    asked: list[int] = []

    def broken() -> None:
        asked.append(1)
        raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)

    monkeypatch.setattr(pynvml, "nvmlInit", broken)
    gpus = devices.Gpus()
    assert gpus.read({"GPU-1"}) == {}
    assert gpus.read({"GPU-1"}) == {}
    assert len(asked) == 1
    assert gpus.read(set()) == {}


def test_readings_of_shared_and_several_gpus() -> None:
    found = devices.merged(
        [{"cpu_use": 0.1, "rss_bytes": 5.0}, {"cpu_use": None, "rss_bytes": 7.0}],
        [
            {"gpu_use": 0.2, "gpu_memory_used_bytes": 10.0, "gpu_power_watts": None},
            {"gpu_use": 0.6, "gpu_memory_used_bytes": 30.0, "gpu_power_watts": 100.0},
        ],
    )
    assert {name: value for name, value in found.items() if value is not None} == {
        "cpu_use": 0.1,
        "rss_bytes": 12.0,
        "gpu_use": 0.4,
        "gpu_memory_used_bytes": 40.0,
        "gpu_power_watts": 100.0,
    }
    assert devices.merged([], [])["gpu_use"] is None


async def test_the_process_runs_chores_and_ends(
    transactional_db: None, redis_server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from apps.telemetry import chores

    calls: list[int] = []

    def chore() -> None:
        calls.append(1)
        raise ZeroDivisionError  # one that fails is logged and called again

    monkeypatch.setattr(chores, "_chores", {})
    chores.register("count", 0.01, chore)
    stop = asyncio.Event()
    running = asyncio.create_task(process.run(stop))
    await aeventually(lambda: len(calls) >= 3)
    stop.set()
    await asyncio.wait_for(running, 5)
