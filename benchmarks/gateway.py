"""What the gateway adds to a stream, beside the straight way and beside another proxy, all on this machine.

    .venv/bin/python -m benchmarks.gateway                    # every part
    .venv/bin/python -m benchmarks.gateway --part pump        # (a) upstream: a token pump in the real Triton
    .venv/bin/python -m benchmarks.gateway --part external    # (b) upstream: a light OpenAI-style double
    .venv/bin/python -m benchmarks.gateway --part beside      # (c) the litellm proxy on the same double
    .venv/bin/python -m benchmarks.gateway --part sustained   # (c) the most streams of both
    .venv/bin/python -m benchmarks.gateway --part page        # (b) while the overview page is reloaded every second
    .venv/bin/python -m benchmarks.gateway --part transport   # HTTP generate_stream against gRPC

Keys, limits and usage are on, and a web process runs beside. "Added" is a percentile of the path minus the same of
the straight way, measured in turns; medians over the turns are printed, with the least and the most.
benchmarks/README.md has the definitions.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import statistics
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import uvloop

from benchmarks import load
from benchmarks.gateway_world import DOUBLE, GAP, PUMP, World, world
from benchmarks.stream_client import Requests, Result, Target, post, run_requests, run_streams

LADDER = (1, 2, 4, 8, 16, 32, 64, 128, 192, 256, 384, 512)
CHUNKS = 150
PUMP_TOKENS = 200
# What part (b) asks of a number of streams.
MOST_P50, MOST_P99 = 0.5, 5.0

Turn = Callable[[], Awaitable[Any]]


@dataclass
class Report:
    """Lines of a Markdown table, printed as they come, and the figures behind them."""

    rows: list[dict[str, Any]] = field(default_factory=list)

    def title(self, text: str) -> None:
        """A heading."""
        print(f"\n### {text}\n", flush=True)

    def row(self, name: str, **figures: Any) -> None:
        """One measured thing."""
        self.rows.append({"name": name, **figures})
        told = ", ".join(f"{key.replace('_', ' ')} {_told(value)}" for key, value in figures.items())
        print(f"- **{name}**: {told}", flush=True)


def _told(value: Any) -> str:
    if isinstance(value, Spread):
        return f"{value.median:.2f} ({value.least:.2f} to {value.most:.2f})"
    return f"{value:.2f}" if isinstance(value, float) else str(value)


@dataclass(frozen=True)
class Spread:
    """Median, least and most over the turns."""

    median: float
    least: float
    most: float


def spread(values: list[float]) -> Spread:
    """Of some turns' values."""
    return Spread(statistics.median(values), min(values), max(values))


async def in_turns(repeats: int, *turns: Turn) -> list[list[Any]]:
    """Every turn once, again and again: what comes and goes on the machine hits all alike."""
    found: list[list[Any]] = [[] for _ in turns]
    for _ in range(repeats):
        for place, turn in enumerate(turns):
            found[place].append(await turn())
            await asyncio.sleep(0.3)
    return found


def added(report: Report, name: str, straight: list[Result], path: list[Result]) -> dict[str, Spread]:
    """Print what the path adds; returns the figures."""
    pairs = list(zip(straight, path, strict=True))
    figures = {
        "added_p50_ms": spread([there.late_ms(50) - here.late_ms(50) for here, there in pairs]),
        "added_p99_ms": spread([there.late_ms(99) - here.late_ms(99) for here, there in pairs]),
        "added_ttft_p50_ms": spread([there.ttft_ms(50) - here.ttft_ms(50) for here, there in pairs]),
        "added_ttft_p99_ms": spread([there.ttft_ms(99) - here.ttft_ms(99) for here, there in pairs]),
    }
    report.row(
        name,
        **figures,
        straight_p99_ms=spread([one.late_ms(99) for one in straight]),
        tokens=f"{sum(one.tokens for one in path)} of {sum(one.expected for one in path)}",
        streams_stalled=sum(one.stalls for one in path),
    )
    return figures


# ---------------------------------------------------------------- requests


