"""The advisor on figures of the real server and engine: under load it speaks, with one client it is content."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterator
from typing import Any

import pytest

from apps.control.domain.advice.figures import Figures, Sample
from apps.control.domain.advice.outcome import Advice, Outcome, Subject
from apps.control.domain.advice.rulebook import opinion
from apps.serving.domain.batching import BatchingFacts
from apps.telemetry.domain import derive, prometheus, reading
from apps.telemetry.domain.interval import Window, interval
from benchmarks import closed_loop
from benchmarks.serving import MODEL, RunningServer, find_installation, serve
from tests.control.scenarios import PROFILE
from tests.support.triton import find_gguf
from tests.support.triton import find_installation as find_values

pytestmark = [pytest.mark.triton, pytest.mark.timeout(120)]

SLOTS = 2
# As many looks as the rules want seconds, each a tenth of one apart: a minute of samples out of seconds of load.
LOOKS, PAUSE = 70, 0.1


@contextlib.contextmanager
def running(strategy: str) -> Iterator[RunningServer]:
    facts = BatchingFacts(strategy, SLOTS if strategy == "inflight" else 1, 512, 2, 64, 0)  # type: ignore[arg-type]
    with serve(find_installation(find_values().values), find_gguf(), facts) as server:
        yield server


async def figures(server: RunningServer, clients: int) -> Figures:
    """What the engine tells while so many clients ask, laid one second apart."""
    url = f"{server.http_url}/v2/models/{MODEL}"
    load = asyncio.create_task(closed_loop.finish(url, closed_loop.workload(3, 10, 28), clients, 1000))
    try:
        samples = await asyncio.to_thread(_looks, server)
    finally:
        load.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await load
    assert len(samples) >= 60, load
    return Figures(0.0, float(len(samples)), tuple(samples))


def _looks(server: RunningServer) -> list[Sample]:
    window, before, found = Window(), None, []
    # The first requests are on their way.
    deadline = time.monotonic() + 10
    while not _read(server, 0.0).figures.gauges.get("requests_running"):
        assert time.monotonic() < deadline, "no request reached the engine"
        time.sleep(0.02)
    for number in range(LOOKS):
        now = _read(server, float(number))
        if before is not None:
            found.append(derive.sample(float(number), interval(now, before, window)))
        before = now
        time.sleep(PAUSE)
    return found


def _read(server: RunningServer, at: float) -> Any:
    return reading.read(prometheus.parse(server.metrics()), at)


def said(rule: str, strategy: str, told: Figures) -> Outcome:
    profile = {**PROFILE, "strategy": strategy, "max_batch_size": SLOTS, "max_seq_len": 512}
    subject = Subject(batching=profile, builder="llamacpp", device="cpu", reuse=True, chunked_context=True)
    return next(each for each in opinion(subject, told).outcomes if each.id == rule)


async def test_slots_that_are_always_full() -> None:
    with running("inflight") as server:
        busy, calm = await figures(server, clients=8), await figures(server, clients=1)
    found = said("batch_size_always_full", "inflight", busy)
    assert isinstance(found, Advice), (found, busy.mean("requests_running"), busy.mean("requests_waiting"))
    assert found.change is not None
    assert (found.change.before, found.change.after) == (2, 4)
    waiting = next(each for each in found.evidence if each.key == "requests_waiting")
    assert waiting.value == pytest.approx(8 - SLOTS, abs=1.5)
    assert not isinstance(said("batch_size_always_full", "inflight", calm), Advice)


@pytest.mark.slow
async def test_requests_that_wait_for_an_engine_without_batching() -> None:
    with running("none") as server:
        busy, calm = await figures(server, clients=4), await figures(server, clients=1)
    found = said("no_batching_while_waiting", "none", busy)
    assert isinstance(found, Advice), (found, busy.mean("requests_waiting"))
    assert found.change is not None
    assert found.change.after == "inflight"
    assert not isinstance(said("no_batching_while_waiting", "none", calm), Advice)
