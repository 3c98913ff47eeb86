"""Arrivals that wait for nobody: requests come at random moments, whether earlier ones are answered or not.

Latencies count from the moment a request was due, so a client that falls behind hides nothing.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import aiohttp

from benchmarks.closed_loop import Ask, Loop, Window


@dataclass(slots=True)
class Arrivals:
    """What became of the requests that were due in the measured time; seconds.

    `latencies` and `first_tokens` are those of answers that came within the time and `grace` after it, `unfinished`
    counts the others. `late` is how far behind its moment each request was sent.
    """

    window: Window
    due: int = 0
    latencies: list[float] = field(default_factory=list)
    first_tokens: list[float] = field(default_factory=list)
    late: list[float] = field(default_factory=list)
    unfinished: int = 0


async def run(
    url: str, asks: Iterator[Ask], rate: float, seconds: float, grace: float, seed: int
) -> Arrivals:
    """Send `rate` requests a second (Poisson) for `seconds`, then wait `grace` for what is still under way."""
    loop = Loop(f"{url}/generate_stream", asks, 0)
    begin = time.perf_counter()
    loop.window = Window(begin, begin + seconds)
    arrivals = Arrivals(loop.window)
    moments = random.Random(seed)
    tasks: list[asyncio.Task[None]] = []
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        due = begin + moments.expovariate(rate)
        while due < begin + seconds:
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            arrivals.due += 1
            tasks.append(asyncio.create_task(_one(loop, session, next(asks), due, arrivals)))
            due += moments.expovariate(rate)
        done, pending = await asyncio.wait(tasks, timeout=grace) if tasks else (set(), set())
        for task in pending:
            task.cancel()
        await asyncio.gather(*pending, return_exceptions=True)
    for task in done:
        task.result()
    arrivals.unfinished = len(pending)
    return arrivals


async def _one(loop: Loop, session: aiohttp.ClientSession, ask: Ask, due: float, arrivals: Arrivals) -> None:
    arrivals.late.append(time.perf_counter() - due)
    span = await loop.one(session, ask)
    arrivals.latencies.append(span.done - due)
    arrivals.first_tokens.append(span.first - due)
