"""Does the capacity answer's interval cover the truth? Curves out of the queueing simulation, whose truth is known.

    .venv/bin/python -m benchmarks.capacity                 # 200 curves of each kind
    .venv/bin/python -m benchmarks.capacity --curves 50 --seconds 60

A curve is what a load run of several rates measures: requests that come by chance, each rate for so many
seconds after a warm-up, one after the other. It is judged by the product's own code
(apps.loadtests.domain.capacity). The truth is the rate at which the same simulated engine meets the bound over
tens of thousands of requests. Instances for 30 requests/s are asked for. Exit 1 where fewer than 90% of the
intervals that are called 95% cover the truth, of the rate or of the instances.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import numpy as np

from apps.loadtests.domain.capacity import Capacity, Point, highest_rate, plan
from apps.loadtests.domain.compare import METRICS, sample
from apps.loadtests.domain.metrics import Window, lost_share, summarise
from apps.loadtests.domain.queue_model import EMBEDDED, Ask, Engine, Policy, Simulation, poisson
from apps.loadtests.domain.records import UNFINISHED, Record, columns
from benchmarks.batching import machine

RATES = (0.5, 1.0, 1.5, 2.0, 2.5, 3.0)
ASKED = 30.0
WARM_UP, GRACE = 10.0, 30.0
LEAST_COVERED = 0.9
TRUE_REQUESTS = 10_000
POLICY = Policy("inflight", 16)


@dataclass(frozen=True, slots=True)
class Kind:
    """What is asked of a curve, and how it was measured. Times of one step, seconds; bound in milliseconds."""

    name: str
    engine: Engine
    metric: str
    bound: float
    seconds: float
    rates: tuple[float, ...] = RATES


KINDS = [
    Kind("TTFT p99 at most 500 ms, 60 s", EMBEDDED, "ttft_p99_ms", 500.0, 60.0),
    Kind("TTFT p99 at most 500 ms, 180 s", EMBEDDED, "ttft_p99_ms", 500.0, 180.0),
    Kind("TTFT p50 at most 110 ms, 60 s", EMBEDDED, "ttft_p50_ms", 110.0, 60.0),
    Kind("latency mean at most 4 s, 60 s", EMBEDDED, "latency_mean_ms", 4000.0, 60.0),
    Kind("latency p99 at most 8 s, 120 s", EMBEDDED, "latency_p99_ms", 8000.0, 120.0),
    Kind(
        "a flat engine, TTFT p99 at most 400 ms, 60 s",
        Engine(0.020, 0.0010, 0.0004),
        "ttft_p99_ms",
        400.0,
        60.0,
        (1.0, 2.0, 4.0, 6.0, 8.0),
    ),
]


def measured(kind: Kind, seed: int) -> list[Point]:
    """What a load run of these rates measures."""
    simulation = Simulation(kind.engine, POLICY)
    begin, windows = 0.0, []
    for index, rate in enumerate(kind.rates):
        length = WARM_UP + kind.seconds
        count = int(rate * length * 2) + 50
        asks = [ask for ask in poisson(rate, count, 1000 * seed + index) if ask.at < length]
        simulation.add([Ask(begin + ask.at, ask.prompt, ask.output) for ask in asks])
        windows.append(Window(begin + WARM_UP, begin + length))
        begin += length
    data = columns([_record(ask) for ask in simulation.run(begin + GRACE)])
    return [
        Point(rate, sample(data, window, "open"), lost_share(summarise(data, window, "open")) or 0.0)
        for rate, window in zip(kind.rates, windows, strict=True)
    ]


def _record(ask: Ask) -> Record:
    """A request as the load generator keeps it."""
    if ask.first is None or ask.done is None:
        return Record(ask.at, ask.at, result=UNFINISHED)
    last = max(ask.done, ask.first + 1e-6)
    return Record(ask.at, ask.at, (ask.first, last), (1, max(1, ask.output - 1)), last, ask.output)


def truth(kind: Kind) -> float:
    """The highest rate that keeps the bound, in the long run."""
    rates = [float(rate) for rate in np.geomspace(kind.rates[0], kind.rates[-1], 24)]
    values: list[float] = []
    for index, rate in enumerate(rates):
        simulation = Simulation(kind.engine, POLICY)
        simulation.add(poisson(rate, TRUE_REQUESTS, 77_000 + index))
        asks = [ask for ask in simulation.run() if ask.first is not None and ask.done is not None]
        begun = np.array([(ask.first or 0.0) - ask.at for ask in asks]) * 1000
        whole = np.array([(ask.done or 0.0) - ask.at for ask in asks]) * 1000
        metric = METRICS[kind.metric]
        series = begun if metric.series == "ttft" else whole
        values.append(float(series.mean() if metric.percent < 0 else np.percentile(series, metric.percent)))
        if values[-1] > 3 * kind.bound:
            break
    found = highest_rate(rates[: len(values)], values, kind.bound)
    if found is None:
        raise ValueError(f"{kind.name}: even the lightest load breaks the bound")
    return found


def answer(kind: Kind, seed: int) -> Capacity:
    """What the product says of one curve."""
    return plan(measured(kind, seed), ASKED, kind.metric, kind.bound, seed=seed)


@dataclass(frozen=True, slots=True)
class Judged:
    """How often the interval covers. Widths are medians, relative to the truth."""

    name: str
    curves: int
    rate: float
    instances: int
    rate_covered: float
    instances_covered: float
    right: float
    width: float
    open: float
    unanswered: float

    @property
    def holds(self) -> bool:
        """Whether at least 90% cover."""
        return min(self.rate_covered, self.instances_covered) >= LEAST_COVERED


def judge(kind: Kind, curves: int) -> Judged:
    """Many curves of one kind."""
    rate = truth(kind)
    needed = math.ceil(ASKED / rate - 1e-9)
    found = [answer(kind, seed) for seed in range(1, curves + 1)]
    told = [one for one in found if one.instances is not None]
    ends = [(one.rate_low or 0.0, math.inf if one.rate_high is None else one.rate_high) for one in told]
    widths = [(min(high, kind.rates[-1]) - low) / rate for low, high in ends]
    return Judged(
        kind.name,
        curves,
        rate,
        needed,
        sum(low <= rate <= high for low, high in ends) / max(1, len(told)),
        sum((one.least or 0) <= needed <= (one.most or math.inf) for one in told) / max(1, len(told)),
        sum(one.instances == needed for one in told) / max(1, len(told)),
        float(np.median(widths)) if widths else 0.0,
        sum(low == 0.0 or math.isinf(high) for low, high in ends) / max(1, len(told)),
        1 - len(told) / curves,
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit 0 where the intervals cover."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.capacity", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--curves", type=int, default=200)
    parser.add_argument("--kind", type=int, nargs="*", default=list(range(len(KINDS))), help="by number")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    with ProcessPoolExecutor(options.jobs) as pool:
        work = partial(judge, curves=options.curves)
        found = list(pool.map(work, [KINDS[index] for index in options.kind]))
    lines = [
        "| curve and question | truly, requests/s each | instances for 30/s | interval covers the rate "
        "| the instances | answer is exact | interval's width | an end is open | not answered |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {one.name} | {one.rate:.2f} | {one.instances} | {one.rate_covered:.1%} | {one.instances_covered:.1%} "
        f"| {one.right:.0%} | {one.width:.0%} | {one.open:.0%} | {one.unanswered:.0%} |"
        for one in found
    ]
    print("\n".join([*lines, "", f"{options.curves} curves each. Machine: {machine()}; a simulation."]))
    if options.json:
        options.json.write_text(json.dumps([asdict(one) for one in found], indent=1))
    return 0 if all(one.holds for one in found) else 1


if __name__ == "__main__":
    sys.exit(main())
