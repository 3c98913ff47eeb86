"""The load generator alone, against a local double: how late it starts requests at which load.

    .venv/bin/python -m benchmarks.loadgen                  # --seconds 15 --json FILE

One process over HTTP at 500 requests/s and 8,000 tokens/s, one over gRPC at 4,000 tokens/s, then more over HTTP
than one is given, where it adds a process. A row says when the generator itself was the bottleneck. Exit 1
unless the first two hold a p99 start lateness of 5 ms.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from apps.loadtests.domain.generator import LATE_P99_MS
from apps.loadtests.domain.scenario import Scenario, parse
from benchmarks import load
from benchmarks.batching import machine
from benchmarks.loadgen_double import MODEL
from workers.loadgen.plan import SUMMARY, Address, Plan, processes_for

CHECKOUT = Path(__file__).resolve().parents[1]
# (title, over, requests/s, tokens of each, bound holds)
ROWS = (
    ("HTTP, one process", "http", 500.0, 16, True),
    ("gRPC, one process", "grpc", 250.0, 16, True),
    ("HTTP, more than one is given", "http", 800.0, 16, False),
    ("HTTP, one process far beyond it", "http", 4000.0, 16, False),
)


@contextlib.contextmanager
def double(over: str) -> Iterator[int]:
    """A double in a process of its own; its port."""
    argv = [sys.executable, "-m", "benchmarks.loadgen_double", *(["--grpc"] if over == "grpc" else [])]
    with subprocess.Popen(argv, cwd=CHECKOUT, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield int(process.stdout.readline())
        finally:
            process.kill()


def scenario(over: str, rate: float, tokens: int, seconds: float, processes: int | None) -> Scenario:
    """An open loop of constant length."""
    return parse(
        {
            "target": MODEL,
            "via": over,
            "load": {"mode": "open", "rate": [rate], "arrivals": "poisson"},
            "prompts": {"output": {"mean": float(tokens)}},
            "timing": {
                "warm_up_seconds": 2.0,
                "seconds": seconds,
                "most_seconds": seconds,
                "until_steady": False,
                "grace_seconds": 5.0,
            },
            "seed": 1,
            "processes": processes,
        }
    )


def measure(over: str, rate: float, tokens: int, seconds: float, processes: int | None) -> dict[str, Any]:
    """Run the real generator; its summary."""
    wanted = scenario(over, rate, tokens, seconds, processes)
    with double(over) as port, tempfile.TemporaryDirectory(prefix="inflight-loadgen-") as folder:
        address = Address("127.0.0.1", port, MODEL, f"127.0.0.1:{port}")
        count = processes_for(wanted, os.cpu_count() or 1)
        plan = Plan(Path(folder), wanted, 1, (address,), processes=count)
        argv = [sys.executable, "-m", "workers.loadgen", str(plan.write())]
        done = subprocess.run(argv, cwd=CHECKOUT, stdout=subprocess.PIPE, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"the generator failed:\n{done.stdout}")
        found: dict[str, Any] = json.loads((Path(folder) / SUMMARY).read_text())
    return found


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.loadgen", description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    before = load.read()
    rows = []
    print(
        "| | processes | asked requests/s | requests/s | tokens/s | start late p50 | p99 | core | bound |\n"
        "|---|---|---|---|---|---|---|---|---|"
    )
    good = True
    for title, over, rate, tokens, holds in ROWS:
        found = measure(over, rate, tokens, options.seconds, None if not title.endswith("beyond it") else 1)
        figures, own = found["steps"][0]["figures"], found["generator"]
        rows.append({"title": title, **found})
        good = good and (not holds or own["late_p99_ms"] <= LATE_P99_MS)
        print(
            f"| {title} | {own['processes']} | {rate:.0f} | {figures['requests_per_second']:.0f} "
            f"| {figures['output_tokens_per_second']:.0f} "
            f"| {own['late_p50_ms']:.2f} ms | {own['late_p99_ms']:.2f} ms "
            f"| {own['cpu']:.0%} | {'yes' if own['bound'] else 'no'} |",
            flush=True,
        )
    print(
        f"\nMachine: {machine()}; other programs and the doubles used "
        f"{load.others(before, load.read()):.0%} of it."
    )
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
