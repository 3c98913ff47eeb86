"""What the gateway's routing brings, on embedded engines: prefix affinity and length buckets, each against none.

    .venv/bin/python -m benchmarks.routing                     # both parts, about five minutes
    .venv/bin/python -m benchmarks.routing --part prefix       # or lengths

`prefix`: two replicas; several long system prompts, each asked again and again with another question. Affinity sends
a prompt where its beginning was seen, least outstanding work where there is most room. Once with as many beginnings
as all slots hold, which leaves none for what runs, and once with more than one replica holds and fewer than both do.
`lengths`: two deployments behind one name; short prompts beside long ones, with a bucket for each length and without.
All ways take turns.
benchmarks/README.md has the definitions.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import load
from benchmarks.engine_world import Answer, EngineWorld, Spec, ask, engine_world, median, percentile, text_of

# Long enough to be worth keeping, short enough that a turn holds each beginning several times.
SYSTEM_WORDS, QUESTION_WORDS, PREFIX_CLIENTS = 120, 12, 4
# Beginnings, and slots of each of the two replicas.
FULL, ROOMY = (8, 4), (12, 8)
SHORT_WORDS, LONG_WORDS, SHORT_CLIENTS, LONG_CLIENTS, BUCKET = 30, 900, 2, 2, 256
TOKENS = 8


@dataclass(frozen=True)
class Turn:
    """Times to the first token of short and long prompts (s), and the share of prompt tokens out of the cache."""

    ttft: tuple[float, ...]
    long_ttft: tuple[float, ...] = ()
    cached: float | None = None


async def loop_of(
    until: float, begin: float, one: Callable[[int], Awaitable[Answer]], numbers: Any
) -> list[float]:
    """A client that asks one request after the other; times to first tokens of answers after `begin`."""
    found = []
    while time.monotonic() < until:
        asked = time.monotonic()
        answer = await one(next(numbers))
        if asked >= begin:
            found.append(answer.ttft)
    return found


async def prefix_turn(it: EngineWorld, port: int, groups: int, seconds: float, seeds: Any) -> Turn:
    """Clients ask about the system prompts in turns."""
    begin = time.monotonic() + seconds / 3
    numbers = itertools.count()

    async def one(number: int) -> Answer:
        # Not in the order of the replicas: a fixed one would fall in step with them.
        group = (number * 5 + number // groups) % groups
        prompt = f"{text_of(group, SYSTEM_WORDS)}\n\n{text_of(next(seeds), QUESTION_WORDS)}"
        return await ask(port, it.keys["all"], "demo", prompt, TOKENS)

    async def counted() -> tuple[float, float]:
        await asyncio.sleep(seconds / 3)
        return await asyncio.to_thread(it.prompt_tokens)

    clients = [loop_of(begin + seconds, begin, one, numbers) for _ in range(PREFIX_CLIENTS)]
    (before, cached_before), *found = await asyncio.gather(counted(), *clients)
    after, cached = it.prompt_tokens()
    share = (cached - cached_before) / (after - before) if after > before else None
    return Turn(tuple(itertools.chain(*found)), cached=share)


async def lengths_turn(it: EngineWorld, port: int, model: str, seconds: float, seeds: Any) -> Turn:
    """Short and long prompts that nobody asked before, side by side."""
    begin = time.monotonic() + seconds / 5

    def asking(words: int) -> Callable[[int], Awaitable[Answer]]:
        return lambda number: ask(port, it.keys["all"], model, text_of(number, words), TOKENS)

    short = [loop_of(begin + seconds, begin, asking(SHORT_WORDS), seeds) for _ in range(SHORT_CLIENTS)]
    long = [loop_of(begin + seconds, begin, asking(LONG_WORDS), seeds) for _ in range(LONG_CLIENTS)]
    found = await asyncio.gather(*short, *long)
    return Turn(
        tuple(itertools.chain(*found[:SHORT_CLIENTS])), tuple(itertools.chain(*found[SHORT_CLIENTS:]))
    )


async def in_turns(repeats: int, ways: Mapping[str, Callable[[], Awaitable[Turn]]]) -> dict[str, list[Turn]]:
    """Each way once, again and again."""
    found: dict[str, list[Turn]] = {name: [] for name in ways}
    for _ in range(repeats):
        for name, turn in ways.items():
            found[name].append(await turn())
    return found


def row(name: str, turns: list[Turn]) -> dict[str, Any]:
    """Medians over the turns; times in ms."""
    told: dict[str, Any] = {
        "name": name,
        "answers": sum(len(turn.ttft) + len(turn.long_ttft) for turn in turns),
    }
    for percent in (50, 95):
        told[f"ttft_p{percent}"] = _ms([turn.ttft for turn in turns], percent)
    if turns[0].long_ttft:
        for percent in (50, 95):
            told[f"long_ttft_p{percent}"] = _ms([turn.long_ttft for turn in turns], percent)
    shares = [turn.cached for turn in turns if turn.cached is not None]
    if shares:
        told["cached_percent"] = round(median(shares) * 100, 1)
    return told


def _ms(turns: list[tuple[float, ...]], percent: float) -> float:
    """Median of the turns' percentiles, ms; nan where no turn had an answer."""
    found = [percentile(turn, percent) for turn in turns if turn]
    return round(median(found) * 1000, 0) if found else float("nan")


