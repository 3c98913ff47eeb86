"""In-flight batching against none: the same engine file, slots, threads and workload, one after the other, repeated.

    .venv/bin/python -m benchmarks.batching --engine PATH.gguf

Both servers are started once and take turns: while one is measured the other has nothing to do. Nothing slows the
strategy `none` down: it is the same model with one request at a time. Prints a Markdown table and the ratio of each
pair of turns; `--json FILE` also writes every figure.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import dataclasses
import json
import os
import platform
import re
import signal
import statistics
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from apps.serving.domain.batching import BatchingFacts
from benchmarks import closed_loop, load
from benchmarks.serving import HOMES, MODEL, RunningServer, ServerProblem, find_installation, serve

Strategy = Literal["none", "inflight"]
STRATEGIES: tuple[Strategy, ...] = ("none", "inflight")
BATCH_BUCKET = re.compile(r'^inflight_batch_size_bucket\{.*le="([^"]+)"\} (\S+)$', re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Turn:
    """Figures of one turn; seconds, tokens. `batches` maps the upper bound of a bucket to its share of the steps.

    `others` is the share of the machine that programs used which are not part of the benchmark.
    """

    strategy: Strategy
    requests_per_second: float
    tokens_per_second: float
    latency_mean: float
    latency_p99: float
    ttft_p50: float
    ttft_p99: float
    itl_p50: float
    itl_p99: float
    answers: int
    batches: dict[str, float]
    others: float = 0.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line. Exit 0 with the table, 1 where nothing could be measured."""
    options = _parser().parse_args(arguments)
    try:
        engine = options.engine or find_engine()
        turns = measure(engine, options)
    except ServerProblem as problem:
        print(problem, file=sys.stderr)
        return 1
    print(report(engine, turns, options))
    if options.json:
        options.json.write_text(json.dumps([asdict(turn) for turn in turns], indent=1))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.batching", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--engine", type=Path, help="a GGUF file; default: the newest F16 engine of the home")
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--slots", type=int, default=16)
    parser.add_argument("--threads", type=int, default=0, help="0: every core")
    parser.add_argument("--least", type=int, default=8, help="fewest tokens of an answer")
    parser.add_argument("--most", type=int, default=128, help="most tokens of an answer")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=25.0, help="measured time of a turn")
    parser.add_argument("--warm-up", type=float, default=40.0, help="bound of the time before it")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, help="write every figure here")
    return parser


def find_engine() -> Path:
    """The newest F16 engine of a home. Raises ServerProblem."""
    homes = (Path(os.environ["INFLIGHT_HOME"]),) if os.environ.get("INFLIGHT_HOME") else HOMES
    found = []
    for manifest in (path for home in homes for path in home.glob("engines/*/manifest.json")):
        engine = manifest.with_name("model.gguf")
        with contextlib.suppress(OSError, ValueError):
            if '"F16"' in manifest.read_text(encoding="utf-8") and engine.is_file():
                found.append((manifest.stat().st_mtime, engine))
    if not found:
        raise ServerProblem(
            "There is no F16 engine; build one (make up does), or name a GGUF file with --engine."
        )
    return max(found)[1]


def measure(engine: Path, options: argparse.Namespace) -> list[Turn]:
    """Every turn, strategies interleaved: none, inflight, none, inflight..."""
    installation = find_installation()
    turns: list[Turn] = []
    with contextlib.ExitStack() as stack:
        servers = {
            strategy: stack.enter_context(serve(installation, engine, facts(strategy, options)))
            for strategy in STRATEGIES
        }
        for repeat in range(options.repeats):
            for strategy in STRATEGIES:
                before = load.read()
                turn = _turn(strategy, servers[strategy], options, options.seed + repeat)
                after = load.read()
                turns.append(dataclasses.replace(turn, others=load.others(before, after)))
                said = f"{strategy}: {turn.tokens_per_second:.1f} tokens/s, others {turns[-1].others:.0%}"
                print(said, file=sys.stderr, flush=True)
    return turns


def facts(strategy: Strategy, options: argparse.Namespace) -> BatchingFacts:
    """The same settings for both; strategy none keeps the slots."""
    return BatchingFacts(strategy, options.slots, 1024, options.threads, 256, 0)


def _turn(strategy: Strategy, server: RunningServer, options: argparse.Namespace, seed: int) -> Turn:
    before = batch_buckets(server.metrics())
    asks = closed_loop.workload(seed, options.least, options.most)
    url = f"{server.http_url}/v2/models/{MODEL}"
    window = asyncio.run(closed_loop.run(url, asks, options.clients, options.warm_up, options.seconds))
    after = batch_buckets(server.metrics())
    if not window.latencies:
        raise ServerProblem(
            f"No answer of {strategy} was complete in {options.seconds:.0f} s; use more --seconds."
        )
    first = window.first_tokens or [float("nan")]
    gaps = window.gaps or [float("nan")]
    return Turn(
        strategy=strategy,
        requests_per_second=len(window.latencies) / options.seconds,
        tokens_per_second=window.tokens / options.seconds,
        latency_mean=float(np.mean(window.latencies)),
        latency_p99=float(np.percentile(window.latencies, 99)),
        ttft_p50=float(np.percentile(first, 50)),
        ttft_p99=float(np.percentile(first, 99)),
        itl_p50=float(np.percentile(gaps, 50)),
        itl_p99=float(np.percentile(gaps, 99)),
        answers=len(window.latencies),
        batches=shares(before, after),
    )


