"""Strategies static and dynamic in a real tritonserver with a real small LLM: batches form, and end together."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Iterator

import pytest

from apps.serving.domain.batching import BatchingFacts
from apps.serving.domain.priority_classes import PriorityClass
from apps.serving.domain.priority_reach import LEVELS
from apps.streaming.triton_grpc import TritonGrpcSource
from benchmarks.serving import RunningServer, find_installation, serve
from tests.support.triton import find_gguf
from tests.support.triton import find_installation as find_values
from tests.triton_model.test_server import Answer, ask, chat, endpoint, error_code, sample, until

pytestmark = [pytest.mark.triton, pytest.mark.timeout(240)]
SIZE = re.compile(r'^inflight_batch_size_bucket\{.*le="([0-9.]+)"\} (\S+)$', re.MULTILINE)
PENDING = re.compile(r"^nv_inference_pending_request_count\{.*\} (\S+)$", re.MULTILINE)
COUNTING = "Count from one to fifty in words."


@pytest.fixture(scope="module", params=["static", "dynamic"])
def server(request: pytest.FixtureRequest) -> Iterator[RunningServer]:
    """Three slots and one request that may wait beyond them; dynamic waits 300 ms for company."""
    delay = 300_000 if request.param == "dynamic" else 0
    classes = tuple(PriorityClass(name) for name in LEVELS)
    facts = BatchingFacts(
        request.param, 3, 512, 2, 1, delay, priority_classes=classes, default_priority_level=2
    )
    with serve(find_installation(find_values().values), find_gguf(), facts) as running:
        yield running


async def together(server: RunningServer, lengths: list[int]) -> list[tuple[Answer, float, float]]:
    """Ask at the same moment; each answer with the seconds to its first token and to its end."""
    source = TritonGrpcSource(endpoint(server))

    async def one(tokens: int) -> tuple[Answer, float, float]:
        began = time.perf_counter()
        answer = await ask(source, chat(COUNTING), max_tokens=tokens, min_tokens=tokens)
        ended = time.perf_counter() - began
        return answer, answer.deltas[0].at - began if answer.deltas else ended, ended

    try:
        return list(await asyncio.gather(*(one(tokens) for tokens in lengths)))
    finally:
        await source.close()


async def test_a_batch_runs_together_and_ends_together(server: RunningServer) -> None:
    answers = await together(server, [4, 16, 48])
    assert [answer.tokens for answer, _, _ in answers] == [4, 16, 48]
    ends = [end for _, _, end in answers]
    texts = [answer.deltas[-1].at for answer, _, _ in answers]
    # The short answer's text was there long before its end.
    assert max(ends) - min(ends) < 0.5 * max(ends)
    assert texts[0] < texts[2]
    counts = {float(bound): float(count) for bound, count in SIZE.findall(server.metrics())}
    assert counts[3.0] > counts[2.0] > 0


async def test_what_triton_cannot_keep_waiting_is_refused_as_overload(server: RunningServer) -> None:
    answers = await together(server, [40] * 24)
    refused = [answer for answer, _, _ in answers if answer.end and answer.end.error]
    assert {error_code(answer) for answer in refused} == {"overloaded"}
    assert sum(answer.tokens for answer, _, _ in answers if answer not in refused) > 0


async def test_a_request_of_a_higher_class_gets_into_the_next_batch(server: RunningServer) -> None:
    source = TritonGrpcSource(endpoint(server))

    def pending() -> float:
        found = PENDING.search(server.metrics())
        return float(found[1]) if found else 0.0

    async def three(priority: int, tokens: int = 2) -> list[float]:
        asked = (
            ask(source, chat(COUNTING), priority, max_tokens=tokens, min_tokens=tokens) for _ in range(3)
        )
        answers = await asyncio.gather(*asked)
        assert not [answer.end.error for answer in answers if answer.end and answer.end.error]
        return [answer.deltas[0].at for answer in answers]

    try:
        busy = asyncio.create_task(three(2, 60))
        await until(lambda: sample(server.metrics(), "inflight_requests_running") == 3.0)
        low = asyncio.create_task(three(3))
        await until(lambda: pending() == 3.0)
        high = asyncio.create_task(three(1))
        await busy
        assert max(await high) < min(await low)
    finally:
        await source.close()


async def test_a_request_that_is_cancelled_frees_the_batch(server: RunningServer) -> None:
    source = TritonGrpcSource(endpoint(server))
    try:
        task = asyncio.create_task(ask(source, chat(COUNTING), max_tokens=300, min_tokens=300))
        await asyncio.sleep(1.5)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        began = time.perf_counter()
        answer = await ask(source, chat(COUNTING), max_tokens=2, min_tokens=2)
        assert answer.tokens == 2
        assert time.perf_counter() - began < 30
    finally:
        await source.close()
