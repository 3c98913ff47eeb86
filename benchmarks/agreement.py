"""Our load generator against a straight client on the same scenario: TTFT, gaps of tokens, throughput.

    .venv/bin/python -m benchmarks.agreement                        # a double whose times are known
    .venv/bin/python -m benchmarks.agreement --engine PATH.gguf     # the real server

The straight client (benchmarks.closed_loop) is aiohttp and reads times as they come; it shares nothing with
workers.loadgen. They take turns; printed are the medians of the turns' means and how far ours lie from the
client's. Exit 1 unless all lie within 3%.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from apps.loadtests.domain.scenario import parse
from apps.loadtests.domain.workload import Frame
from apps.serving.domain.batching import BatchingFacts
from benchmarks import closed_loop
from benchmarks.closed_loop import SYSTEM, Ask
from benchmarks.loadgen_double import MODEL as DOUBLE
from benchmarks.serving import MODEL, find_installation, serve
from workers.loadgen.plan import SUMMARY, Address, Plan

CHECKOUT = Path(__file__).resolve().parents[1]
WITHIN, WARM_UP = 0.03, 3.0
# Slow enough that what reading costs a client is a small part of it.
GAP_SECONDS = 0.05
FRAME = Frame(f"{SYSTEM}<|im_start|>user\n", "<|im_end|>\n<|im_start|>assistant\n", "")
NAMES = (
    ("TTFT mean (ms)", "ttft_mean_ms"),
    ("gap of tokens mean (ms)", "itl_mean_ms"),
    ("tokens/s", "output_tokens_per_second"),
)


@contextlib.contextmanager
def _double() -> Iterator[tuple[Address, str]]:
    argv = [sys.executable, "-m", "benchmarks.loadgen_double", "--gap", str(GAP_SECONDS)]
    with subprocess.Popen(argv, cwd=CHECKOUT, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            port = int(process.stdout.readline())
            yield Address("127.0.0.1", port, DOUBLE), f"http://127.0.0.1:{port}/v2/models/{DOUBLE}"
        finally:
            process.kill()


@contextlib.contextmanager
def _engine(path: Path, clients: int) -> Iterator[tuple[Address, str]]:
    with serve(find_installation(), path, BatchingFacts("inflight", clients, 1024, 0, 256, 0)) as server:
        port = int(server.http_url.rpartition(":")[2])
        yield Address("127.0.0.1", port, MODEL, server.grpc_url), f"{server.http_url}/v2/models/{MODEL}"


def ours(address: Address, options: argparse.Namespace, seed: int) -> dict[str, float]:
    """Figures of workers.loadgen."""
    scenario = parse(
        {
            "target": address.model,
            "load": {"concurrency": [options.clients]},
            "prompts": {"input": {"mean": 8.0}, "output": {"mean": float(options.tokens)}},
            "timing": {
                "warm_up_seconds": WARM_UP,
                "seconds": options.seconds,
                "most_seconds": options.seconds,
                "until_steady": False,
            },
        }
    )
    with tempfile.TemporaryDirectory(prefix="inflight-agreement-") as folder:
        plan = Plan(Path(folder), scenario, seed, (address,), FRAME)
        argv = [sys.executable, "-m", "workers.loadgen", str(plan.write())]
        done = subprocess.run(argv, cwd=CHECKOUT, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"the generator failed:\n{done.stdout[-2000:]}")
        figures: dict[str, Any] = json.loads((Path(folder) / SUMMARY).read_text())["steps"][0]["figures"]
    return {name: float(figures[name]) for _, name in NAMES}


def straight(url: str, options: argparse.Namespace, seed: int) -> dict[str, float]:
    """Figures of the straight client."""
    asks = (Ask(ask.prompt, options.tokens) for ask in closed_loop.workload(seed, 1, 1))
    window = asyncio.run(closed_loop.run(url, asks, options.clients, 4 * WARM_UP, options.seconds))
    return {
        "ttft_mean_ms": float(np.mean(window.first_tokens)) * 1000,
        "itl_mean_ms": float(np.mean(window.gaps)) * 1000,
        "output_tokens_per_second": window.tokens / options.seconds,
    }


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.agreement", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--engine", type=Path)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=12.0)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    rows: dict[str, list[dict[str, float]]] = {"ours": [], "straight": []}
    with _engine(options.engine, options.clients) if options.engine else _double() as (address, url):
        for repeat in range(options.repeats):
            rows["ours"].append(ours(address, options, repeat))
            rows["straight"].append(straight(url, options, repeat))
    print("| | straight client | ours | apart |\n|---|---|---|---|")
    worst = 0.0
    for title, name in NAMES:
        client, mine = (statistics.median(row[name] for row in rows[side]) for side in ("straight", "ours"))
        worst = max(worst, abs(mine / client - 1))
        print(f"| {title} | {client:.2f} | {mine:.2f} | {mine / client - 1:+.1%} |")
    return 0 if worst <= WITHIN else 1


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sys.exit(main())
