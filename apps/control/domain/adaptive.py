"""Adaptive batching: a controller that moves admitted concurrency, queue limit and queue delay within bounds.

It looks at what the last window showed and moves one step at a time, each lever by the figure that it acts on:

- **admitted** (requests that a server computes at once): more sequences make every step longer, so it is lowered
  in proportion where the time between tokens is beyond what is promised, and raised in proportion where it is well
  within and somebody waits. A step takes at most in proportion to its sequences, so what is raised like that stays
  within; one move changes it by a fifth or a quarter at most.
- **queue** (requests that may wait): as many as can still have their first token in time: the last of them nine
  times out of ten, at the answers/s that all slots give. It is lowered where first tokens come late, and as soon as
  more wait than that, because theirs will.
- **delay** (microseconds that a batch waits for company): the time in which about half a batch arrives, at most a
  quarter of the promised TTFT; 0 where nobody would come.

Hysteresis: between `low` and `high` of a promise nothing moves; a figure must be beyond for `hold` looks in a
row, a queue of which most would come too late for one; a lever rests for `settle_seconds` after it moved, twice as
long before it turns back. What is absent moves nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any, Literal

Lever = Literal["admitted", "queue", "delay"]
LEVERS: tuple[Lever, ...] = ("admitted", "queue", "delay")
# Shares of a promise: above `high` it is not kept, below `low` there is room; between them nothing moves.
HIGH, LOW = 1.0, 0.8
# What a move of the admitted aims at, and how much one may change: the edge of a promise is not kept by half of all.
AIMED = 0.9
FEWER, MORE = 0.8, 1.25
# Standard deviations of a count (its square root) that the queue leaves free: nine of ten come in time.
FREE = 1.28
# So many times as many waiting as can be in time are lowered without a second look.
URGENT = 2.0
# A target that is less than this share away from where a lever stands is the same.
CLOSE = 0.25
FEWEST_REQUESTS = 5
MOST_DELAY_SHARE = 0.25
# From so much of the slots' time in use on, answers/s tell what all of them give; how much a look counts of that.
BUSY, NEWEST = 0.7, 0.3
BUSY_RATE = "busy_rate"
MICRO = 1_000_000.0
_REFUSED = "who would wait longer is refused at once."


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
    `slot_seconds`: how long an answer held its slot, the mean.
    """

    requests: int = 0
    arrivals_per_second: float | None = None
    answers_per_second: float | None = None
    waiting: float | None = None
    running: float | None = None
    ttft_ms: float | None = None
    itl_ms: float | None = None
    slot_seconds: float | None = None
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
    """What is remembered between two looks: of each lever, and answers/s that came while the slots were busy.

    JSON and back by as_dict and memory_of.
    """

    tracks: Mapping[str, Track] = field(default_factory=dict)
    busy_rate: float | None = None

    def as_dict(self) -> dict[str, Any]:
        """JSON form."""
        found: dict[str, Any] = {lever: asdict(track) for lever, track in self.tracks.items()}
        return found if self.busy_rate is None else {**found, BUSY_RATE: self.busy_rate}


def memory_of(value: Mapping[str, Any]) -> Memory:
    """What as_dict gave; whatever else is forgotten."""
    names = set(Track.__dataclass_fields__)
    tracks: dict[str, Track] = {
        str(lever): Track(**track)
        for lever, track in value.items()
        if lever in LEVERS and isinstance(track, Mapping) and set(track) == names
    }
    rate = value.get(BUSY_RATE)
    known = isinstance(rate, int | float) and not isinstance(rate, bool) and rate > 0
    return Memory(tracks, float(rate) if known and rate is not None else None)


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
    """Where a lever should go by this look alone; `urgent`: without a second one."""

    target: int
    reason: str
    sentence: str
    urgent: bool = False


