"""What is stored of a load agrees with what its clients recorded, on the real server and engine."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from apps.realtime.redis_clients import close_async_client
from apps.realtime.tasks import end
from apps.serving.domain.batching import BatchingFacts
from apps.telemetry import history
from apps.telemetry.domain.batch_stats import BOUNDS
from apps.telemetry.history import Scope
from apps.telemetry.scraper import Scraper
from apps.telemetry.storage.rollups import Rollups, Storer
from apps.telemetry.target import Target
from apps.telemetry.writer import Writer
from benchmarks import closed_loop
from benchmarks.closed_loop import Span
from benchmarks.serving import RunningServer, find_installation, serve
from tests.support.triton import find_gguf
from tests.support.triton import find_installation as find_values
from tests.support.waiting import aeventually

pytestmark = [pytest.mark.triton, pytest.mark.timeout(180)]

SLOTS, CLIENTS, ANSWERS = 4, 8, 4
DEPLOYMENT = 77
WITHIN = 0.03
# Of the embedded model, in the vocabulary's milliseconds and sequences.
SECONDS = (1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000, 30_000, 60_000, 120_000)
SIZES = (1, 2, 3, 4, 6, 8, 12, 16)


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    facts = BatchingFacts("inflight", SLOTS, 512, 2, 64, 0)
    with serve(find_installation(find_values().values), find_gguf(), facts) as running:
        yield running


def agreement(name: str, stored: float, own: float, bounds: Sequence[float] = ()) -> str:
    """How two figures agree: within 3%, in the same or the next bucket, or not."""
    if abs(stored - own) <= WITHIN * abs(own):
        how = "within 3%"
    elif bounds and abs(np.searchsorted(bounds, stored) - np.searchsorted(bounds, own)) <= 1:
        how = "within one bucket"
    else:
        how = "DISAGREES"
    return f"{name:26} stored {stored:10.2f}  clients {own:10.2f}  {how}"


def test_how_agreement_is_told() -> None:
    assert "within 3%" in agreement("a", 103, 100)
    assert "within one bucket" in agreement("a", 240, 260, SECONDS)
    assert "DISAGREES" in agreement("a", 90, 600, SECONDS)
    assert "DISAGREES" in agreement("a", 104, 100)
    assert BOUNDS[-1] == 1024


def in_flight(spans: list[Span], at: float) -> int:
    """Requests that the clients had open at a moment."""
    return sum(span.sent <= at < span.done for span in spans)


def decoding(spans: list[Span]) -> float:
    """Answers that were being written at once, over all the moments in which any was: mean weighted by tokens."""
    tokens = sorted((span.first, span.done) for span in spans)
    moments = np.array([at for first, done in tokens for at in np.linspace(first, done, 20)])
    return float(np.mean([sum(first <= at <= done for first, done in tokens) for at in moments]))


async def measured(server: RunningServer, secret: Path) -> tuple[Any, list[Span], float, float]:
    """A load while telemetry runs; what the clients recorded, and the epoch seconds around it."""
    target = Target(
        1,
        "i1",
        DEPLOYMENT,
        server.metrics_url,
        statistics_url=f"{server.http_url}/v2/models/stats",
        secret_path=str(secret),
    )

    async def find() -> list[Target]:
        return [target]

    scraper, rollups = Scraper(find), Rollups()
    work = [
        asyncio.create_task(each)
        for each in (scraper.run(), Writer(scraper, rollups).run(), Storer(rollups).run())
    ]
    try:
        await aeventually(lambda: 1 in scraper.scrapes and scraper.scrapes[1].latest is not None)
        began = time.time()
        url = f"{server.http_url}/v2/models/demo"
        window, spans = await closed_loop.finish(url, closed_loop.workload(3, 10, 28), CLIENTS, ANSWERS)
        ended = time.time()
        scope, answers = Scope("deployment", DEPLOYMENT), CLIENTS * ANSWERS

        def all_there() -> bool:
            found = history.window(scope, began - 1, time.time())
            # The statistics API is asked every few seconds only, so its part comes last.
            return (found["requests"] or 0) >= answers and "triton_batch_size" in found["histograms"]

        await aeventually(lambda: asyncio.to_thread(all_there), seconds=30)
    finally:
        await end(work)
        await close_async_client()
    return window, spans, began, ended


@pytest.mark.django_db(transaction=True)
async def test_stored_figures_agree_with_the_clients(
    server: RunningServer, redis_server: Any, tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    secret.write_text(server.secret)
    window, spans, began, ended = await measured(server, secret)
    scope = Scope("deployment", DEPLOYMENT)
    total = await asyncio.to_thread(history.window, scope, began - 1, time.time())
    series = await asyncio.to_thread(history.series, scope, began + 1, ended - 1, 300)
    offset = time.time() - time.perf_counter()
    looks = [p for p in series.points if p["requests_running"] is not None]
    assert len(looks) >= 2, series
    own = [in_flight(spans, (p["at"] or 0.0) - offset) for p in looks]
    span = max(s.done for s in spans) - min(s.sent for s in spans)
    ttft = total["histograms"]["ttft"]
    first = np.array(window.first_tokens) * 1000
    told = [
        agreement("requests", total["requests"], len(spans)),
        agreement("tokens", total["generated_tokens"], window.tokens),
        agreement("tokens per second", total["generated_tokens"] / span, window.tokens / span),
        agreement("TTFT p50 (ms)", ttft["p50"], float(np.quantile(first, 0.5)), SECONDS),
        agreement("TTFT p99 (ms)", ttft["p99"], float(np.quantile(first, 0.99)), SECONDS),
        agreement(
            "running", mean(looks, "requests_running"), float(np.mean([min(SLOTS, n) for n in own])), SIZES
        ),
        agreement(
            "waiting",
            mean(looks, "requests_waiting"),
            float(np.mean([max(0, n - SLOTS) for n in own])),
            SIZES,
        ),
        agreement("executed batch", total["histograms"]["batch_size"]["mean"], decoding(spans), SIZES),
    ]
    print("\n".join(told))
    assert not [line for line in told if "DISAGREES" in line], "\n".join(told)
    assert ttft["count"] == len(spans)
    # Triton's own batcher, by the statistics API: each request was handed over once.
    assert total["histograms"]["triton_batch_size"]["p50"] <= 8
    stored = await asyncio.to_thread(history.distribution, scope, "batch_size", began - 1, time.time())
    assert stored.histogram == "batch_size"
    assert sum(map(sum, stored.counts)) == pytest.approx(total["histograms"]["batch_size"]["count"])


def mean(points: list[dict[str, float | None]], name: str) -> float:
    """Mean of the looks that saw it."""
    return float(np.mean([value for point in points if (value := point[name]) is not None]))
