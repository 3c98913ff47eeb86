"""In-flight batching against dynamic, static and none: the same engine, slots, threads and workload, in turns.

    .venv/bin/python -m benchmarks.batching --engine PATH.gguf

Every strategy's server is started once and they take turns: while one is measured the others have nothing to do. No
strategy is slowed down: all are the same model. First a closed loop of clients, then Poisson arrivals at a share of
what in-flight batching has just managed. Prints Markdown tables; `--json FILE` also writes every figure.

    .venv/bin/python -m benchmarks.batching --repeats 1 --part closed --json 1.json
    .venv/bin/python -m benchmarks.batching --repeats 1 --part arrivals --rate 1.9 --json 2.json
    .venv/bin/python -m benchmarks.batching --report 1.json 2.json ...

does the same in pieces, each of which interleaves all strategies.
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
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np

from apps.serving.domain.batching import STRATEGIES, BatchingFacts, Strategy
from benchmarks import closed_loop, load, open_loop
from benchmarks.batching_report import Turn, report
from benchmarks.serving import HOMES, MODEL, RunningServer, ServerProblem, find_installation, serve

# Seconds that dynamic batching waits for company: a few steps of the engine.
DYNAMIC_DELAY_MICROSECONDS = 20_000
BATCH_BUCKET = re.compile(r'^inflight_batch_size_bucket\{.*le="([^"]+)"\} (\S+)$', re.MULTILINE)


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line. Exit 0 with the table, 1 where nothing could be measured."""
    options = _parser().parse_args(arguments)
    try:
        engine = options.engine or find_engine()
        turns = read_turns(options.report) if options.report else measure(engine, options)
    except ServerProblem as problem:
        print(problem, file=sys.stderr)
        return 1
    print(report(turns, options.load))
    print(conditions(engine, turns, options))
    if options.json:
        options.json.write_text(json.dumps([asdict(turn) for turn in turns], indent=1))
    return 0


def read_turns(files: Sequence[Path]) -> list[Turn]:
    """The turns of pieces that were measured before. Raises ServerProblem."""
    try:
        return [Turn(**turn) for path in files for turn in json.loads(path.read_text())]
    except (OSError, ValueError, TypeError) as error:
        raise ServerProblem(f"The pieces cannot be read: {error}.") from error


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
    parser.add_argument("--load", type=float, default=0.7, help="arrivals as a share of in-flight's; 0: none")
    parser.add_argument("--part", choices=("both", "closed", "arrivals"), default="both")
    parser.add_argument("--rate", type=float, help="requests/s of the arrivals, where no closed loop is run")
    parser.add_argument("--report", nargs="+", type=Path, help="measure nothing; print these pieces together")
    parser.add_argument("--only", nargs="+", choices=STRATEGIES, default=list(STRATEGIES))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=30.0, help="measured time of a turn")
    parser.add_argument("--warm-up", type=float, default=10.0, help="bound of the time before it")
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
    """Every turn, strategies interleaved; the closed loop of a repeat, then its arrivals."""
    installation = find_installation()
    turns: list[Turn] = []
    with contextlib.ExitStack() as stack:
        servers = {
            strategy: stack.enter_context(serve(installation, engine, facts(strategy, options)))
            for strategy in options.only
        }
        for repeat in range(options.repeats):
            for strategy, server in servers.items() if options.part != "arrivals" else ():
                turns.append(_watched(strategy, server, options, options.seed + repeat, None))
            if options.part == "closed":
                continue
            best = max((turn.requests_per_second for turn in turns if turn.arrivals is None), default=0.0)
            inflight = [turn for turn in turns if turn.strategy == "inflight" and turn.arrivals is None]
            rate = options.rate or options.load * (inflight[-1].requests_per_second if inflight else best)
            for strategy, server in servers.items() if rate > 0 else ():
                turns.append(_watched(strategy, server, options, options.seed + repeat, rate))
    return turns


