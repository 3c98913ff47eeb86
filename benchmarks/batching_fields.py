"""Each field of a batching profile that acts on the embedded engine, and what changes when it does.

    .venv/bin/python -m benchmarks.batching_fields --engine PATH.gguf

One row a field: the same workload with two values of it. `--only delay priority ...` measures some of them. Exits 1
where a field does not change what it should.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import itertools
import signal
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from django.conf import settings

from apps.serving.domain.batching import BatchingFacts, Strategy
from apps.serving.domain.priority_classes import PriorityClass
from apps.serving.domain.priority_reach import LEVELS
from apps.streaming.token_source import Endpoint, GenerationRequest, SamplingParams, StreamEnd, TokenDelta
from apps.streaming.triton_grpc import TritonGrpcSource
from benchmarks import closed_loop
from benchmarks.batching import batch_buckets, find_engine, machine, shares
from benchmarks.serving import MODEL, RunningServer, ServerProblem, find_installation, serve

CLASSES = tuple(PriorityClass(name) for name in LEVELS)
PLAIN = BatchingFacts("dynamic", 4, 512, 0, 64, 0)
BOTH: tuple[Strategy, ...] = ("dynamic", "inflight")
TOKENS = 16
# What a refusal must be called for a client to know that it may try again.
OVERLOADED = "overloaded"


@dataclass(frozen=True, slots=True)
class Seen:
    """One answer: seconds from asking to the first token (None: none came) and the code of its error, if any."""

    ttft: float | None
    error: str | None
    sentence: str


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table."""

    field: str
    setting: str
    figure: str
    holds: bool


Measure = Callable[["Bench"], list[Row]]


class Bench:
    """Starts a server for each setting; `ask` sends requests to it."""

    def __init__(self, engine: Path) -> None:
        self.engine = engine
        self.installation = find_installation()

    def run(self, facts: BatchingFacts, work: Callable[[RunningServer], object]) -> object:
        """Do `work` with a server of these settings."""
        with serve(self.installation, self.engine, facts) as server:
            asyncio.run(ask_all(server, 1, tokens=2))
            return work(server)


async def ask_all(
    server: RunningServer, count: int, tokens: int = TOKENS, priority: int | None = None, apart: float = 0.0
) -> list[Seen]:
    """So many requests, `apart` seconds between their beginnings."""
    source = TritonGrpcSource(Endpoint(server.http_url, server.grpc_url, MODEL))
    try:
        return list(
            await asyncio.gather(*(_one(source, tokens, priority, index * apart) for index in range(count)))
        )
    finally:
        await source.close()


async def _one(source: TritonGrpcSource, tokens: int, priority: int | None, after: float) -> Seen:
    await asyncio.sleep(after)
    ask = next(closed_loop.workload(1, tokens, tokens))
    params = SamplingParams(max_tokens=tokens, min_tokens=tokens)
    began, first, end = time.perf_counter(), None, None
    async for event in source.stream(GenerationRequest(ask.prompt, params, priority=priority)):
        if isinstance(event, TokenDelta):
            first = first or event.at
        elif isinstance(event, StreamEnd):
            end = event
    error = end.error if end is not None else None
    return Seen(
        first - began if first else None, error.code if error else None, error.sentence if error else ""
    )


def p50(seen: Sequence[Seen]) -> float:
    """Median time to the first token of those that were answered."""
    return statistics.median(one.ttft for one in seen if one.ttft is not None)


def refused(seen: Sequence[Seen]) -> list[Seen]:
    """Those that were refused."""
    return [one for one in seen if one.error]


def batches(server: RunningServer, work: Callable[[], object]) -> dict[str, float]:
    """Share of the engine's steps by how many sequences they held, while `work` ran."""
    before = batch_buckets(server.metrics())
    work()
    return shares(before, batch_buckets(server.metrics()))


def full(found: dict[str, float], size: int) -> float:
    """Share of the steps with exactly `size` sequences."""
    return found.get(f"{size:g}", found.get(f"{float(size)}", 0.0))


def delay(bench: Bench) -> list[Row]:
    """Four requests 50 ms apart, each alone on an idle server: with a delay they are computed together."""

    def work(server: RunningServer) -> dict[str, float]:
        return batches(server, lambda: asyncio.run(ask_all(server, 4, apart=0.05)))

    found = [
        bench.run(dataclasses.replace(PLAIN, queue_delay_microseconds=value), work) for value in (0, 300_000)
    ]
    together = [full(one, 4) for one in found if isinstance(one, dict)]
    return [
        Row("max_queue_delay_microseconds", setting, f"{share:.0%} of the steps held all four", holds)
        for setting, share, holds in zip(
            ("0", "300 000"), together, (together[0] < 0.5, together[1] > 0.5), strict=True
        )
    ]


def preferred(bench: Bench) -> list[Row]:
    """Two requests at once and a delay of two seconds: a preferred size of 2 sends them without waiting."""

    def work(server: RunningServer) -> float:
        return p50(asyncio.run(ask_all(server, 2)))

    waiting = dataclasses.replace(PLAIN, queue_delay_microseconds=2_000_000)
    found = [
        bench.run(dataclasses.replace(waiting, preferred_batch_sizes=sizes), work) for sizes in ((), (2,))
    ]
    without, with_it = (float(str(one)) for one in found)
    return [
        Row("preferred_batch_sizes", "none", f"TTFT {without:.2f} s", without > 1.5),
        Row("preferred_batch_sizes", "2", f"TTFT {with_it:.2f} s", with_it < 1.0),
    ]


