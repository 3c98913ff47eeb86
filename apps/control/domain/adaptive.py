"""Adaptive batching: a controller that moves admitted concurrency, queue limit and queue delay within bounds.

It looks at what the last window showed and moves one step at a time, each lever by the figure that it acts on:

- **admitted** (requests that a server computes at once): more sequences make every step longer, so it is lowered by a
  fifth where the time between tokens is beyond what is promised, and raised by one where it is well within and
  somebody waits (additive increase, multiplicative decrease).
- **queue** (requests that may wait): as many as can still have their first token in time: promised TTFT x answers/s.
- **delay** (microseconds that a batch waits for company): the time in which about half a batch arrives, at most a
  quarter of the promised TTFT; 0 where nobody would come.

Hysteresis: between `low` and `high` of a promise nothing moves; a figure must be beyond for `hold` looks in a
row; a lever rests for `settle_seconds` after it moved, twice as long before it turns back. What is absent
moves nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

Lever = Literal["admitted", "queue", "delay"]
LEVERS: tuple[Lever, ...] = ("admitted", "queue", "delay")
# Shares of a promise: above `high` it is not kept, below `low` there is room; between them nothing moves.
HIGH, LOW = 1.0, 0.8
FEWER = 0.8
# A target that is less than this share away from where a lever stands is the same.
CLOSE = 0.25
FEWEST_REQUESTS = 5
MOST_DELAY_SHARE = 0.25
MICRO = 1_000_000.0


@dataclass(frozen=True, slots=True)
class Bounds:
    """Least and most of each lever. Delay in microseconds."""

    admitted: tuple[int, int] = (1, 16)
    queue: tuple[int, int] = (0, 512)
    delay: tuple[int, int] = (0, 100_000)

    def of(self, lever: Lever) -> tuple[int, int]:
        """Those of one lever."""
        found: tuple[int, int] = getattr(self, lever)
        return found


@dataclass(frozen=True, slots=True)
class Aim:
    """What is promised of the 90th percentile, milliseconds; None: nothing."""

    ttft_ms: float | None = None
    itl_ms: float | None = None


@dataclass(frozen=True, slots=True)
class Pace:
    """How quickly the controller acts: looks in a row that must agree, and seconds that a lever rests."""

    hold: int = 2
    settle_seconds: float = 15.0


@dataclass(frozen=True, slots=True)
class Seen:
    """What the last window showed; None where nobody told.

    Rates are per second over all servers, `waiting` and `running` requests at once, times milliseconds (p90).
    """

    requests: int = 0
    arrivals_per_second: float | None = None
    answers_per_second: float | None = None
    waiting: float | None = None
    running: float | None = None
    ttft_ms: float | None = None
    itl_ms: float | None = None
    refused_share: float | None = None
    servers: int = 1


@dataclass(frozen=True, slots=True)
class Setting:
    """Where the levers stand. None: the lever is not there."""

    admitted: int | None = None
    queue: int | None = None
    delay: int | None = None

    def of(self, lever: Lever) -> int | None:
        """That of one lever."""
        found: int | None = getattr(self, lever)
        return found


@dataclass(frozen=True, slots=True)
class Track:
    """What is remembered of a lever: looks in a row that wanted the same way, when it moved last and which way."""

    way: int = 0
    looks: int = 0
    moved_at: float | None = None
    moved_way: int = 0


@dataclass(frozen=True, slots=True)
class Memory:
    """What is remembered between two looks; JSON and back by as_dict and of."""

    tracks: Mapping[str, Track] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """JSON form."""
        return {lever: asdict(track) for lever, track in self.tracks.items()}


def memory_of(value: Mapping[str, Any]) -> Memory:
    """What as_dict gave; whatever else is forgotten."""
    names = set(Track.__dataclass_fields__)
    return Memory(
        {
            lever: Track(**track)
            for lever, track in value.items()
            if lever in LEVERS and isinstance(track, Mapping) and set(track) == names
        }
    )


@dataclass(frozen=True, slots=True)
class Move:
    """One lever moved, and why."""

    lever: Lever
    before: int
    after: int
    reason: str
    sentence: str


@dataclass(frozen=True, slots=True)
class Wish:
    """Where a lever should go by this look alone."""

    target: int
    reason: str
    sentence: str


def decide(
    setting: Setting, bounds: Bounds, aim: Aim, pace: Pace, seen: Seen, memory: Memory, now: float
) -> tuple[Setting, Memory, tuple[Move, ...]]:
    """One look: where the levers stand from now on, what to remember, and the moves (often none)."""
    moves: list[Move] = []
    tracks: dict[str, Track] = dict(memory.tracks)
    wishes = {"admitted": _admitted, "queue": _queue, "delay": _delay}
    for lever in LEVERS:
        at = setting.of(lever)
        if at is None:
            continue
        low, high = bounds.of(lever)
        track = tracks.get(lever, Track())
        inside = min(high, max(low, at))
        if inside != at:
            move = Move(lever, at, inside, "bounds", f"It stood outside its bounds {low} to {high}.")
            setting = replace(setting, **{lever: inside})
            moves.append(move)
            tracks[lever] = Track(moved_at=now, moved_way=_way(inside - at))
            continue
        wish = wishes[lever](at, setting, aim, seen)
        target = at if wish is None else min(high, max(low, wish.target))
        way = _way(target - at)
        looks = track.looks + 1 if way and way == track.way else int(bool(way))
        tracks[lever] = replace(track, way=way, looks=looks)
        if wish is None or not way or looks < pace.hold or _rests(track, way, pace, now):
            continue
        setting = replace(setting, **{lever: target})
        moves.append(Move(lever, at, target, wish.reason, wish.sentence))
        tracks[lever] = Track(moved_at=now, moved_way=way)
    return setting, Memory(tracks), tuple(moves)


def _way(difference: float) -> int:
    return (difference > 0) - (difference < 0)


def _rests(track: Track, way: int, pace: Pace, now: float) -> bool:
    """Whether the lever moved too lately: twice the rest before it turns back."""
    if track.moved_at is None:
        return False
    rest = pace.settle_seconds * (2.0 if track.moved_way and track.moved_way != way else 1.0)
    return now - track.moved_at < rest


def _admitted(at: int, setting: Setting, aim: Aim, seen: Seen) -> Wish | None:
    if aim.itl_ms is None or seen.itl_ms is None or seen.requests < FEWEST_REQUESTS:
        return None
    share = seen.itl_ms / aim.itl_ms
    told = f"ITL p90 {seen.itl_ms:.0f} ms, promised {aim.itl_ms:.0f} ms"
    if share > HIGH:
        return Wish(min(at - 1, math.floor(at * FEWER)), "itl_beyond", f"{told}: fewer requests at once.")
    # A window in which the slots were not full says nothing about what more of them would do.
    if share < LOW and (seen.waiting or 0.0) >= 1.0:
        return Wish(at + 1, "room", f"{told}, and {seen.waiting:.0f} requests wait: one more at once.")
    return None


def _queue(at: int, setting: Setting, aim: Aim, seen: Seen) -> Wish | None:
    rate = seen.answers_per_second
    if aim.ttft_ms is None or rate is None or seen.requests < FEWEST_REQUESTS:
        return None
    beyond = seen.ttft_ms is not None and seen.ttft_ms > HIGH * aim.ttft_ms
    refusing = bool(seen.refused_share) and seen.ttft_ms is not None and seen.ttft_ms < LOW * aim.ttft_ms
    if not beyond and not refusing:
        return None
    target = max(0, math.floor(aim.ttft_ms / 1000 * rate))
    if abs(target - at) <= CLOSE * max(at, 1) and abs(target - at) < 2:
        return None
    told = f"TTFT p90 {seen.ttft_ms:.0f} ms, promised {aim.ttft_ms:.0f} ms at {rate:.1f} answers/s"
    if beyond and target < at:
        return Wish(target, "ttft_beyond", f"{told}: who would wait longer is refused at once.")
    if refusing and target > at:
        return Wish(target, "refusing", f"{told}, and requests are refused: more may wait.")
    return None


def _delay(at: int, setting: Setting, aim: Aim, seen: Seen) -> Wish | None:
    rate, slots = seen.arrivals_per_second, setting.admitted or 1
    if rate is None or seen.requests < FEWEST_REQUESTS:
        return None
    # Where requests wait anyway, batches are full without any delay.
    each = rate / max(1, seen.servers)
    usual = slots / 2 / each * MICRO if each > 0 else 0.0
    most = aim.ttft_ms * 1000 * MOST_DELAY_SHARE if aim.ttft_ms is not None else math.inf
    told = f"{rate:.1f} requests/s"
    if (seen.waiting or 0.0) >= slots * max(1, seen.servers):
        target, why = 0.0, f"{told} and {seen.waiting:.0f} wait: batches are full without waiting."
    elif each * min(usual, most) / MICRO < 1.0:
        target, why = 0.0, f"{told}: nobody would come in time."
    else:
        target = min(usual, most)
        why = f"{told}: half a batch comes in {target / 1000:.0f} ms."
    if abs(target - at) <= CLOSE * max(at, 1_000.0):
        return None
    return Wish(round(target), "arrivals", why)
