"""A route under load on a simulated clock: closed loops of clients, slots, the real queue."""

from __future__ import annotations

import heapq
import itertools
import statistics
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

from apps.gateway.domain.facts import Priority
from apps.gateway.domain.fair_queue import FairQueue, Waiting


@dataclass(frozen=True)
class Client:
    """Asks again as soon as it has its answer, from `starts` on."""

    key: int
    priority: Priority = Priority.NORMAL
    seconds: float = 1.0
    cost: float = 100.0
    starts: float = 0.0


@dataclass
class Outcome:
    """Waits (s) and tokens given, by key, of what was granted in the counted time."""

    waits: dict[int, list[float]] = field(default_factory=lambda: defaultdict(list))
    tokens: dict[int, float] = field(default_factory=lambda: defaultdict(float))

    def p50(self, keys: Callable[[int], bool]) -> float:
        found = [wait for key, waits in self.waits.items() if keys(key) for wait in waits]
        return statistics.median(found)


def run(clients: list[Client], slots: int, seconds: float, *, warm: float = 0.0) -> Outcome:
    """Let clients ask for `seconds` of simulated time; what is granted before `warm` is not counted."""
    queue, outcome, running = FairQueue(), Outcome(), 0
    asked: dict[int, tuple[Client, float]] = {}
    numbers = itertools.count()
    events: list[tuple[float, int, str, Client, Waiting | None]] = []
    for client in clients:
        heapq.heappush(events, (client.starts, next(numbers), "ask", client, None))
    while events and events[0][0] <= seconds:
        now, _number, what, client, _waiting = heapq.heappop(events)
        if what == "end":
            running -= 1
        waiting = queue.add(client.key, client.priority, client.cost)
        asked[waiting.order] = (client, now)
        while running < slots and (granted := queue.pop()) is not None:
            running += 1
            owner, since = asked.pop(granted.order)
            heapq.heappush(events, (now + owner.seconds, next(numbers), "end", owner, granted))
            if now >= warm:
                outcome.waits[owner.key].append(now - since)
                outcome.tokens[owner.key] += owner.cost
    return outcome
