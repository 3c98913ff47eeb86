"""A queueing simulation of an engine that batches: what a configuration would do under given arrivals.

A decoding step of n sequences takes `step_base + step_each * n` seconds, a prompt `prompt_each` seconds a
token before its first step; instances share the same cores, so a step takes as many times as long as
instances are busy. In-flight: a request joins at the next step and leaves with its last token. Static and
dynamic: a batch is formed, runs until its longest answer is whole and only then gives its slots back; static
waits for a full one, dynamic for a preferred size, both at most `delay` from the arrival of the oldest. None:
one at a time. Requests beyond `queue` waiting ones are refused. `EMBEDDED` is fitted to the engine's figures
in the README ("Does batching help?"): steps of 12 ms for one sequence and 80 ms for sixteen, and a tenth of
the time for prompts of about 45 tokens.

Benchmarks judge tuner and controller by it, because its truth has no noise; the tuner never sees it.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

MS = 1000.0
# A client that was refused asks again after this.
RETRY_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Engine:
    """How long an engine computes, seconds."""

    step_base: float
    step_each: float
    prompt_each: float

    def step(self, sequences: int) -> float:
        """One decoding step of so many sequences."""
        return self.step_base + self.step_each * sequences


EMBEDDED = Engine(step_base=0.0075, step_each=0.0045, prompt_each=0.0007)


def fit(points: Sequence[tuple[int, float]], prompt_each: float) -> Engine:
    """The engine whose steps come closest (least squares) to measured ones: (sequences, seconds), two or more.

    Raises ValueError for fewer.
    """
    if len({sequences for sequences, _seconds in points}) < 2:
        raise ValueError("Steps of at least two batch sizes are needed.")
    slope, base = np.polyfit([float(n) for n, _s in points], [seconds for _n, seconds in points], 1)
    return Engine(max(0.0, float(base)), max(0.0, float(slope)), prompt_each)


@dataclass(frozen=True, slots=True)
class Policy:
    """A configuration. `delay` seconds; `queue` waiting requests of each instance, None for any number."""

    strategy: str = "inflight"
    slots: int = 16
    delay: float = 0.0
    queue: int | None = None
    preferred: tuple[int, ...] = ()
    instances: int = 1


@dataclass(slots=True)
class Ask:
    """One request: due at `at` (seconds), lengths in tokens; what became of it. Absent: not yet, or never.

    `begun`: when it got its slot.
    """

    at: float
    prompt: int
    output: int
    begun: float | None = None
    first: float | None = None
    done: float | None = None
    refused: bool = False
    left: int = 0


@dataclass(slots=True)
class Server:
    """One instance. `running` are the sequences of its batch; `began` and `step` describe the stretch it computes."""

    waiting: deque[Ask] = field(default_factory=deque)
    running: list[Ask] = field(default_factory=list)
    held: list[Ask] = field(default_factory=list)
    began: float = 0.0
    step: float = 0.0
    steps: int = 0
    prefill: float = 0.0
    stamp: int = 0
    busy: bool = False

    @property
    def load(self) -> int:
        """Requests in it."""
        return len(self.waiting) + len(self.running) + len(self.held)


class Simulation:
    """Runs events in the order of their moments. `policy` may be exchanged between events (adaptive batching)."""

    def __init__(
        self, engine: Engine, policy: Policy, next_ask: Callable[[float], Ask | None] | None = None
    ) -> None:
        self.engine, self.policy = engine, policy
        self.servers = [Server() for _ in range(max(1, policy.instances))]
        self.asks: list[Ask] = []
        self.now = 0.0
        # What a client asks when it has its answer (closed loop); None: it asks no more.
        self._next_ask = next_ask
        self._events: list[tuple[float, int, Any, int]] = []
        self._order = itertools.count()

    def add(self, asks: Sequence[Ask]) -> None:
        """Requests that will arrive."""
        for ask in asks:
            self._push(ask.at, ask, 0)

    def at(self, moment: float, call: Callable[[float], None]) -> None:
        """Call this at a moment."""
        self._push(moment, call, 0)

    def run(self, until: float = math.inf) -> list[Ask]:
        """Go on until nothing is left to do or the time is over; every request so far."""
        while self._events and self._events[0][0] <= until:
            self.now, _order, what, stamp = heapq.heappop(self._events)
            if isinstance(what, Ask):
                self._arrive(what)
            elif isinstance(what, Server):
                if stamp == what.stamp:
                    self._boundary(what)
            else:
                what(self.now)
        return self.asks

    # ------------------------------------------------------------------ events

    def _push(self, at: float, what: Any, stamp: int) -> None:
        heapq.heappush(self._events, (at, next(self._order), what, stamp))

    def _arrive(self, ask: Ask) -> None:
        self.asks.append(ask)
        server = min(self.servers, key=lambda one: one.load)
        full = server.busy or bool(server.waiting)
        free = self._slots - len(server.running) if self.policy.strategy == "inflight" else 0
        limit = self.policy.queue
        if limit is not None and full and len(server.waiting) >= limit + max(0, free):
            ask.refused = True
            self._ask_again(RETRY_SECONDS)
            return
        server.waiting.append(ask)
        if not server.busy:
            self._boundary(server)
        elif self.policy.strategy == "inflight" and free > 0 and server.steps > 1:
            self._cut(server)

    def _ask_again(self, after: float = 0.0) -> None:
        following = self._next_ask(self.now + after) if self._next_ask is not None else None
        if following is not None:
            self._push(following.at, following, 0)

    def _cut(self, server: Server) -> None:
        """Somebody joins: the stretch ends with the step that is computed now."""
        past = self.now - server.began - server.prefill
        steps = min(server.steps, max(1, math.ceil(past / server.step - 1e-9)))
        if steps < server.steps:
            server.steps = steps
            self._schedule(server)

    def _schedule(self, server: Server) -> None:
        server.stamp += 1
        self._push(server.began + server.prefill + server.steps * server.step, server, server.stamp)

    @property
    def _slots(self) -> int:
        return 1 if self.policy.strategy == "none" else max(1, self.policy.slots)

    def _boundary(self, server: Server) -> None:
        """A stretch of steps is over (or the server was idle): who is done leaves, who waits joins."""
        if server.busy:
            self._count(server)
        server.busy = False
        joined = self._admit(server)
        if not server.running:
            return
        sharing = 1 + sum(one.busy for one in self.servers if one is not server)
        server.prefill = sharing * self.engine.prompt_each * sum(ask.prompt for ask in joined)
        server.step = sharing * self.engine.step(len(server.running))
        server.steps = min(ask.left for ask in server.running)
        if len(self.servers) > 1:
            # Who shares the cores changes: look again soon.
            server.steps = min(server.steps, 8)
        server.began, server.busy = self.now, True
        for ask in joined:
            ask.first = self.now + server.prefill + server.step
        self._schedule(server)

    def _count(self, server: Server) -> None:
        ended = []
        for ask in server.running:
            ask.left -= server.steps
            if ask.left <= 0:
                ended.append(ask)
        server.running = [ask for ask in server.running if ask.left > 0]
        together = self.policy.strategy in ("static", "dynamic")
        server.held += ended
        if together and server.running:
            return
        for ask in server.held:
            ask.done = self.now
            self._ask_again()
        server.held = []

    def _admit(self, server: Server) -> list[Ask]:
        together = self.policy.strategy in ("static", "dynamic")
        if together and (server.running or not self._ready(server)):
            return []
        room = self._slots - len(server.running)
        joined = [server.waiting.popleft() for _ in range(min(room, len(server.waiting)))]
        for ask in joined:
            ask.left, ask.begun = ask.output, self.now
        server.running += joined
        return joined

    def _ready(self, server: Server) -> bool:
        """Whether a batch may begin now; else it is looked at again when the oldest has waited long enough."""
        waiting = len(server.waiting)
        if not waiting:
            return False
        wanted = self._slots
        if self.policy.strategy == "dynamic" and self.policy.preferred:
            wanted = min(self._slots, max(self.policy.preferred))
        due = server.waiting[0].at + self.policy.delay
        if waiting >= wanted or self.now >= due - 1e-9:
            return True
        server.stamp += 1
        self._push(due, server, server.stamp)
        return False


# ---------------------------------------------------------------------- arrivals and figures


def poisson(
    rate: float, count: int, seed: int, prompt: int = 45, least: int = 8, most: int = 128
) -> list[Ask]:
    """So many requests at so many a second; answers uniform between `least` and `most` tokens."""
    drawn = np.random.default_rng(seed)
    moments = np.cumsum(drawn.exponential(1 / rate, count))
    lengths = drawn.integers(least, most + 1, count)
    return [Ask(float(at), prompt, int(length)) for at, length in zip(moments, lengths, strict=True)]


def closed_loop(
    engine: Engine, policy: Policy, clients: int, seconds: float, seed: int = 1, prompt: int = 45
) -> dict[str, float | None]:
    """Figures of so many clients, each of which asks again when it has its answer."""
    drawn = np.random.default_rng(seed)

    def ask(at: float) -> Ask | None:
        return Ask(at, prompt, int(drawn.integers(8, 129))) if at < seconds else None

    simulation = Simulation(engine, policy, ask)
    simulation.add([found for _ in range(clients) if (found := ask(0.0)) is not None])
    return figures(simulation.run(seconds), seconds * 0.2, seconds)


def open_loop(
    engine: Engine, policy: Policy, asks: Sequence[Ask], slo: Slo | None = None
) -> dict[str, float | None]:
    """Figures of requests that come whether or not earlier ones are answered; all of them are waited for."""
    simulation = Simulation(engine, policy)
    simulation.add([Ask(ask.at, ask.prompt, ask.output) for ask in asks])
    return figures(simulation.run(), 0.0, None, slo)


@dataclass(frozen=True, slots=True)
class Slo:
    """Bounds of a good request, milliseconds; None: no bound."""

    ttft_ms: float | None = None
    tpot_ms: float | None = None
    latency_ms: float | None = None


def figures(
    asks: Sequence[Ask], begin: float, end: float | None, slo: Slo | None = None
) -> dict[str, float | None]:
    """Figures of the requests under the names of domain.metrics. Absent is None.

    With `end` those that ended between the two (closed loop), else all that were due since `begin`, over the time
    from the first arrival to the last answer or arrival.
    """
    last = end if end is not None else max((ask.done or ask.at for ask in asks), default=0.0)
    mine = [
        ask for ask in asks if (begin <= (ask.done or -1.0) < last if end is not None else ask.at >= begin)
    ]
    done = [ask for ask in mine if ask.done is not None and ask.first is not None]
    seconds = max(1e-9, last - begin)
    ttft = np.array([(ask.first or 0.0) - ask.at for ask in done]) * MS
    latency = np.array([(ask.done or 0.0) - ask.at for ask in done]) * MS
    spread = [
        ((ask.done or 0.0) - (ask.first or 0.0)) / (ask.output - 1) * MS for ask in done if ask.output > 1
    ]
    tokens = sum(ask.output for ask in done)
    found: dict[str, float | None] = {
        "requests_per_second": len(done) / seconds,
        "output_tokens_per_second": tokens / seconds,
        "rejected": float(sum(ask.refused for ask in mine)),
        "requests": float(len(mine)),
        **_spread("ttft", ttft),
        **_spread("latency", latency),
        **_spread("tpot", np.array(spread)),
    }
    if slo is not None:
        good = sum(_is_good(ask, slo) for ask in mine)
        found["goodput_per_second"] = good / seconds
        found["good_share"] = good / len(mine) if mine else None
    return found


def _is_good(ask: Ask, slo: Slo) -> bool:
    if ask.done is None or ask.first is None:
        return False
    tpot = (ask.done - ask.first) / (ask.output - 1) * MS if ask.output > 1 else 0.0
    pairs = (
        (slo.ttft_ms, (ask.first - ask.at) * MS),
        (slo.tpot_ms, tpot),
        (slo.latency_ms, (ask.done - ask.at) * MS),
    )
    return all(bound is None or value <= bound for bound, value in pairs)


def _spread(name: str, values: np.ndarray[Any, Any]) -> dict[str, float | None]:
    if not values.size:
        return {f"{name}_{which}_ms": None for which in ("mean", "p50", "p99")}
    return {
        f"{name}_mean_ms": float(values.mean()),
        f"{name}_p50_ms": float(np.percentile(values, 50)),
        f"{name}_p99_ms": float(np.percentile(values, 99)),
    }
