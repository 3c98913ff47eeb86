"""Times by tokens: the public case 67, and more of its kind."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from apps.streaming.domain.timings import Timings, TimingSummary

CASE = Path(__file__).resolve().parents[1] / "data/cases/67-a-chunk-is-not-a-token"


def measured(
    chunks: list[tuple[float, int | None]], start: float = 0.0, end: float | None = None
) -> TimingSummary:
    timings = Timings(start)
    for at, tokens in chunks:
        timings.add(at, tokens)
    timings.finish(end if end is not None else (chunks[-1][0] if chunks else start))
    return timings.summary()


def test_case_67() -> None:
    case = json.loads((CASE / "input.json").read_text())
    wanted = json.loads((CASE / "expected.json").read_text())
    found = measured([(at / 1000, tokens) for at, tokens in case["chunks"]], case["start_ms"] / 1000)
    assert found.tokens == wanted["tokens"]
    assert found.tpot_ms == pytest.approx(wanted["tpot_ms"])
    assert found.mean_chunk_gap_ms == pytest.approx(wanted["mean_chunk_gap_ms"])
    assert found.ttft_ms == pytest.approx(wanted["ttft_ms"])
    assert (found.itl_p50_ms, found.itl_p99_ms) == (pytest.approx(10.0), pytest.approx(10.0))
    assert (found.chunk_gap_p50_ms, found.chunk_gap_p99_ms) == (pytest.approx(40.0), pytest.approx(40.0))


def test_held_back_characters_do_not_make_the_engine_look_slow() -> None:
    """An emoji of four tokens: three arrive without text and are counted with the fourth."""
    found = measured([(0.1, 1), (0.14, 4), (0.15, 1)])
    assert found.itl_p50_ms == pytest.approx(10.0)
    assert found.tokens_per_second == pytest.approx(5 / 0.05)


def test_messages_without_tokens_are_no_arrivals() -> None:
    found = measured([(0.1, 1), (0.15, 0), (0.2, 1)])
    assert (found.chunks, found.tokens) == (2, 2)
    assert found.mean_chunk_gap_ms == pytest.approx(100.0)


def test_one_token_has_no_gap_and_no_speed() -> None:
    found = measured([(0.1, 1)], end=0.2)
    assert found.ttft_ms == pytest.approx(100.0)
    assert found.tpot_ms is found.itl_p50_ms is found.tokens_per_second is found.mean_chunk_gap_ms is None
    assert found.output_tokens_per_second == pytest.approx(5.0)


def test_no_token_at_all_is_absent_not_zero() -> None:
    found = measured([], end=0.5)
    assert found.ttft_ms is None
    assert found.output_tokens_per_second is None
    assert (found.tokens, found.duration_ms) == (0, pytest.approx(500.0))


def test_everything_in_one_message_has_no_inter_token_latency() -> None:
    found = measured([(0.3, 20)])
    assert (found.tokens, found.tpot_ms, found.itl_p99_ms) == (20, None, None)


def test_tokens_that_nobody_counted_are_absent_while_gaps_are_known() -> None:
    found = measured([(0.1, None), (0.2, None), (0.4, None)])
    assert found.tokens is found.tpot_ms is found.itl_p50_ms is found.tokens_per_second is None
    assert found.ttft_ms == pytest.approx(100.0)
    assert found.mean_chunk_gap_ms == pytest.approx(150.0)


def test_percentiles_are_over_tokens() -> None:
    found = measured([(0.0, 1), (0.01, 1), (0.11, 2)])
    # Gaps of 10, 50 and 50 ms a token.
    assert found.itl_p50_ms == pytest.approx(50.0)
    assert found.itl_p99_ms == pytest.approx(50.0)
    assert json.loads(json.dumps(found.as_dict()))["chunks"] == 3
