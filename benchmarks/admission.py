"""Priority and fairness under saturation, through the real admission, Redis and event loop.

    .venv/bin/python -m benchmarks.admission [--slots 16] [--seconds 20] [--json out.json]

Closed loops of clients ask for four times the slots; a granted slot is held for a time drawn from a seeded sequence.
Nothing is computed meanwhile, so what is measured is admission alone: how long each class waits for a slot, what each
key of a class is given, and what one admission costs with limits in Redis and without.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import statistics
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings")
django.setup()

from apps.gateway.access.admission import Admission  # noqa: E402 - needs the settings
from apps.gateway.access.limits import SharedLimits  # noqa: E402
from apps.gateway.domain.facts import KeyFacts, Limits, Priority, Route  # noqa: E402
from tests.support.places import Places  # noqa: E402
from tests.support.redis import RedisServer  # noqa: E402

HOLD_SECONDS = 0.1
# Clients of each class, in slots: together four times the capacity.
SHARE = {Priority.HIGH: 1.0, Priority.NORMAL: 2.0, Priority.LOW: 1.0}
KEYS_OF_A_CLASS = 4
# Far above what is asked, so that every admission is counted in Redis and none is refused.
LIMITS = Limits(requests_per_minute=10**8, tokens_per_minute=10**9, concurrent_requests=10_000)
ROUTE = Route(name="demo", upstreams=(), queue_size=10_000, queue_seconds=600)


class Measured:
    """Waits (s) by class and tokens by key, of what was granted after the warm-up."""

    def __init__(self, begin: float) -> None:
        self.begin = begin
        self.waits: defaultdict[Priority, list[float]] = defaultdict(list)
        self.tokens: defaultdict[tuple[Priority, int], int] = defaultdict(int)

    def add(self, priority: Priority, key: int, wait: float, tokens: int) -> None:
        """One granted request."""
        if time.monotonic() >= self.begin:
            self.waits[priority].append(wait)
            self.tokens[priority, key] += tokens


async def client(admission: Admission, key: KeyFacts, until: float, seed: int, measured: Measured) -> None:
    """Asks one request after the other."""
    chance = random.Random(seed)
    while time.monotonic() < until:
        tokens = chance.randrange(50, 400)
        grant = await admission.admit(
            key, ROUTE, prompt_tokens=tokens // 4, max_tokens=400, priority=key.priority, request_id=str(seed)
        )
        async with grant:
            measured.add(key.priority, key.key_id, grant.queue_seconds, tokens)
            await asyncio.sleep(HOLD_SECONDS * tokens / 225)
            grant.settle(tokens // 4, tokens - tokens // 4)


async def saturated(url: str, slots: int, seconds: float) -> dict[str, Any]:
    """All classes at once."""
    admission = Admission(Places(slots), limits=SharedLimits(url=url))
    begin = time.monotonic() + seconds / 5
    measured, until = Measured(begin), begin + seconds
    tasks = []
    for priority, share in SHARE.items():
        for number in range(round(slots * share)):
            key = KeyFacts(
                key_id=int(priority) * 100 + number % KEYS_OF_A_CLASS,
                name="app",
                prefix="ik-",
                limits=LIMITS,
                priority=priority,
            )
            seed = int(priority) * 1000 + number
            tasks.append(asyncio.create_task(client(admission, key, until, seed, measured)))
    await asyncio.gather(*tasks)
    await admission.close()
    return report(measured)


def report(measured: Measured) -> dict[str, Any]:
    """p50 and p95 waits in ms, granted requests, and how far the keys of a class lie apart."""
    found: dict[str, Any] = {}
    for priority in Priority:
        waits = sorted(measured.waits[priority])
        tokens = [given for (of, _key), given in measured.tokens.items() if of == priority]
        found[priority.name.lower()] = {
            "granted": len(waits),
            "wait_p50_ms": round(statistics.median(waits) * 1000, 2) if waits else None,
            "wait_p95_ms": round(waits[int(len(waits) * 0.95)] * 1000, 2) if waits else None,
            "keys_apart_percent": round((max(tokens) / min(tokens) - 1) * 100, 2) if tokens else None,
        }
    return found


async def cost(url: str, limits: Limits, requests: int, at_once: int) -> dict[str, float]:
    """Time of one admission with free slots, in ms, and admissions a second."""
    admission = Admission(Places(None), limits=SharedLimits(url=url))
    key = KeyFacts(key_id=1, name="app", prefix="ik-", limits=limits)
    took: list[float] = []

    async def one(number: int) -> None:
        for index in range(requests // at_once):
            began = time.perf_counter()
            grant = await admission.admit(
                key,
                ROUTE,
                prompt_tokens=10,
                max_tokens=10,
                priority=Priority.NORMAL,
                request_id=f"{number}-{index}",
            )
            took.append(time.perf_counter() - began)
            grant.release()

    await one(0)
    took.clear()
    began = time.perf_counter()
    await asyncio.gather(*(one(number) for number in range(at_once)))
    whole = time.perf_counter() - began
    await admission.close()
    took.sort()
    return {
        "p50_ms": round(statistics.median(took) * 1000, 3),
        "p99_ms": round(took[int(len(took) * 0.99)] * 1000, 3),
        "per_second": round(len(took) / whole),
    }


def main() -> None:
    """Measure and print; exits 1 where the classes or keys are not as promised."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--slots", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    server = RedisServer()
    server.start()
    try:
        url = server.url(3)
        classes = asyncio.run(saturated(url, options.slots, options.seconds))
        costs = {
            name: asyncio.run(cost(url, limits, 2000, at_once))
            for name, limits, at_once in (
                ("limits in Redis, one at a time", LIMITS, 1),
                ("limits in Redis, 32 at once", LIMITS, 32),
                ("no limits, one at a time", Limits(), 1),
            )
        }
    finally:
        server.remove()
    ratio = classes["high"]["wait_p50_ms"] / classes["normal"]["wait_p50_ms"]
    apart = max(item["keys_apart_percent"] for item in classes.values())
    holds = ratio <= 1 / 3 and apart < 10 and classes["low"]["granted"] > 0
    found = {
        "classes": classes,
        "high_to_normal_p50": round(ratio, 4),
        "keys_apart_percent": apart,
        "cost": costs,
        "holds": holds,
    }
    print(json.dumps(found, indent=1))
    if options.json:
        options.json.write_text(json.dumps(found, indent=1), encoding="utf-8")
    sys.exit(0 if holds else 1)


if __name__ == "__main__":
    main()
