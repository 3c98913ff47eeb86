"""How steady scaling is: load curves through the policy that decides in production, beside fixed numbers of servers.

    .venv/bin/python -m benchmarks.autoscale                      # curves it was made with, then those held out
    .venv/bin/python -m benchmarks.autoscale --part seen --curve wave --seed 1

A simulated deployment (servers of so many slots, answers of some seconds on average, a queue in front, servers that
serve some time after they were asked for) tells every second what telemetry would; `domain.autoscale.decide`
is asked every five seconds, as by the sweep. Nothing is measured of this machine. Needed are the servers that a curve
keeps busy to the target; *turns* are changes of direction, *beyond* is the most servers above the most that were
needed. It exits 1 when scaling turns more often than the servers that its curve needs do, or misses the level in more
minutes than the mean number of servers would (or five).

The rule was made with the curves *seen* and seed 1. *Held out* are other seeds of them, other curves, and
deployments of other answers and start-ups (benchmarks/autoscale_curves.py); they were written down before the
rule was run on any.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import numpy as np

from apps.serving.domain.autoscale import Policy, Situation, decide
from apps.serving.domain.autoscale_needs import Point, Target
from benchmarks.autoscale_curves import (
    CURVES,
    HOUR,
    OTHER_CURVES,
    OTHER_PLACES,
    OTHER_SEEDS,
    PLACE,
    Curve,
    Place,
)

SLO_TTFT_MS = 1000.0
FIRST_TOKEN_MS = 150.0
LOOK_SECONDS = 5
MOST = 12


def policy_of(curve: Curve, place: Place) -> Policy:
    """The default windows; a curve with `idle` lets it sleep."""
    targets = (Target("in_flight", place.target), Target("ttft_ms", 800.0))
    found = Policy(least=1, most=MOST, targets=targets)
    return replace(found, least=0, idle=curve.idle) if curve.idle else found


@dataclass(slots=True)
class World:
    """The simulated deployment. Servers are the moments (s) from which they serve."""

    rng: np.random.Generator
    place: Place
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
        missing = max(0, wanted - len(self.servers))
        self.servers = self.servers[:wanted] + [now + self.place.start_up] * missing

    def second(self, now: float, rate: float) -> None:
        """One second: requests come, end and begin."""
        self.queue.extend(now for _each in range(int(self.rng.poisson(rate))))
        self.ends = [end for end in self.ends if end > now]
        while self.queue and len(self.ends) < self.serving(now) * self.place.slots:
            waited = now - self.queue.popleft()
            ttft = waited * 1000 + FIRST_TOKEN_MS * float(self.rng.lognormal(0.0, 0.3))
            self.ends.append(now + float(self.rng.gamma(4.0, self.place.service / 4.0)))
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
    place: str
    seed: int
    servers: str
    changes: int = 0
    turns: int = 0
    needed_turns: int = 0
    most: int = 0
    beyond: int = 0
    minutes_over: int = 0
    server_hours: float = 0.0
    longest_wait_s: float = 0.0


def run(curve: Curve, place: Place, seed: int, fixed: int | None = None) -> Outcome:
    """One curve with the policy, or with a fixed number of servers."""
    policy = policy_of(curve, place)
    world = World(np.random.default_rng(seed), place)
    begin = fixed or place.needed(curve, 0.0)
    world.servers = [0.0] * begin
    name = "scaled" if fixed is None else f"{fixed} fixed"
    found = Outcome(curve.name, place.name, seed, name, most=begin)
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
            seen.append(_point(now + 1.0, sums / LOOK_SECONDS, world))
        sums[:] = 0
        if fixed is None:
            _look(policy, world, now + 1.0, tuple(seen), changed, directions)
            found.most = max(found.most, len(world.servers))
    levels = [place.needed(curve, float(at)) for at in range(0, curve.seconds, 60)]
    found.changes, found.turns = len(directions), _turns(directions)
    found.needed_turns = _turns(
        [after - before for before, after in itertools.pairwise(levels) if after != before]
    )
    found.beyond = max(0, found.most - max(levels))
    return found


def _point(until: float, means: np.ndarray, world: World) -> Point:
    servers, running, waiting = (float(each) for each in means)
    slots = servers * world.place.slots
    return Point(until - LOOK_SECONDS, LOOK_SECONDS, servers, running, waiting, slots, world.ttft_p90())


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


def _turns(directions: Sequence[int]) -> int:
    signs = [1 if each > 0 else -1 for each in directions]
    return sum(1 for before, after in itertools.pairwise(signs) if before != after)


def compared(curve: Curve, place: Place, seed: int) -> list[Outcome]:
    """Scaled, with as many servers as the peak needs, and with as many as the mean does."""
    rates = [curve.rate(float(at)) for at in range(0, curve.seconds, 10)]
    counts = {place.servers(max(rates)), place.servers(sum(rates) / len(rates))}
    return [
        run(curve, place, seed),
        *(run(curve, place, seed, each) for each in sorted(counts, reverse=True)),
    ]


def _named(case: tuple[str, str, int]) -> list[Outcome]:
    """A case by names: functions of a curve do not travel between processes."""
    curve = next(each for each in (*CURVES, *OTHER_CURVES) if each.name == case[0])
    place = next(each for each in (PLACE, *OTHER_PLACES) if each.name == case[1])
    return compared(curve, place, case[2])


def held_out() -> list[tuple[str, str, int]]:
    """Other seeds of the curves, other curves, and both in other places."""
    both = (*CURVES, *OTHER_CURVES)
    found = [(curve.name, PLACE.name, seed) for curve in both for seed in OTHER_SEEDS]
    return found + [(curve.name, place.name, OTHER_SEEDS[0]) for place in OTHER_PLACES for curve in both]


def calm(rows: Sequence[Outcome]) -> bool:
    """Whether scaling turned no more often than what the curve needs."""
    return rows[0].turns <= rows[0].needed_turns


def kept(rows: Sequence[Outcome]) -> bool:
    """Whether it missed the level in no more minutes than the mean number of servers (or five)."""
    return rows[0].minutes_over <= max(rows[-1].minutes_over, 5)


def table(rows: Sequence[Outcome]) -> str:
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


def shorter(cases: Sequence[Sequence[Outcome]]) -> str:
    """Markdown of many: the seeds of a curve in one row."""
    lines = [
        "| curve | servers of | runs | turns (of the curve) | minutes over (with the mean number) "
        "| server hours (with the peak's) |",
        "|---|---|---|---|---|---|",
    ]
    for (curve, place), group in itertools.groupby(cases, lambda rows: (rows[0].curve, rows[0].place)):
        runs = list(group)
        needed = ", ".join(sorted({str(rows[0].needed_turns) for rows in runs}))
        turns = ", ".join(str(rows[0].turns) for rows in runs)
        over = ", ".join(f"{rows[0].minutes_over} ({rows[-1].minutes_over})" for rows in runs)
        hours = sum(rows[0].server_hours for rows in runs) / len(runs)
        peak = sum(rows[1].server_hours for rows in runs) / len(runs)
        lines.append(
            f"| {curve} | {place} | {len(runs)} | {turns} ({needed}) | {over} | {hours:.1f} ({peak:.1f}) |"
        )
    return "\n".join(lines)


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = [curve.name for curve in CURVES]
    parser.add_argument("--part", choices=("seen", "held-out", "both"), default="both")
    parser.add_argument("--curve", nargs="*", choices=names, default=names, help="of those seen")
    parser.add_argument("--seed", type=int, default=1, help="of those seen")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    parts: dict[str, list[tuple[str, str, int]]] = {}
    if given.part != "held-out":
        parts["seen"] = [(name, PLACE.name, given.seed) for name in given.curve]
    if given.part != "seen":
        parts["held out"] = held_out()
    told: dict[str, list[list[Outcome]]] = {}
    with ProcessPoolExecutor(given.jobs) as pool:
        for part, cases in parts.items():
            told[part] = list(pool.map(_named, cases))
            rows = told[part]
            shown = table([row for each in rows for row in each]) if part == "seen" else shorter(rows)
            print(f"{part.capitalize()}:\n\n{shown}\n")
            print(
                f"No turn of its own: {sum(map(calm, rows))} of {len(rows)}. "
                f"Level kept: {sum(map(kept, rows))} of {len(rows)}.\n",
                flush=True,
            )
    good = all(calm(rows) and kept(rows) for cases in told.values() for rows in cases)
    if given.json:
        found = {part: [[asdict(row) for row in rows] for rows in cases] for part, cases in told.items()}
        given.json.write_text(json.dumps({**found, "holds": good}, indent=1), encoding="utf-8")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
