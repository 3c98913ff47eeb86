"""Plans of memory per second on one core: Llama-3-70B, Mixtral-like experts and a model with sliding windows.

Run on a quiet machine: `python -m benchmarks.planner`. Each plan is priced with its findings and JSON form, as the
page and the API do it; `answers` adds the largest batch, the fewest GPUs, the longest sequence and the table.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from apps.engines.domain.memory import LayerKind, PlanRequest, Shape, as_dict, kv_format, plan, weight_format
from apps.engines.domain.memory.answers import concurrency_table, fewest_gpus, largest_batch, longest_sequence
from apps.engines.domain.memory.units import GIB

AIM = 2000
SECONDS = 3.0


def shapes() -> dict[str, Shape]:
    """Three kinds of models, from public configurations."""
    dense = LayerKind(
        sharded=2 * 8192 * 8192 + 3 * 8192 * 28_672,
        kv_projection=2 * 8192 * 1024,
        small=2 * 8192,
        kv_heads=8,
        kv_values=2048,
    )
    experts = LayerKind(
        sharded=2 * 4096 * 4096,
        kv_projection=2 * 4096 * 1024,
        expert=3 * 4096 * 14_336,
        num_experts=8,
        small=2 * 4096 + 8 * 4096,
        kv_heads=8,
        kv_values=2048,
    )
    local = LayerKind(
        sharded=2 * 3840 * 4096 + 3 * 3840 * 15_360,
        kv_projection=2 * 3840 * 2048,
        small=4 * 3840,
        kv_heads=8,
        kv_values=4096,
        window=1024,
    )
    whole = replace(local, window=None)
    return {
        "llama-3-70b": _shape(8192, 128_256, 64, 8, 28_672, ((dense, 80),)),
        "mixtral-8x7b": _shape(4096, 32_000, 32, 8, 28_672, ((experts, 32),)),
        "gemma-3-12b": _shape(3840, 262_208, 16, 8, 15_360, ((local, 5), (whole, 1)) * 8),
    }


def _shape(
    hidden: int, vocab: int, heads: int, kv_heads: int, ffn: int, runs: tuple[tuple[LayerKind, int], ...]
) -> Shape:
    table = hidden * vocab
    layers = sum(count for _, count in runs)
    return Shape("", hidden, vocab, heads, kv_heads, 128, ffn, table, table, False, hidden, runs, layers)


def rate(work: Callable[[int], object], seconds: float) -> float:
    """Calls per second of `work`, which gets the number of the call, so that no two plans are the same."""
    work(0)
    done, began = 0, time.process_time()
    while time.process_time() - began < seconds:
        for number in range(50):
            work(done + number)
        done += 50
    return done / (time.process_time() - began)


def main() -> None:
    """Print plans per second of each kind."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="CPU seconds for each figure")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    base = PlanRequest(80 * GIB, weight_format("fp8"), kv_format("fp8"), tp=2, max_batch_size=64)
    found: dict[str, dict[str, float]] = {}
    for name, shape in shapes().items():

        def price(number: int, shape: Shape = shape) -> object:
            return as_dict(plan(shape, replace(base, max_batch_size=1 + number % 2000)))

        def answers(number: int, shape: Shape = shape) -> object:
            request = replace(base, max_batch_size=1 + number % 2000)
            return (
                concurrency_table(plan(shape, request)),
                largest_batch(shape, request),
                fewest_gpus(shape, request),
                longest_sequence(shape, request),
            )

        found[name] = {
            "plans_per_second": round(rate(price, options.seconds)),
            "pages_per_second": round(rate(answers, options.seconds / 3)),
        }
    if options.json:
        print(json.dumps(found, indent=2))
        return
    print(f"{'model':<14} {'plans/s':>9} {'all answers/s':>14}   aim: more than {AIM:,} plans/s on one core")
    for name, figures in found.items():
        print(f"{name:<14} {figures['plans_per_second']:>9,.0f} {figures['pages_per_second']:>14,.0f}")


if __name__ == "__main__":
    main()