def facts(strategy: Strategy, options: argparse.Namespace) -> BatchingFacts:
    """The same settings for all; strategy none keeps the slots."""
    delay = DYNAMIC_DELAY_MICROSECONDS if strategy == "dynamic" else 0
    return BatchingFacts(strategy, options.slots, 1024, options.threads, 256, delay)


def _watched(
    strategy: Strategy, server: RunningServer, options: argparse.Namespace, seed: int, rate: float | None
) -> Turn:
    before = load.read()
    buckets = batch_buckets(server.metrics())
    turn = (
        _closed(strategy, server, options, seed)
        if rate is None
        else _open(strategy, server, options, seed, rate)
    )
    batches = shares(buckets, batch_buckets(server.metrics()))
    found = dataclasses.replace(turn, batches=batches, others=load.others(before, load.read()))
    arrivals = "" if rate is None else f" at {rate:.2f} requests/s"
    said = f"{strategy}{arrivals}: {found.tokens_per_second:.1f} tokens/s, others {found.others:.0%}"
    print(said, file=sys.stderr, flush=True)
    return found


def _closed(strategy: Strategy, server: RunningServer, options: argparse.Namespace, seed: int) -> Turn:
    asks = closed_loop.workload(seed, options.least, options.most)
    url = f"{server.http_url}/v2/models/{MODEL}"
    window = asyncio.run(closed_loop.run(url, asks, options.clients, options.warm_up, options.seconds))
    if not window.latencies:
        raise ServerProblem(
            f"No answer of {strategy} was complete in {options.seconds:.0f} s; use more --seconds."
        )
    return _figures(strategy, window, window.latencies, window.first_tokens, options.seconds)


def _open(
    strategy: Strategy, server: RunningServer, options: argparse.Namespace, seed: int, rate: float
) -> Turn:
    asks = closed_loop.workload(seed, options.least, options.most)
    url = f"{server.http_url}/v2/models/{MODEL}"
    arrived = asyncio.run(open_loop.run(url, asks, rate, options.seconds, options.seconds, seed))
    turn = _figures(strategy, arrived.window, arrived.latencies, arrived.first_tokens, options.seconds)
    return dataclasses.replace(turn, arrivals=rate, unfinished=arrived.unfinished)


def _figures(
    strategy: Strategy, window: closed_loop.Window, latencies: list[float], first: list[float], seconds: float
) -> Turn:
    nothing = [float("nan")]
    latencies, first, gaps = latencies or nothing, first or nothing, window.gaps or nothing
    return Turn(
        strategy=strategy,
        requests_per_second=len(window.latencies) / seconds,
        tokens_per_second=window.tokens / seconds,
        latency_mean=float(np.mean(latencies)),
        latency_p99=float(np.percentile(latencies, 99)),
        ttft_p50=float(np.percentile(first, 50)),
        ttft_p99=float(np.percentile(first, 99)),
        itl_p50=float(np.percentile(gaps, 50)),
        itl_p99=float(np.percentile(gaps, 99)),
        answers=len(window.latencies),
        batches={},
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


def conditions(engine: Path, turns: list[Turn], options: argparse.Namespace) -> str:
    """What a reader needs to compare: workload, engine, machine, command."""
    return "\n".join(
        [
            "",
            f"Medians of {options.repeats} interleaved turns of {options.seconds:.0f} s; {options.clients} clients "
            f"in the closed loop, answers of {options.least} to {options.most} tokens, {options.slots} slots, "
            f"{options.threads or os.cpu_count()} threads, dynamic waits {DYNAMIC_DELAY_MICROSECONDS / 1000:.0f} ms.",
            f"Engine: {engine.name}, {engine.stat().st_size / 1e6:.0f} MB. Machine: {machine()}; other programs used "
            f"{max(turn.others for turn in turns):.0%} of it at most.",
            f"Command: `{command(options)}`",
        ]
    )


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
        if name not in ("engine", "json", "report") and value != getattr(defaults, name)
    ]
    return " ".join(["python -m benchmarks.batching", *parts])


if __name__ == "__main__":
    # So that being asked to end runs the blocks that end the servers.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sys.exit(main())
