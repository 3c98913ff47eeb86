"""A batch that ends together: who hears what, and when."""

from __future__ import annotations

import threading
import time

import pytest
from llamacpp_batch import Batch
from llamacpp_errors import InvalidRequest
from llamacpp_settings import read_settings

from tests.triton_model.fakes import KeptAnswer, make_bench, wait_for


def ended(batch: Batch) -> threading.Event:
    """Set when `wait` of the batch has returned."""
    over = threading.Event()
    threading.Thread(target=lambda: (batch.wait(), over.set()), daemon=True).start()
    return over


def test_answers_stream_at_once_and_end_with_the_longest() -> None:
    bench = make_bench(strategy="dynamic")
    batch = Batch()
    short, long = KeptAnswer(), KeptAnswer()
    for kept, prompt, tokens in ((short, "one", 2), (long, "two", 9)):
        bench.submit(batch.member(kept), prompt, max_tokens=tokens)
    batch.seal()
    over = ended(batch)
    bench.turns(4)
    assert short.tokens == 2
    assert not short.over.is_set()
    bench.until_over(short, long)
    assert (short.tokens, long.tokens) == (2, 9)
    assert short.end is not None
    assert short.end.completion_tokens == 2
    assert over.wait(5)


def test_an_error_and_a_cancelled_request_wait_for_nobody_and_are_waited_for_by_nobody() -> None:
    bench = make_bench(strategy="static")
    batch = Batch()
    kept, gone = KeptAnswer(), KeptAnswer()
    bench.submit(batch.member(kept), "one", max_tokens=3)
    job = bench.submit(batch.member(gone), "two", max_tokens=30)
    with pytest.raises(InvalidRequest):
        bench.submit(batch.member(KeptAnswer()), "", max_tokens=3)
    batch.withdraw()
    batch.seal()
    over = ended(batch)
    bench.turns(1)
    bench.engine.cancel(job)
    bench.until_over(kept, gone)
    assert gone.error is not None
    assert kept.end is not None
    assert over.wait(5)


def test_an_empty_batch_is_over_at_once() -> None:
    batch = Batch()
    batch.seal()
    assert ended(batch).wait(5)


def test_stopping_the_engine_ends_the_batch() -> None:
    bench = make_bench(strategy="dynamic")
    batch = Batch()
    kept = KeptAnswer()
    bench.submit(batch.member(kept), "one", max_tokens=50)
    batch.seal()
    over = ended(batch)
    # Steps take some time, so that the answer still runs when the engine is stopped.
    bench.runtime.before = lambda: time.sleep(0.02)
    bench.engine.start()
    wait_for(lambda: kept.deltas)
    bench.engine.stop()
    assert over.wait(5)
    assert kept.error is not None


@pytest.mark.parametrize(
    ("strategy", "running", "in_batches"),
    [("none", 1, False), ("static", 8, True), ("dynamic", 8, True), ("inflight", 8, False)],
)
def test_what_each_strategy_means(strategy: str, running: int, in_batches: bool) -> None:
    settings = read_settings({"gguf_path": "m.gguf", "strategy": strategy}, "/m")
    assert (settings.max_running, settings.in_batches) == (running, in_batches)