def decide(
    setting: Setting, bounds: Bounds, aim: Aim, pace: Pace, seen: Seen, memory: Memory, now: float
) -> tuple[Setting, Memory, tuple[Move, ...]]:
    """One look: where the levers stand from now on, what to remember, and the moves (often none)."""
    moves: list[Move] = []
    tracks: dict[str, Track] = dict(memory.tracks)
    rate = busy_rate(setting, seen, memory.busy_rate)
    wishes: dict[str, Callable[[int, Setting, Aim, Seen], Wish | None]] = {
        "admitted": _admitted,
        "queue": partial(_queue, busy=rate),
        "delay": _delay,
    }
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
        if wish is None or not way or _rests(track, way, pace, now):
            continue
        if looks < pace.hold and not wish.urgent:
            continue
        setting = replace(setting, **{lever: target})
        moves.append(Move(lever, at, target, wish.reason, wish.sentence))
        tracks[lever] = Track(moved_at=now, moved_way=way)
    return setting, Memory(tracks, rate), tuple(moves)


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
    usual = math.floor(at * AIMED / share) if share > 0 else at
    if share > HIGH:
        target = min(at - 1, max(usual, math.floor(at * FEWER)))
        return Wish(target, "itl_beyond", f"{told}: fewer requests at once.")
    # A window in which the slots were not full says nothing about what more of them would do.
    if share < LOW and (seen.waiting or 0.0) >= 1.0:
        target = max(at + 1, min(usual, math.floor(at * MORE)))
        return Wish(target, "room", f"{told}, and {seen.waiting:.0f} requests wait: more at once.")
    return None


def _queue(at: int, setting: Setting, aim: Aim, seen: Seen, busy: float | None = None) -> Wish | None:
    if aim.ttft_ms is None or seen.requests < FEWEST_REQUESTS:
        return None
    waiting = seen.waiting or 0.0
    # Before it is known what all slots give: the most that they could, so that nobody is refused for nothing.
    most = busy if busy is not None else _rate_of_slots(setting, seen)
    if most is not None and waiting > (answered := aim.ttft_ms / 1000 * most):
        target, urgent = in_time(answered), waiting > URGENT * answered
        text = (
            f"{waiting:.0f} requests wait, {aim.ttft_ms:.0f} ms promised at {most:.1f} answers/s: {_REFUSED}"
        )
        return Wish(target, "queue_beyond", text, urgent) if _apart(target, at) and target < at else None
    rate = busy if busy is not None else seen.answers_per_second
    if rate is None or seen.ttft_ms is None:
        return None
    target = in_time(aim.ttft_ms / 1000 * rate)
    told = f"TTFT p90 {seen.ttft_ms:.0f} ms, promised {aim.ttft_ms:.0f} ms at {rate:.1f} answers/s"
    if not _apart(target, at):
        return None
    if target < at and seen.ttft_ms > HIGH * aim.ttft_ms:
        return Wish(target, "ttft_beyond", f"{told}: {_REFUSED}")
    if target > at and seen.refused_share and seen.ttft_ms < LOW * aim.ttft_ms:
        return Wish(target, "refusing", f"{told}, and requests are refused: more may wait.")
    return None


def _apart(target: int, at: int) -> bool:
    """Whether a move is worth it."""
    return abs(target - at) >= 2 or abs(target - at) > CLOSE * max(at, 1)


def _rate_of_slots(setting: Setting, seen: Seen) -> float | None:
    """Answers/s of all slots, if each held its slot as long as the last ones did; fewer come where more run."""
    if setting.admitted is None or not seen.slot_seconds:
        return None
    return setting.admitted * max(1, seen.servers) / seen.slot_seconds


def busy_rate(setting: Setting, seen: Seen, known: float | None) -> float | None:
    """Answers/s with every slot busy: learnt while most are, because with free slots no more come than are asked.

    Slots in use are answers/s x seconds that an answer holds one (Little's law).
    """
    rate, held = seen.answers_per_second, seen.slot_seconds
    if setting.admitted is None or not rate or not held or seen.requests < FEWEST_REQUESTS:
        return known
    slots = setting.admitted * max(1, seen.servers)
    if rate * held < BUSY * slots:
        return known
    found = max(rate, slots / held)
    return found if known is None else (1 - NEWEST) * known + NEWEST * found


def in_time(answered: float) -> int:
    """How many may wait where so many are answered in the promised time: k + FREE x sqrt(k) of them, at least 0."""
    root = (math.sqrt(FREE**2 + 4 * max(0.0, answered)) - FREE) / 2
    return math.floor(root**2)


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