def straight_pump(it: World, tokens: int) -> Target:
    """Triton's own generate_stream."""
    body = json.dumps({"text_input": "hi", "max_tokens": tokens}).encode()
    return post(it.triton_port, f"/v2/models/{PUMP}/generate_stream", body)


def through(it: World, port: int, model: str, tokens: int, stream: bool = True) -> Target:
    """The same through a gateway."""
    asked: dict[str, Any] = {
        "model": model,
        "messages": [{"role": "user", "content": "Tell me a story."}],
        "stream": stream,
        "max_tokens": tokens,
        "metadata": {"chunks": tokens},
    }
    return post(port, "/v1/chat/completions", json.dumps(asked).encode(), [f"Authorization: Bearer {it.key}"])


# ---------------------------------------------------------------- parts


async def part_pump(it: World, report: Report, repeats: int) -> None:
    """(a) 64 streams of 50 tokens a second out of the real Triton."""
    report.title("(a) token pump in Triton, 64 streams x 50 tokens/s")
    for name, apart in (("starts 20 ms apart", GAP), ("simultaneous start", 0.0)):

        def turn(make: Callable[[int], Target], apart: float = apart) -> Turn:
            return lambda: run_streams(make(PUMP_TOKENS), 64, PUMP_TOKENS, GAP, apart, make(2), 30)

        straight, path = await in_turns(
            repeats,
            turn(lambda tokens: straight_pump(it, tokens)),
            turn(lambda tokens: through(it, it.gateway_port, PUMP, tokens)),
        )
        added(report, name, straight, path)


async def part_transport(it: World, report: Report, repeats: int) -> None:
    """HTTP against gRPC from Triton, in turns."""
    report.title("transport from Triton, 64 streams x 50 tokens/s, starts 20 ms apart")
    grpc_port = it.more_gateway(INFLIGHT_GATEWAY_TRANSPORT="grpc")

    def turn(make: Callable[[int], Target]) -> Turn:
        return lambda: run_streams(make(PUMP_TOKENS), 64, PUMP_TOKENS, GAP, GAP, make(2), 30)

    straight, http, grpc = await in_turns(
        repeats,
        turn(lambda tokens: straight_pump(it, tokens)),
        turn(lambda tokens: through(it, it.gateway_port, PUMP, tokens)),
        turn(lambda tokens: through(it, grpc_port, PUMP, tokens)),
    )
    added(report, "HTTP generate_stream", straight, http)
    added(report, "gRPC", straight, grpc)


def double_turn(it: World, port: int, streams: int) -> Turn:
    """A measurement on the double: starts spread over a second at most, so that all streams overlap."""
    return lambda: run_streams(
        through(it, port, DOUBLE, CHUNKS),
        streams,
        CHUNKS,
        GAP,
        min(GAP, 1.0 / streams),
        through(it, port, DOUBLE, 2),
        30,
    )


async def part_external(it: World, report: Report, repeats: int) -> None:
    """(b) the double: 128 streams, the most streams, whole answers."""
    report.title("(b) OpenAI-style double, 50 chunks/s a stream")
    straight, path = await in_turns(
        repeats, double_turn(it, it.double_port, 128), double_turn(it, it.gateway_port, 128)
    )
    added(report, "128 streams", straight, path)
    best = 0
    for streams in (one for one in LADDER if one >= 128):
        here, there = await in_turns(
            1, double_turn(it, it.double_port, streams), double_turn(it, it.gateway_port, streams)
        )
        figures = added(report, f"{streams} streams", here, there)
        holds = figures["added_p50_ms"].median <= MOST_P50 and figures["added_p99_ms"].median <= MOST_P99
        if not (holds and there[0].sustained):
            break
        best = streams
    report.row("most streams that hold p50 0.5 ms, p99 5 ms", streams=best)
    for concurrency in (1, 32):
        await whole_answers(it, report, concurrency, repeats)