def batch_buckets(metrics: str) -> dict[str, float]:
    """Cumulative steps by upper bound, out of the metrics text."""
    return {bound: float(count) for bound, count in BATCH_BUCKET.findall(metrics)}


def shares(before: dict[str, float], after: dict[str, float]) -> dict[str, float]:
    """Share of the steps between two readings in each bucket; buckets without any are left out."""
    grown = [(bound, after[bound] - before.get(bound, 0.0)) for bound in after]
    total = grown[-1][1] if grown else 0.0
    found: dict[str, float] = {}
    below = 0.0
    for bound, count in grown:
        if count > below:
            found[bound] = (count - below) / total
        below = count
    return found


def report(engine: Path, turns: list[Turn], options: argparse.Namespace) -> str:
    """The Markdown: a table of medians, the ratio of each pair of turns, the batches, machine and command."""
    rows = [(strategy, [turn for turn in turns if turn.strategy == strategy]) for strategy in STRATEGIES]
    columns = (
        ("requests/s", "requests_per_second", "{:.2f}"),
        ("tokens/s", "tokens_per_second", "{:.1f}"),
        ("latency mean", "latency_mean", "{:.2f} s"),
        ("latency p99", "latency_p99", "{:.2f} s"),
        ("TTFT p50", "ttft_p50", "{:.2f} s"),
        ("TTFT p99", "ttft_p99", "{:.2f} s"),
        ("ITL p50", "itl_p50", "{:.3f} s"),
        ("ITL p99", "itl_p99", "{:.3f} s"),
    )
    lines = [
        "| strategy | " + " | ".join(title for title, _, _ in columns) + " |",
        "|---" * (len(columns) + 1) + "|",
    ]
    for strategy, own in rows:
        cells = [
            form.format(statistics.median(getattr(turn, name) for turn in own)) for _, name, form in columns
        ]
        lines.append(f"| {strategy} | " + " | ".join(cells) + " |")
    ratios = pair_ratios(turns)
    lines += [
        "",
        f"In-flight makes {statistics.median(ratios):.2f} times the tokens of none "
        f"(each pair of turns: {', '.join(f'{ratio:.2f}' for ratio in ratios)}). "
        f"Medians of {options.repeats} interleaved turns of {options.seconds:.0f} s; {options.clients} clients in a "
        f"closed loop, answers of {options.least} to {options.most} tokens, {options.slots} slots, "
        f"{options.threads or os.cpu_count()} threads in both.",
        "",
        "Sequences in one engine step, share of the steps:",
        "",
        *_batch_table(rows),
        "",
        f"Engine: {engine.name}, {engine.stat().st_size / 1e6:.0f} MB. Machine: {machine()}; other programs used "
        f"{max(turn.others for turn in turns):.0%} of it at most.",
        f"Command: `{command(options)}`",
    ]
    return "\n".join(lines)


def pair_ratios(turns: list[Turn]) -> list[float]:
    """Tokens per second, in-flight over none, of each neighbouring pair: the machine's other load hits both."""
    pairs = zip(turns[::2], turns[1::2], strict=True)
    return [inflight.tokens_per_second / none.tokens_per_second for none, inflight in pairs]


def _batch_table(rows: list[tuple[Strategy, list[Turn]]]) -> list[str]:
    seen = {
        bound for _, own in rows for turn in own for bound, share in turn.batches.items() if share >= 0.005
    }
    bounds = sorted(seen, key=float)
    lines = [
        "| strategy | " + " | ".join(f"≤ {bound}" for bound in bounds) + " |",
        "|---" * (len(bounds) + 1) + "|",
    ]
    for strategy, own in rows:
        cells = [f"{statistics.mean(turn.batches.get(bound, 0.0) for turn in own):.0%}" for bound in bounds]
        lines.append(f"| {strategy} | " + " | ".join(cells) + " |")
    return lines


def machine() -> str:
    """Processor, cores, kernel: what a reader needs to compare."""
    model = platform.processor() or platform.machine()
    with contextlib.suppress(OSError):
        found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
        model = found[1] if found else model
    return f"{model}, {os.cpu_count()} cores, Linux {platform.release()}, Python {platform.python_version()}"


def command(options: argparse.Namespace) -> str:
    """The command line with what differs from the defaults; the engine's folder does not matter."""
    defaults = _parser().parse_args([])
    parts = [
        f"--{name.replace('_', '-')} {value}"
        for name, value in sorted(vars(options).items())
        if name not in ("engine", "json") and value != getattr(defaults, name)
    ]
    return " ".join(["python -m benchmarks.batching", *parts])


if __name__ == "__main__":
    # So that being asked to end runs the blocks that end the servers.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sys.exit(main())
