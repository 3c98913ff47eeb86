"""Spaces and loads for benchmarks/tuner.py, each with a truth out of the queueing simulation.

SEEN is what the search was made better on. HELD_OUT are other engines, loads, lengths, bounds and batch sizes: they
were chosen by their truth alone (200 configurations, at most 6 of them within 5% of the best feasible one; a fifth,
of long prompts, had 43 and was left out) before any search was run on them; the search was not changed after.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from apps.loadtests.domain.queue_model import EMBEDDED, Engine, Policy, Slo, closed_loop, open_loop, poisson
from apps.loadtests.domain.tuner_goals import Constraint, Goals
from apps.loadtests.domain.tuner_space import Config, Parameter, Space

# Sequences of 1,024 tokens that the cache has room for: the memory plan's part of the space.
MOST_SEQUENCES = 64


def space(batches: tuple[int, ...] = (2, 4, 6, 8, 10, 12, 16, 24, 32, 48)) -> Space:
    """200 configurations: 3 strategies x 10 batch sizes x 2 queues x 2 numbers of instances x 2 delays, which
    in-flight batching does not have."""
    return Space(
        [
            Parameter("strategy", ("static", "dynamic", "inflight")),
            Parameter("max_batch_size", batches, ordered=True),
            Parameter("max_queue_delay_microseconds", (20_000, 200_000), ordered=True),
            Parameter("max_queue_size", (2, 64), ordered=True),
            Parameter("replicas", (1, 2), ordered=True),
        ],
        lambda config: {"max_queue_delay_microseconds"} if config["strategy"] == "inflight" else set(),
    )


def refused(config: Config) -> bool:
    """What the memory plan would say."""
    return bool(config["max_batch_size"] * config["replicas"] > MOST_SEQUENCES)


def policy(config: Config) -> Policy:
    """A configuration as the simulation takes it."""
    return Policy(
        strategy=config["strategy"],
        slots=config["max_batch_size"],
        delay=config["max_queue_delay_microseconds"] / 1e6,
        queue=config["max_queue_size"],
        instances=config["replicas"],
    )


@dataclass(frozen=True, slots=True)
class Scene:
    """A load and what is looked for under it."""

    title: str
    scenario: dict[str, Any]
    goals: Goals
    figures: Callable[[Config], dict[str, float | None]]
    place: Space


def arriving(
    title: str,
    engine: Engine,
    goals: Goals,
    slo: Slo,
    rate: float,
    count: int,
    seed: int,
    prompt: int = 45,
    tokens: tuple[int, int] = (8, 128),
    place: Space | None = None,
) -> Scene:
    """A scene of Poisson arrivals."""
    asks = poisson(rate, count, seed, prompt, *tokens)
    bounds = {name: value for name in ("ttft_ms", "tpot_ms") if (value := getattr(slo, name)) is not None}
    output = {"distribution": "uniform", "least": tokens[0], "most": tokens[1]}
    scenario: dict[str, Any] = {"target": "x", "load": {"mode": "open", "rate": [rate]}, "slo": bounds}
    if tokens != (8, 128):
        scenario["prompts"] = {"output": output}
    return Scene(
        title, scenario, goals, lambda config: open_loop(engine, policy(config), asks, slo), place or space()
    )


def looping(
    title: str, engine: Engine, goals: Goals, clients: int, seconds: float, place: Space | None = None
) -> Scene:
    """A scene of clients in a closed loop."""
    return Scene(
        title,
        {"target": "x", "load": {"mode": "closed", "concurrency": [clients]}},
        goals,
        lambda config: closed_loop(engine, policy(config), clients, seconds),
        place or space(),
    )


def _most(figure: str, bound: float) -> Constraint:
    return Constraint(figure, bound, True)


SEEN = {
    "open": arriving(
        "600 requests, 3 a second (Poisson), more than the engine can answer; most goodput (TTFT 1.5 s, TPOT 75 ms), "
        "latency p99 at most 10 s",
        EMBEDDED,
        Goals(("goodput_per_second",), (_most("latency_p99_ms", 10_000.0),)),
        Slo(ttft_ms=1500.0, tpot_ms=75.0),
        rate=3.0,
        count=600,
        seed=1,
    ),
    "closed": looping(
        "24 clients in a closed loop; most tokens/s, TTFT p99 at most 2.5 s",
        EMBEDDED,
        Goals(("output_tokens_per_second",), (_most("ttft_p99_ms", 2500.0),)),
        24,
        240.0,
    ),
}
FLAT, STEEP = Engine(0.006, 0.0008, 0.0002), Engine(0.004, 0.009, 0.0015)
OTHER_BATCHES = (1, 2, 3, 4, 5, 7, 9, 14, 20, 30)
HELD_OUT = {
    "flat": arriving(
        "an engine whose steps hardly grow, 9 requests/s of 16 to 200 tokens; most goodput (TTFT 0.8 s, TPOT 40 ms), "
        "latency p99 at most 6 s",
        FLAT,
        Goals(("goodput_per_second",), (_most("latency_p99_ms", 6000.0),)),
        Slo(ttft_ms=800.0, tpot_ms=40.0),
        rate=9.0,
        count=900,
        seed=21,
        prompt=120,
        tokens=(16, 200),
    ),
    "steep": arriving(
        "an engine whose steps grow steeply, 1.6 requests/s of 4 to 96 tokens; least mean latency, at least 1.2 "
        "requests/s answered, other batch sizes",
        STEEP,
        Goals(("latency_mean_ms",), (Constraint("requests_per_second", 1.2, False),)),
        Slo(ttft_ms=2000.0),
        rate=1.6,
        count=400,
        seed=22,
        prompt=60,
        tokens=(4, 96),
        place=space(OTHER_BATCHES),
    ),
    "clients": looping(
        "32 clients in a closed loop on an engine between the two; most tokens/s, TPOT p99 at most 70 ms",
        Engine(0.012, 0.003, 0.001),
        Goals(("output_tokens_per_second",), (_most("tpot_p99_ms", 70.0),)),
        32,
        240.0,
    ),
    "long": arriving(
        "0.9 requests/s of 200 tokens with answers of 64 to 384; most goodput (TTFT 3 s, TPOT 60 ms)",
        EMBEDDED,
        Goals(("goodput_per_second",)),
        Slo(ttft_ms=3000.0, tpot_ms=60.0),
        rate=0.9,
        count=300,
        seed=23,
        prompt=200,
        tokens=(64, 384),
    ),
}