def part_prefix(gguf: Path, repeats: int, seconds: float) -> list[dict[str, Any]]:
    """Affinity against least outstanding work."""
    return [each for case in (FULL, ROOMY) for each in _prefix_case(gguf, repeats, seconds, *case)]


def _prefix_case(gguf: Path, repeats: int, seconds: float, groups: int, slots: int) -> list[dict[str, Any]]:
    with engine_world(gguf, [Spec("demo", slots, 1024, 1)] * 2) as it:
        ports = {
            "affinity": it.gateway(INFLIGHT_GATEWAY_PREFIX_AFFINITY="true"),
            "least outstanding": it.gateway(INFLIGHT_GATEWAY_PREFIX_AFFINITY="false"),
        }
        seeds = itertools.count(1000)
        ways = {
            f"{groups} beginnings, 2 x {slots} slots: {name}": partial(
                prefix_turn, it, port, groups, seconds, seeds
            )
            for name, port in ports.items()
        }
        return [row(name, turns) for name, turns in asyncio.run(in_turns(repeats, ways)).items()]


def part_lengths(gguf: Path, repeats: int, seconds: float) -> list[dict[str, Any]]:
    """Buckets against one pool."""
    routes = [
        {
            "name": "buckets",
            "targets": [
                {"deployment": "short", "weight": 1.0, "max_prompt_tokens": BUCKET},
                {"deployment": "long", "weight": 1.0},
            ],
        },
        {
            "name": "pool",
            "targets": [{"deployment": "short", "weight": 1.0}, {"deployment": "long", "weight": 1.0}],
        },
    ]
    with engine_world(gguf, [Spec("short", 4, 2048, 1), Spec("long", 4, 2048, 1)], routes) as it:
        port = it.gateway()
        seeds = itertools.count(1)
        names = {"length buckets": "buckets", "one pool": "pool"}
        ways = {name: partial(lengths_turn, it, port, model, seconds, seeds) for name, model in names.items()}
        return [row(name, turns) for name, turns in asyncio.run(in_turns(repeats, ways)).items()]


PARTS = {"prefix": part_prefix, "lengths": part_lengths}


def table(rows: list[dict[str, Any]]) -> str:
    """Markdown."""
    keys = list(rows[0])
    lines = [" | ".join(key.replace("_", " ") for key in keys), " | ".join("---" for _ in keys)]
    lines += [" | ".join(str(each[key]) for key in keys) for each in rows]
    return "\n".join(f"| {line} |" for line in lines)


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--part", choices=[*PARTS, "all"], default="all")
    parser.add_argument(
        "--engine", type=Path, help="a GGUF file (default: the newest F16 engine of the home)"
    )
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=20.0, help="of a turn, after its warm-up")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    gguf = given.engine or find_engine()
    found: dict[str, Any] = {}
    for name in PARTS if given.part == "all" else [given.part]:
        before = load.read()
        found[name] = PARTS[name](gguf, given.repeats, given.seconds)
        print(f"\n### {name}\n\n{table(found[name])}")
        print(f"\nOther programs took {load.others(before, load.read()):.0%} of the machine.", flush=True)
    if given.json:
        given.json.write_text(json.dumps(found, indent=1), encoding="utf-8")
    return 0


def find_engine() -> Path:
    """The newest F16 engine of a home."""
    from benchmarks.batching import find_engine as newest

    return newest()


if __name__ == "__main__":
    sys.exit(main())
