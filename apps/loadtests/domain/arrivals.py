"""When requests are due: the moments of an open loop, the same for every process that shares the load."""

from __future__ import annotations

import random
from collections.abc import Iterator

from apps.loadtests.domain.scenario import Load


def moments(load: Load, rate: float, seconds: float, seed: int) -> Iterator[float]:
    """Seconds from the beginning at which requests are due, ascending, below `seconds`.

    Poisson: independent gaps with the exponential distribution. Constant: equal gaps. Bursty: bursts come as in
    Poisson, each of a geometric number of requests with mean `burstiness`, all due at once.
    """
    drawn = random.Random(f"arrivals {seed}")  # noqa: S311 - a workload, no secret
    at = 0.0
    while True:
        if load.arrivals == "constant":
            at += 1.0 / rate
            size = 1
        elif load.arrivals == "poisson":
            at += drawn.expovariate(rate)
            size = 1
        else:
            at += drawn.expovariate(rate / load.burstiness)
            size = _geometric(drawn, load.burstiness)
        if at >= seconds:
            return
        for _ in range(size):
            yield at


def _geometric(drawn: random.Random, mean: float) -> int:
    size = 1
    while drawn.random() > 1.0 / mean:
        size += 1
    return size
