"""The benchmark's arithmetic, its loop against a server on loopback, and a short run of the whole."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import dataclasses
import itertools
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web

from benchmarks import batching, batching_fields, batching_report, closed_loop, open_loop
from benchmarks.batching_report import Turn
from benchmarks.closed_loop import Ask
from benchmarks.serving import ServerProblem
from tests.support.triton import find_gguf
from tests.support.triton import find_installation as find_values


def turn(strategy: batching.Strategy, tokens: float) -> Turn:
    return Turn(strategy, 1.0, tokens, 2.0, 3.0, 0.5, 0.6, 0.01, 0.02, 10, {"1": 0.25, "16": 0.75})


def options(*arguments: str) -> argparse.Namespace:
    return batching._parser().parse_args(arguments)


def test_ratios_are_of_neighbours() -> None:
    turns = [turn("none", 100), turn("inflight", 210), turn("none", 50), turn("inflight", 110)]
    assert batching_report.ratios(turns, "none") == pytest.approx([2.1, 2.2])
    assert batching_report.ratios(turns, "static") == []


def test_shares_of_steps_between_two_readings() -> None:
    before = {"1": 10.0, "2": 10.0, "16": 12.0, "+Inf": 12.0}
    after = {"1": 12.0, "2": 12.0, "16": 20.0, "+Inf": 20.0}
    assert batching.shares(before, after) == {"1": 0.25, "16": 0.75}
    assert batching.shares(after, after) == {}


def test_buckets_are_read_from_the_metrics_text() -> None:
    text = (
        'inflight_batch_size_count{model="demo",version="1"} 3\n'
        'inflight_batch_size_bucket{model="demo",version="1",le="1"} 1\n'
        'inflight_batch_size_bucket{model="demo",version="1",le="+Inf"} 3\n'
        'inflight_itl_seconds_bucket{model="demo",version="1",le="1"} 9\n'
    )
    assert batching.batch_buckets(text) == {"1": 1.0, "+Inf": 3.0}


def test_pieces_are_read_together_and_broken_ones_refused(tmp_path: Path) -> None:
    piece = tmp_path / "1.json"
    piece.write_text(json.dumps([dataclasses.asdict(turn("none", 100))]))
    assert batching.read_turns([piece, piece]) == [turn("none", 100)] * 2
    piece.write_text('[{"strategy": "none"}]')
    with pytest.raises(ServerProblem, match="cannot be read"):
        batching.read_turns([piece])


def test_the_table_of_fields_says_what_does_not_act() -> None:
    rows = [
        batching_fields.Row("delay", "0", "3%", True),
        batching_fields.Row("delay", "300 000", "2%", False),
    ]
    lines = batching_fields.table(rows).splitlines()
    assert (lines[2].endswith("| yes |"), lines[3].endswith("| **no** |")) == (True, True)
    seen = [
        batching_fields.Seen(1.0, None, ""),
        batching_fields.Seen(3.0, None, ""),
        batching_fields.Seen(None, "overloaded", "x"),
    ]
    assert (batching_fields.p50(seen), len(batching_fields.refused(seen))) == (2.0, 1)
    assert batching_fields.full({"3.0": 0.25, "4": 0.75}, 4) == 0.75


def test_the_report_names_ratio_machine_and_command(tmp_path: Path) -> None:
    engine = tmp_path / "model.gguf"
    engine.write_bytes(b"GGUF")
    turns = [turn("none", 100), turn("inflight", 210)]
    turns.append(dataclasses.replace(turns[0], arrivals=0.7, unfinished=3))
    text = batching_report.report(turns, 0.7) + batching.conditions(engine, turns, options("--repeats", "1"))
    assert "Poisson arrivals at 70%" in text
    assert "| 3 |" in text
    assert "| inflight | 1.00 | 210.0 | 2.00 s |" in text
    assert "2.10 times" in text
    assert "| none | 25% | 75% |" in text
    assert "python -m benchmarks.batching --repeats 1`" in text
    assert str(tmp_path) not in text


def test_the_workload_repeats_with_its_seed() -> None:
    first, second = (list(itertools.islice(closed_loop.workload(4, 8, 128), 200)) for _ in range(2))
    assert first == second
    assert min(ask.tokens for ask in first) < 16
    assert max(ask.tokens for ask in first) > 120
    assert all(8 <= ask.tokens <= 128 for ask in first)


async def serve_tokens(request: web.Request) -> web.StreamResponse:
    wanted = (await request.json())["max_tokens"]
    response = web.StreamResponse()
    await response.prepare(request)
    for _ in range(wanted):
        await response.write(b'data: {"text_output":"x","token_count":1}\n\n')
        await asyncio.sleep(0.001)
    return response


async def serve_error(request: web.Request) -> web.StreamResponse:
    return web.Response(text='data: {"error":"boom"}\n\n', status=400)


async def test_arrivals_wait_for_nobody_and_count_from_when_they_were_due() -> None:
    async with served(serve_tokens) as url:
        asks = itertools.cycle([Ask("a", 3), Ask("b", 900)])
        found = await open_loop.run(url, asks, rate=40.0, seconds=0.5, grace=0.3, seed=3)
    assert found.due == len(found.latencies) + found.unfinished
    assert found.unfinished > 0
    assert found.latencies
    assert all(first <= whole for first, whole in zip(found.first_tokens, found.latencies, strict=True))


@contextlib.asynccontextmanager
async def served(handler: object) -> AsyncIterator[str]:
    """The handler behind the model's address on loopback."""
    app = web.Application()
    app.router.add_post("/generate_stream", handler)  # type: ignore[arg-type]
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    port = runner.addresses[0][1]
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        await runner.cleanup()


