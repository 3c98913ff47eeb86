"""How steady scaling is: load curves through the policy that decides in production, beside fixed numbers of servers.

    .venv/bin/python -m benchmarks.autoscale [--curve wave ...] [--start-up 60] [--seed 1] [--json out.json]

A simulated deployment (servers of SLOTS slots, answers of SERVICE seconds on average, a queue in front, servers that
serve START_UP seconds after they were asked for) tells every second what telemetry would; `domain.autoscale.decide`
is asked every five seconds, as by the sweep. Nothing is measured of this machine. Needed are the servers that a curve
keeps busy to the target; *turns* are changes of direction, *beyond* is the most servers above the most that were
needed. It exits 1 when scaling misses the level in more minutes than the mean number of servers would, or turns more
often than its curve by more than once in TURN_HOURS.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import sys
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from apps.serving.domain.autoscale import Policy, Situation, decide
from apps.serving.domain.autoscale_needs import Point, Target

SLOTS = 8
SERVICE = 6.0
START_UP = 60.0
# In flight on each server: the target, and what a server can do.
TARGET = 5.0
SLO_TTFT_MS = 1000.0
FIRST_TOKEN_MS = 150.0
LOOK_SECONDS = 5
HOUR = 3600
MOST = 12
TURN_HOURS = 2.0
POLICY = Policy(least=1, most=MOST, targets=(Target("in_flight", TARGET), Target("ttft_ms", 800.0)))


@dataclass(frozen=True, slots=True)
class Curve:
    """Requests a second over time. `seconds` is its length."""

    name: str
    what: str
    seconds: int
    rate: Callable[[float], float]
    idle: float | None = None


def _spikes(at: float) -> float:
    return 5.0 if at % 1800 < 90 else 0.8


def _noise(seed: int) -> Callable[[float], float]:
    levels = np.random.default_rng(seed).gamma(4.0, 0.5, size=HOUR)
    return lambda at: float(levels[int(at // 20) % HOUR])


def _wave(at: float) -> float:
    return 3.15 - 2.85 * math.cos(2 * math.pi * at / (24 * HOUR))


def _office(at: float) -> float:
    return 3.0 if 8 <= at / HOUR < 16 else 0.0


def _steps(at: float) -> float:
    return (1.0, 4.0, 2.0, 6.0, 1.0)[int(at // 1800)]


CURVES = (
    Curve("steps", "1, 4, 2, 6, 1 requests/s, 30 min each", 9000, _steps),
    Curve("wave", "a day: 0.3 to 6 requests/s", 24 * HOUR, _wave),
    Curve("spikes", "0.8 requests/s, every 30 min 5 for 90 s", 4 * HOUR, _spikes),
    Curve("noise", "2 requests/s on average, another level every 20 s", 4 * HOUR, _noise(7)),
    Curve("steady", "2.5 requests/s, at the edge of two numbers of servers", 4 * HOUR, lambda at: 2.5),
    Curve("office", "8 hours of 3 requests/s, 16 without any; sleeps", 24 * HOUR, _office, 900.0),
)


@dataclass(slots=True)
class World:
    """The simulated deployment. Servers are the moments (s) from which they serve."""

    rng: np.random.Generator
    start_up: float
    servers: list[float] = field(default_factory=list)
    queue: deque[float] = field(default_factory=deque)
    ends: list[float] = field(default_factory=list)
    firsts: deque[tuple[float, float]] = field(default_factory=deque)
    started: list[float] = field(default_factory=list)

    def serving(self, now: float) -> int:
        """Servers that serve."""
        return sum(1 for ready in self.servers if ready <= now)

    def scale(self, wanted: int, now: float) -> None:
        """Start what is missing; the newest leave, and what they compute ends by itself."""
        self.servers = self.servers[:wanted] + [now + self.start_up] * max(0, wanted - len(self.servers))

    def second(self, now: float, rate: float) -> None:
        """One second: requests come, end and begin."""
        self.queue.extend(now for _each in range(int(self.rng.poisson(rate))))
        self.ends = [end for end in self.ends if end > now]
        while self.queue and len(self.ends) < self.serving(now) * SLOTS:
            waited = now - self.queue.popleft()
            ttft = waited * 1000 + FIRST_TOKEN_MS * float(self.rng.lognormal(0.0, 0.3))
            self.ends.append(now + float(self.rng.gamma(4.0, SERVICE / 4.0)))
            self.firsts.append((now, ttft))
            self.started.append(ttft)
        while self.firsts and self.firsts[0][0] < now - 10:
            self.firsts.popleft()

    def ttft_p90(self) -> float | None:
        """Over the last ten seconds; null where nothing began."""
        return float(np.percentile([ttft for _at, ttft in self.firsts], 90)) if self.firsts else None


@dataclass(slots=True)
class Outcome:
    """What one run came to."""

    curve: str
    servers: str
    hours: float = 0.0
    changes: int = 0
    turns: int = 0
    needed_turns: int = 0
    most: int = 0
    beyond: int = 0
    minutes_over: int = 0
    server_hours: float = 0.0
    longest_wait_s: float = 0.0


def needed(rate: float) -> int:
    """Servers that a rate keeps busy to the target."""
    return max(1, math.ceil(rate * SERVICE / TARGET))


def run(curve: Curve, start_up: float, seed: int, fixed: int | None = None) -> Outcome:
    """One curve with the policy, or with a fixed number of servers."""
    policy = replace(POLICY, least=0, idle=curve.idle) if curve.idle else POLICY
    world = World(np.random.default_rng(seed), start_up)
    begin = fixed or needed(curve.rate(0.0))
    world.servers = [0.0] * begin
    found = Outcome(
        curve.name, "scaled" if fixed is None else f"{fixed} fixed", curve.seconds / HOUR, most=begin
    )
    seen: deque[Point] = deque(maxlen=int(max(policy.down_window, policy.idle or 0.0) // LOOK_SECONDS) + 1)
    changed: dict[str, float] = {}
    directions: list[int] = []
    sums = np.zeros(3)
    for now in range(curve.seconds):
        world.second(float(now), curve.rate(float(now)))
        found.server_hours += len(world.servers) / HOUR
        sums += (world.serving(now), len(world.ends), len(world.queue))
        if now % 60 == 59:
            found.minutes_over += _over(world)
            world.started.clear()
        if world.queue:
            found.longest_wait_s = max(found.longest_wait_s, now - world.queue[0])
        if now % LOOK_SECONDS != LOOK_SECONDS - 1:
            continue
        if world.serving(now):
            seen.append(_point(now + 1.0, sums / LOOK_SECONDS, world.ttft_p90()))
        sums[:] = 0
        if fixed is None:
            _look(policy, world, now + 1.0, tuple(seen), changed, directions)
            found.most = max(found.most, len(world.servers))
    found.changes = len(directions)
    found.turns = _turns(directions)
    levels = [needed(curve.rate(float(at))) for at in range(0, curve.seconds, 60)]
    found.needed_turns = _turns(
        [after - before for before, after in itertools.pairwise(levels) if after != before]
    )
    found.beyond = max(0, found.most - max(levels))
    return found


def _point(until: float, means: np.ndarray, ttft: float | None) -> Point:
    servers, running, waiting = (float(each) for each in means)
    return Point(until - LOOK_SECONDS, LOOK_SECONDS, servers, running, waiting, servers * SLOTS, ttft)


def _look(
    policy: Policy,
    world: World,
    now: float,
    points: tuple[Point, ...],
    changed: dict[str, float],
    directions: list[int],
) -> None:
    current = len(world.servers)
    decision = decide(
        policy,
        Situation(
            replicas=1,
            current=current,
            serving=world.serving(now),
            now=now,
            points=points,
            idle_points=points,
            asked=len(world.queue) if current == 0 else 0,
            since=changed.get("woken", 0.0),
            last_up=changed.get("up"),
            last_down=changed.get("down"),
        ),
    )
    if decision.replicas == current:
        return
    directions.append(1 if decision.replicas > current else -1)
    changed["up" if decision.replicas > current else "down"] = now
    if current == 0:
        changed["woken"] = now
    world.scale(decision.replicas, now)


def _over(world: World) -> int:
    """Whether the minute missed the level: its p90 was above it, or nobody began though some waited."""
    if not world.started:
        return int(bool(world.queue))
    return int(float(np.percentile(world.started, 90)) > SLO_TTFT_MS)


def _turns(directions: list[int]) -> int:
    signs = [1 if each > 0 else -1 for each in directions]
    return sum(1 for before, after in itertools.pairwise(signs) if before != after)


def compared(curve: Curve, start_up: float, seed: int) -> list[Outcome]:
    """Scaled, with as many servers as the peak needs, and with as many as the mean does."""
    rates = [curve.rate(float(at)) for at in range(0, curve.seconds, 10)]
    peak, mean = needed(max(rates)), needed(sum(rates) / len(rates))
    return [
        run(curve, start_up, seed),
        *(run(curve, start_up, seed, each) for each in sorted({peak, mean}, reverse=True)),
    ]


def table(rows: list[Outcome]) -> str:
    """Markdown."""
    lines = [
        "| curve | servers | changes | turns (of the curve) | most | beyond | minutes over | server hours "
        "| longest wait (s) |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {row.curve} | {row.servers} | {row.changes} | {row.turns} ({row.needed_turns}) | {row.most} "
        f"| {row.beyond} | {row.minutes_over} | {row.server_hours:.1f} | {row.longest_wait_s:.0f} |"
        for row in rows
    ]
    return "\n".join(lines)


def holds(rows: list[Outcome]) -> bool:
    """See the module."""
    scaled, least = rows[0], rows[-1]
    calm = scaled.turns <= scaled.needed_turns + max(2.0, scaled.hours / TURN_HOURS)
    return calm and scaled.minutes_over <= max(least.minutes_over, 5)


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = [curve.name for curve in CURVES]
    parser.add_argument("--curve", nargs="*", choices=names, default=names)
    parser.add_argument("--start-up", type=float, default=START_UP)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    found = [compared(curve, given.start_up, given.seed) for curve in CURVES if curve.name in given.curve]
    print(table([row for rows in found for row in rows]))
    good = all(holds(rows) for rows in found)
    if given.json:
        rows = [{name: getattr(row, name) for name in Outcome.__slots__} for each in found for row in each]
        given.json.write_text(json.dumps({"rows": rows, "holds": good}, indent=1), encoding="utf-8")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