def batch_size(bench: Bench) -> list[Row]:
    """Eight requests at once: at most so many are computed together."""

    def work(server: RunningServer) -> dict[str, float]:
        return batches(server, lambda: asyncio.run(ask_all(server, 8)))

    rows = []
    for strategy, size in itertools.product(BOTH, (2, 8)):
        facts = dataclasses.replace(PLAIN, strategy=strategy, slots=size, queue_delay_microseconds=100_000)
        found = bench.run(facts, work)
        share = full(found, size) if isinstance(found, dict) else 0.0
        most = max((float(bound) for bound in found), default=0.0) if isinstance(found, dict) else 0.0
        rows.append(
            Row(
                f"max_batch_size ({strategy})",
                str(size),
                f"{share:.0%} of the steps held {size}, none more than {most:g}",
                share > 0.5 and most <= size,
            )
        )
    return rows


def priority(bench: Bench) -> list[Row]:
    """Saturated with requests of the low class, one in five is of the high one: whose first token comes sooner?"""
    rows = []
    for strategy in BOTH:
        facts = dataclasses.replace(
            PLAIN,
            strategy=strategy,
            slots=4,
            max_queue_size=256,
            priority_classes=CLASSES,
            default_priority_level=2,
        )
        found = bench.run(facts, lambda server: asyncio.run(_saturated(server)))
        high, low = found if isinstance(found, tuple) else (0.0, 0.0)
        rows.append(
            Row(
                f"priority ({strategy})",
                "high / low",
                f"p50 TTFT {high:.2f} s / {low:.2f} s, {high / low:.2f} of it",
                high <= low / 3,
            )
        )
    return rows


async def _saturated(server: RunningServer, clients: int = 40, seconds: float = 18.0) -> tuple[float, float]:
    """Closed loops of low requests that fill the queue, and a few high ones beside them: p50 TTFT of each."""
    seen: dict[int, list[Seen]] = {1: [], 3: []}
    source = TritonGrpcSource(Endpoint(server.http_url, server.grpc_url, MODEL))
    until = time.perf_counter() + seconds

    async def loop(level: int) -> None:
        while time.perf_counter() < until:
            seen[level].append(await _one(source, 24, level, 0.0))

    try:
        await asyncio.gather(*(loop(3) for _ in range(clients)), *(loop(1) for _ in range(2)))
    finally:
        await source.close()
    return p50(seen[1]), p50(seen[3])


def queue_size(bench: Bench) -> list[Row]:
    """Sixteen requests at once into a queue: what does not fit is refused at once, in words."""
    rows = []
    for strategy, size in itertools.product(BOTH, (2, 64)):
        facts = dataclasses.replace(PLAIN, strategy=strategy, slots=2, max_queue_size=size)
        seen = bench.run(facts, lambda server: asyncio.run(ask_all(server, 16)))
        gone = refused(seen if isinstance(seen, list) else [])
        said = gone[0].sentence if gone else ""
        figure = f"{len(gone)} of 16 refused" + (f" ({gone[0].error}: {said})" if gone else "")
        explained = all(one.error == OVERLOADED and one.sentence for one in gone)
        rows.append(
            Row(f"max_queue_size ({strategy})", str(size), figure, bool(gone) == (size == 2) and explained)
        )
    return rows


def queue_timeout(bench: Bench) -> list[Row]:
    """Twelve requests for two slots, each batch a second or so: with a timeout the last ones are refused."""
    rows = []
    for value in (0, 500_000):
        facts = dataclasses.replace(PLAIN, slots=2, queue_timeout_microseconds=value)
        seen = bench.run(facts, lambda server: asyncio.run(ask_all(server, 12, tokens=64)))
        gone = refused(seen if isinstance(seen, list) else [])
        figure = f"{len(gone)} of 12 refused" + (f" ({gone[0].error}: {gone[0].sentence})" if gone else "")
        rows.append(Row("queue_timeout_microseconds", f"{value:,}", figure, bool(gone) == (value > 0)))
    return rows


FIELDS: dict[str, Measure] = {
    "delay": delay,
    "preferred": preferred,
    "batch_size": batch_size,
    "priority": priority,
    "queue_size": queue_size,
    "queue_timeout": queue_timeout,
}


def table(rows: Sequence[Row]) -> str:
    """Markdown."""
    lines = ["| field | value | what is measured | as it should be |", "|---|---|---|---|"]
    lines += [
        f"| {row.field} | {row.setting} | {row.figure} | {'yes' if row.holds else '**no**'} |" for row in rows
    ]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line. Exit 0 where every field acts as it says."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.batching_fields", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--engine", type=Path, help="a GGUF file; default: the newest F16 engine of the home")
    parser.add_argument("--only", nargs="+", choices=list(FIELDS), default=list(FIELDS))
    options = parser.parse_args(arguments)
    if not settings.configured:
        # Sentences of refusals go through gettext; no database, no apps.
        settings.configure(USE_I18N=False)
    try:
        bench = Bench(options.engine or find_engine())
        rows = []
        for name in options.only:
            rows += FIELDS[name](bench)
            print(f"{name} done", file=sys.stderr, flush=True)
    except ServerProblem as problem:
        print(problem, file=sys.stderr)
        return 1
    print(table(rows))
    print(f"\nMachine: {machine()}.")
    return 0 if all(row.holds for row in rows) else 1


if __name__ == "__main__":
    # So that being asked to end runs the blocks that end the servers.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sys.exit(main())
