"""Priority and fairness through the whole path: gateway process, keys, queue, a real Triton with the embedded engine.

    .venv/bin/python -m benchmarks.priority [--slots 4] [--seconds 100] [--json out.json]

Closed loops of clients ask for four times the slots: half as many clients as slots with keys of the high class, two
and a half times as many with the normal one, as many with the low one, two keys each. Times are the clients' own. It
exits 1 unless the high class's p50 TTFT is at most a third of the normal one's, equal keys got tokens within 10%, and
the low class moves.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import signal
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

from benchmarks import load
from benchmarks.engine_world import EngineWorld, Spec, ask, engine_world, percentile, text_of

# Clients of each class, in slots: together four times the capacity.
SHARE = {"high": 0.5, "normal": 2.5, "low": 1.0}
KEYS = 2
TOKENS = (8, 12, 16, 24)
PROMPT_WORDS = 12


async def saturated(it: EngineWorld, port: int, slots: int, seconds: float) -> dict[str, Any]:
    """All classes at once; figures by class."""
    begin = time.monotonic() + seconds / 10
    until = begin + seconds
    waits: defaultdict[str, list[float]] = defaultdict(list)
    tokens: defaultdict[str, int] = defaultdict(int)
    numbers = itertools.count(1)

    async def client(priority: str, key: str) -> None:
        while time.monotonic() < until:
            number = next(numbers)
            asked = time.monotonic()
            answer = await ask(port, it.keys[key], "demo", text_of(number, PROMPT_WORDS), TOKENS[number % 4])
            if asked >= begin:
                waits[priority].append(answer.ttft)
            if begin <= answer.ended <= until:
                tokens[key] += answer.tokens

    await asyncio.gather(
        *(
            client(priority, f"{priority}-{number % KEYS}")
            for priority, share in SHARE.items()
            for number in range(round(slots * share))
        )
    )
    return {priority: _figures(priority, waits[priority], tokens) for priority in SHARE}


def _figures(priority: str, waits: list[float], tokens: dict[str, int]) -> dict[str, Any]:
    given = [tokens[f"{priority}-{number}"] for number in range(KEYS)]
    return {
        "answers": len(waits),
        "ttft_p50_ms": round(percentile(waits, 50) * 1000),
        "ttft_p95_ms": round(percentile(waits, 95) * 1000),
        "tokens": sum(given),
        "keys_apart_percent": round((max(given) / max(min(given), 1) - 1) * 100, 1),
    }


def main() -> int:
    """Measure and print; see the module for the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--engine", type=Path, help="a GGUF file (default: the newest F16 engine of the home)"
    )
    parser.add_argument("--slots", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=100.0)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if given.engine is None:
        from benchmarks.batching import find_engine

        given.engine = find_engine()
    keys = [
        {"name": f"{priority}-{number}", "priority": priority, "requests_per_minute": 10**6}
        for priority in SHARE
        for number in range(KEYS)
    ]
    with engine_world(given.engine, [Spec("demo", given.slots, 512, 2)], keys=keys) as it:
        before = load.read()
        found = asyncio.run(saturated(it, it.gateway(), given.slots, given.seconds))
        busy = load.others(before, load.read())
    ratio = found["high"]["ttft_p50_ms"] / found["normal"]["ttft_p50_ms"]
    # The low class is given one turn in sixteen: too few answers to compare keys within a tenth.
    apart = max(found[priority]["keys_apart_percent"] for priority in ("high", "normal"))
    holds = ratio <= 1 / 3 and apart < 10 and found["low"]["answers"] > 0
    print("| class | answers | TTFT p50 (ms) | p95 | tokens | keys apart (%) |\n|---|---|---|---|---|---|")
    for priority, figures in found.items():
        print(f"| {priority} | {' | '.join(str(value) for value in figures.values())} |")
    print(f"\nHigh to normal, p50: {ratio:.3f}. Other programs took {busy:.0%} of the machine.")
    if given.json:
        told = {"classes": found, "high_to_normal_p50": ratio, "others": busy, "holds": holds}
        given.json.write_text(json.dumps(told, indent=1), encoding="utf-8")
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
