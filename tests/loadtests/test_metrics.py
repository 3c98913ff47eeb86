"""Metric definitions: tokens and not messages, moments of being due, what counts and what does not."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from apps.loadtests.domain import metrics, records
from apps.loadtests.domain.metrics import Slo, Window
from apps.loadtests.domain.records import ERROR, REJECTED, UNFINISHED, Record

CASE = Path(__file__).resolve().parents[1] / "data/cases/67-a-chunk-is-not-a-token"


def test_case_67() -> None:
    given = json.loads((CASE / "input.json").read_text())
    expected = json.loads((CASE / "expected.json").read_text())
    found = metrics.of_request(records.of_chunks(given["start_ms"], given["chunks"]))
    assert found.tokens == expected["tokens"]
    assert found.tpot == pytest.approx(expected["tpot_ms"])
    assert found.mean_chunk_gap == pytest.approx(expected["mean_chunk_gap_ms"])
    assert found.ttft == expected["ttft_ms"]


@pytest.mark.parametrize(
    ("chunks", "tokens", "ttft", "tpot", "total"),
    [
        pytest.param(
            [[50, 0], [100, 1], [120, 1]], None, 100, 20, 2, id="an empty first message is no first token"
        ),
        pytest.param(
            [[100, 1], [120, 1], [500, 0]], None, 100, 20, 2, id="an empty last message is no last token"
        ),
        pytest.param(
            [[100, 1], [120, 0], [140, 2]], None, 100, 20, 3, id="text held back comes with later tokens"
        ),
        pytest.param(
            [[100, None, "a"], [130, None, ""], [160, None, "b"]], 7, 100, 10, 7, id="the usage counts"
        ),
        pytest.param(
            [[100, None, "a"], [160, None, "b"]], None, 100, None, None, id="nobody counted: absent"
        ),
        pytest.param([[100, 1]], None, 100, None, 1, id="one token has no gap"),
        pytest.param([[100, 5]], None, 100, None, 5, id="all in one message: no time between them is known"),
        pytest.param([], None, None, None, 0, id="an empty answer has no first token"),
    ],
)
def test_one_request(
    chunks: list[list[object]], tokens: int | None, ttft: float | None, tpot: float | None, total: int | None
) -> None:
    found = metrics.of_request(records.of_chunks(0, chunks, tokens=tokens))
    assert (found.ttft, found.tokens) == (ttft, total)
    assert found.tpot == (pytest.approx(tpot) if tpot is not None else None)


def _stream(
    due: float, first: float, gap: float, tokens: int, *, late: float = 0.0, **more: object
) -> Record:
    times = tuple(first + gap * index for index in range(tokens))
    values = {"counts": (1,) * tokens, "tokens": tokens, "ended": times[-1] if times else due, **more}
    return Record(due=due, sent=due + late, arrivals=times, **values)  # type: ignore[arg-type]


def test_what_was_cut_off_before_its_usage_came_still_counts_what_arrived() -> None:
    whole = Record(0, 0, arrivals=(1.0, 2.0), counts=None, tokens=6, ended=2.0)
    cut = Record(0, 0, arrivals=(1.5,), counts=None, ended=3.0, result=UNFINISHED)
    found = metrics.arrived_tokens(records.columns([whole, cut]))
    assert found is not None
    assert found[1].tolist() == [3.0, 3.0, 3.0]
    assert metrics.arrived_tokens(records.columns([cut])) is None


def test_latency_counts_from_the_moment_a_request_was_due() -> None:
    data = records.columns([_stream(1.0, 1.5, 0.1, 3, late=0.2)])
    found = metrics.summarise(data, Window(0, 10), "open")
    assert found["ttft_p50_ms"] == pytest.approx(500)
    assert found["service_ttft_p50_ms"] == pytest.approx(300)
    assert found["latency_p50_ms"] == pytest.approx(700)


def test_errors_and_refusals_are_no_latencies_and_no_requests_per_second() -> None:
    rows = [
        _stream(1, 1.1, 0.1, 5),
        Record(2, 2, ended=2.001, result=REJECTED, code="overloaded"),
        Record(3, 3, ended=9, result=ERROR, code="lost"),
        Record(4, 4, arrivals=(5.0,), counts=(1,), ended=9.5, result=UNFINISHED),
        Record(5, 5, ended=6, tokens=0),
    ]
    found = metrics.summarise(records.columns(rows), Window(0, 10), "open")
    assert [found[key] for key in ("requests", "completed", "rejected", "errors", "unfinished", "empty")] == [
        5, 1, 1, 1, 1, 1,
    ]  # fmt: skip
    assert found["requests_per_second"] == pytest.approx(0.1)
    assert found["latency_mean_ms"] == pytest.approx(500)
    # What arrived of the unfinished one was made all the same.
    assert found["output_tokens_per_second"] == pytest.approx(0.6)


def test_closed_loop_counts_what_ended_in_the_window_and_open_loop_what_was_due() -> None:
    data = records.columns([_stream(0.5, 0.9, 0.1, 3), _stream(1.5, 1.9, 1.0, 3)])
    window = Window(1.0, 3.0)
    assert metrics.counted(data, window, "closed").due.tolist() == [0.5]
    assert metrics.counted(data, window, "open").due.tolist() == [1.5]


def test_a_stall_inside_a_request_shows_in_the_gaps_but_not_in_tpot() -> None:
    times = [0.1 + 0.01 * index for index in range(100)] + [2.1 + 0.01 * index for index in range(2)]
    row = Record(0, 0, tuple(times), (1,) * 102, times[-1], 102)
    found = metrics.summarise(records.columns([row]), Window(0, 10), "closed")
    assert found["tpot_p99_ms"] < 25
    assert found["itl_p50_ms"] == pytest.approx(10)
    assert metrics.token_gaps(records.columns([row])).max() > 1


def test_gaps_are_of_tokens_where_a_message_has_several() -> None:
    row = Record(0, 0, (0.1, 0.14, 0.18), (1, 4, 4), 0.18, 9)
    data = records.columns([row])
    assert metrics.token_gaps(data) == pytest.approx([0.01] * 8)
    assert metrics.chunk_gaps(data) == pytest.approx([0.04, 0.04])


def test_goodput_needs_every_bound_and_every_figure() -> None:
    rows = [
        _stream(0, 0.2, 0.05, 3),
        _stream(0, 0.9, 0.05, 3),
        _stream(0, 0.2, 0.5, 3),
        _stream(0, 0.2, 0.05, 1),
        Record(0, 0, ended=0.1, result=ERROR),
    ]
    found = metrics.summarise(records.columns(rows), Window(0, 10), "closed", Slo(ttft_ms=500, tpot_ms=100))
    assert found["goodput_per_second"] == pytest.approx(0.1)
    assert found["good_share"] == pytest.approx(0.2)


def test_tokens_of_a_usage_are_spread_over_its_messages() -> None:
    row = Record(0, 0, (1.0, 3.0), None, 3.0, 10)
    found = metrics.summarise(records.columns([row]), Window(0, 2), "open")
    assert found["output_tokens_per_second"] == pytest.approx(2.5)
    assert found["itl_p50_ms"] is None


def test_nothing_is_absent_and_not_zero() -> None:
    found = metrics.summarise(records.columns([]), Window(0, 10), "open", Slo(ttft_ms=1))
    assert found["ttft_p99_ms"] is None
    assert found["goodput_per_second"] is None
    assert found["completed"] == 0


def test_a_record_survives_its_line(tmp_path: Path) -> None:
    import gzip

    rows = [
        _stream(1, 1.1, 0.1, 5, prompt_tokens=7, asked=5, step=2, index=9, turn=1),
        Record(2, 2.001, (2.5,), None, 2.5, 4, result=UNFINISHED, code="x"),
    ]
    path = tmp_path / "records.jsonl.gz"
    with gzip.open(path, "wb") as file:
        for row in rows:
            file.write(json.dumps(records.as_line(row)).encode() + b"\n")
        file.write(b'{"i": 3, "d"')
    found = list(records.read([path]))
    assert [row.counts for row in found] == [(1,) * 5, None]
    assert found[0].arrivals == pytest.approx(rows[0].arrivals)
    assert (found[0].prompt_tokens, found[0].step, found[0].turn, found[1].code) == (7, 2, 1, "x")


@pytest.mark.parametrize(
    "line", [{}, {"i": 1}, {"i": 1, "d": 0, "s": 0, "a": [1], "k": [1, 2], "e": 1, "r": "ok"}]
)
def test_a_line_that_is_no_record_is_refused(line: dict[str, object]) -> None:
    with pytest.raises((KeyError, ValueError)):
        records.of_line(line)


def test_columns_of_a_step_keep_their_arrivals() -> None:
    rows = [_stream(index, index + 0.5, 0.1, 2 + index, step=index % 2) for index in range(4)]
    found = records.columns(rows).of_step(1)
    assert found.size == 2
    assert np.bincount(found.owner).tolist() == [3, 5]
