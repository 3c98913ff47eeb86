"""The generator's own limits: how late requests were sent, how long its event loop stood still."""

from __future__ import annotations

import asyncio
import random
import time

import numpy as np

# What is kept of the starts; enough for a p99 of the whole run, whatever its length.
SAMPLE = 20_000
EVERY_SECONDS = 0.02


class Late:
    """Seconds between due and sent; a uniform sample of all of them."""

    def __init__(self) -> None:
        self._values: list[float] = []
        self._seen = 0
        self._drawn = random.Random(1)  # noqa: S311 - a sample, no secret

    def add(self, seconds: float) -> None:
        """One request was sent so much after it was due."""
        self._seen += 1
        if len(self._values) < SAMPLE:
            self._values.append(seconds)
        else:
            at = self._drawn.randrange(self._seen)
            if at < SAMPLE:
                self._values[at] = seconds

    def figures(self) -> dict[str, float | int | None]:
        """p50, p99 and the largest, milliseconds."""
        return {"requests": self._seen, **_figures(self._values)}


class Lag(Late):
    """How much later than asked a sleeping task of the loop was woken."""

    async def watch(self) -> None:
        """Measure until cancelled."""
        while True:
            before = time.perf_counter()
            await asyncio.sleep(EVERY_SECONDS)
            self.add(time.perf_counter() - before - EVERY_SECONDS)


def _figures(values: list[float]) -> dict[str, float | None]:
    if not values:
        return {"p50_ms": None, "p99_ms": None, "most_ms": None}
    found = np.percentile(np.array(values) * 1000, [50, 99, 100])
    return dict(zip(("p50_ms", "p99_ms", "most_ms"), map(float, found), strict=True))