async def drive(handler: object, asks: list[Ask]) -> closed_loop.Window:
    async with served(handler) as url:
        return await closed_loop.run(url, itertools.cycle(asks), 4, 5.0, 0.3)


async def test_the_loop_counts_tokens_and_latencies_of_its_window_only() -> None:
    window = await drive(serve_tokens, [Ask("a", 3), Ask("b", 7)])
    assert window.latencies
    assert window.tokens > len(window.latencies)
    assert len(window.first_tokens) > 0
    assert all(0 < value < 5 for value in (*window.latencies, *window.first_tokens, *window.gaps))


async def test_an_error_of_the_server_ends_the_run_with_its_words() -> None:
    with pytest.raises(RuntimeError, match="boom"):
        await asyncio.wait_for(drive(serve_error, [Ask("a", 3)]), 20)


def test_without_an_engine_it_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INFLIGHT_HOME", str(tmp_path))
    with pytest.raises(ServerProblem, match="--engine"):
        batching.find_engine()
    folder = tmp_path / "engines/abc"
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_text('{"quantization": "F16"}')
    (folder / "model.gguf").write_bytes(b"GGUF")
    assert batching.find_engine() == folder / "model.gguf"


@pytest.mark.slow
@pytest.mark.triton
@pytest.mark.timeout(240)
def test_a_short_run_of_the_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in find_values().values.items():
        monkeypatch.setenv(name, value)
    figures = tmp_path / "figures.json"
    chosen = {"--clients": 4, "--slots": 4, "--least": 4, "--most": 8, "--repeats": 1, "--seconds": 2}
    arguments = [str(part) for option in chosen.items() for part in option] + ["--only", "none", "inflight"]
    assert batching.main([*arguments, "--engine", str(find_gguf()), "--json", str(figures)]) == 0
    turns = json.loads(figures.read_text())
    assert [turn["strategy"] for turn in turns] == ["none", "inflight"] * 2
    assert [turn["arrivals"] is None for turn in turns] == [True] * 2 + [False] * 2
    assert set(turns[0]["batches"]) == {"1"}
    assert max(map(float, turns[1]["batches"])) == 4
    assert "| none |" in capsys.readouterr().out