async def whole_answers(it: World, report: Report, concurrency: int, repeats: int) -> None:
    """Requests that are no streams."""

    def turn(port: int) -> Turn:
        return lambda: run_requests(through(it, port, DOUBLE, 3, stream=False), concurrency, 2.0)

    straight, path = await in_turns(repeats, turn(it.double_port), turn(it.gateway_port))
    pairs: list[tuple[Requests, Requests]] = list(zip(straight, path, strict=True))
    report.row(
        f"whole answers, {concurrency} at once",
        per_second=spread([there.per_second for _here, there in pairs]),
        added_p50_ms=spread([there.ms(50) - here.ms(50) for here, there in pairs]),
        added_p99_ms=spread([there.ms(99) - here.ms(99) for here, there in pairs]),
        refused=sum(there.refused for _here, there in pairs),
    )


async def part_beside(it: World, report: Report, repeats: int) -> None:
    """(c) the litellm proxy: the most streams of both, and both at 32."""
    report.title("(c) beside the litellm proxy, on the same double")
    other = it.litellm()
    straight, ours, theirs = await in_turns(
        repeats,
        double_turn(it, it.double_port, 32),
        double_turn(it, it.gateway_port, 32),
        double_turn(it, other, 32),
    )
    added(report, "ours, 32 streams", straight, ours)
    added(report, "litellm, 32 streams", straight, theirs)


async def part_sustained(it: World, report: Report, repeats: int) -> None:
    """(c) the most streams of both on which nothing is lost and nothing stalls."""
    report.title("(c) the most streams sustained, beside the litellm proxy")
    other = it.litellm()
    for name, port in (("litellm", other), ("ours", it.gateway_port)):
        report.row(f"{name}: most streams sustained", streams=await most_sustained(it, port, repeats))


async def most_sustained(it: World, port: int, repeats: int) -> int:
    """The largest of 1, 2, 4, ... 512 streams of which most turns lose nothing and stall nowhere."""
    best = 0
    for streams in (1, 2, 4, 8, 16, 32, 64, 128, 256, 512):
        good = bad = 0
        while good * 2 <= repeats and bad * 2 <= repeats:
            result = await double_turn(it, port, streams)()
            good, bad = good + result.sustained, bad + (not result.sustained)
        if bad * 2 > repeats:
            return best
        best = streams
    return best


async def part_page(it: World, report: Report, repeats: int) -> None:
    """(b) again while somebody reloads the overview page every second."""
    report.title("(b) while the overview page is reloaded every second")
    reloads = 0
    stop = asyncio.Event()

    async def reload() -> None:
        nonlocal reloads
        while not stop.is_set():
            reloads += await asyncio.to_thread(it.reload_overview)
            await asyncio.sleep(1)

    reloading = asyncio.ensure_future(reload())
    straight, path = await in_turns(
        repeats, double_turn(it, it.double_port, 128), double_turn(it, it.gateway_port, 128)
    )
    stop.set()
    await reloading
    added(report, "128 streams", straight, path)
    report.row("the page", reloads_that_answered=reloads)


PARTS = {
    "pump": part_pump,
    "external": part_external,
    "beside": part_beside,
    "sustained": part_sustained,
    "page": part_page,
    "transport": part_transport,
}


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--part", choices=[*PARTS, "all"], default="all")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument(
        "--litellm",
        default=os.environ.get("INFLIGHT_BENCH_LITELLM", ""),
        help="its program, instead of our own environment",
    )
    parser.add_argument("--json", default="", help="write every figure to this file")
    given = parser.parse_args()
    # What it started ends with it, also where it is asked to end.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    chosen = list(PARTS) if given.part == "all" else [given.part]
    report = Report()
    with world(litellm=given.litellm, triton=bool({"pump", "transport"} & set(chosen))) as it:
        before = load.read()
        for name in chosen:
            uvloop.run(PARTS[name](it, report, given.repeats))
        print(f"\nOther programs took {load.others(before, load.read()):.0%} of the machine meanwhile.")
    if given.json:
        Path(given.json).write_text(json.dumps(report.rows, default=vars, indent=1), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
