"""How many servers a deployment should have now: bounds, schedule, load, idleness and wakes in one pure function.

Called every few seconds with everything that it goes by, so it remembers nothing and a lost call loses nothing. The
same function decides in `benchmarks/autoscale.py`.

Flapping is prevented four times. A target has a tolerance. More servers must be asked for during all of
`up_window` (its smallest need counts), and by more than requests that come by chance explain: at once, or by the
mean over LONG_WINDOWS such windows in which the same servers served. Fewer must be asked for during all of
`down_window`: the largest of means over a fifth of it, and of what was asked for throughout some `up_window` in it.
After a change `up_cooldown` or `down_cooldown` passes. Missing figures never take a server away, and old figures
change nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Literal

from apps.serving.domain.autoscale_needs import (
    COVERED,
    SYMPTOMS,
    Need,
    Point,
    Target,
    covered,
    need,
    smoothed,
    value_of,
)
from apps.serving.domain.schedule import Entry, in_force

Cause = Literal["hold", "load", "schedule", "bounds", "idle", "wake"]
# Figures older than this say nothing about now: telemetry is asked every second, of a thousand servers every ten.
STALE_SECONDS = 20.0
# The window in which fewer must be asked for is looked at in so many stretches; by the means of each, fewer servers
# must be filled to no more than this part of their target.
STRETCHES = 5
FILLED_ON_AVERAGE = 0.7
# Requests in flight must be so many standard deviations (of a count) above their target in every moment of
# `up_window`, or above it on average over so many windows: a queue of a few seconds is no reason for a server
# that takes a minute.
CHANCE = 3.0
LONG_WINDOWS = 8
# A queue or a latency counts so many windows after all servers serve: what piled up before is still in it.
SETTLING_WINDOWS = 2
_ROOM_REASONS = frozenset({"no_free_share", "no_slot"})
_WORDS = {
    "in_flight": "requests of each server",
    "waiting": "waiting requests of each server",
    "ttft_ms": "TTFT p90 (ms)",
    "kv_use": "share of the KV cache in use",
    "gpu_use": "share of the GPU in use",
}


@dataclass(frozen=True, slots=True)
class Policy:
    """What a deployment's `scaling` says; times in seconds. `idle` null: it never sleeps; with it `least` is 0."""

    least: int = 1
    most: int = 1
    targets: tuple[Target, ...] = ()
    schedule: tuple[Entry, ...] = ()
    up_window: float = 15.0
    down_window: float = 300.0
    up_cooldown: float = 15.0
    down_cooldown: float = 60.0
    idle: float | None = None


@dataclass(frozen=True, slots=True)
class Situation:
    """One deployment now. Times are epoch seconds.

    `replicas`: what its configuration asks for; `current`: how many it should have at present; `serving`: how many
    serve. `rolling`: a change is being rolled out. `reason`: of its row, where placing found no room. `points`:
    oldest first, of the longest window. `asked`: requests that wait for it at the gateway. `since`: when it was
    deployed or woken last. `idle_points`: the same for the time of `idle`, where that is longer.
    """

    replicas: int
    current: int
    serving: int
    now: float
    points: tuple[Point, ...] = ()
    idle_points: tuple[Point, ...] = ()
    asked: int = 0
    rolling: bool = False
    reason: str = ""
    since: float | None = None
    last_up: float | None = None
    last_down: float | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """How many servers there should be. `cause` "hold": as many as now. `reason` is stable, `figures` led to it."""

    replicas: int
    cause: Cause
    reason: str
    sentence: str
    figures: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Asked:
    """What figures ask for, and over how many seconds they do."""

    need: Need
    seconds: float


@dataclass(frozen=True, slots=True)
class Bounds:
    """Fewest and most servers now; `text` names the entry of the schedule that says so, empty where none does."""

    least: int
    most: int
    text: str = ""


def bounds_at(policy: Policy, now: float) -> Bounds:
    """The bounds in force: the schedule's newest entry, for what it leaves open the policy's own."""
    found = in_force(policy.schedule, datetime.fromtimestamp(now, UTC))
    if found is None:
        return Bounds(policy.least, policy.most)
    entry, _moment = found
    least = policy.least if entry.least is None else entry.least
    most = policy.most if entry.most is None else entry.most
    # An entry that sets one of them takes the other along.
    if entry.least is not None:
        most = max(most, least)
    return Bounds(min(least, most), most, entry.text)


def decide(policy: Policy, situation: Situation) -> Decision:
    """How many servers the deployment should have."""
    bounds = bounds_at(policy, situation.now)
    if situation.current == 0:
        return _asleep(bounds, situation)
    if _falls_asleep(policy, bounds, situation):
        return Decision(
            0,
            "idle",
            "idle",
            f"Nothing was asked of it for {policy.idle:g} s: it sleeps until the next request.",
            {**_figures(policy, bounds, situation), "idle_seconds": policy.idle},
        )
    awake = Bounds(max(1, bounds.least), max(1, bounds.most), bounds.text)
    wanted = situation.current if policy.targets else situation.replicas
    clamped = min(max(wanted, awake.least), awake.most)
    if clamped != situation.current:
        return _to_bounds(policy, awake, situation, clamped)
    if not policy.targets:
        return _hold("steady", "It has the servers that its bounds ask for.", policy, awake, situation)
    return _by_load(policy, awake, situation)


def _asleep(bounds: Bounds, situation: Situation) -> Decision:
    figures = {"asked": situation.asked, "least": bounds.least, "schedule": bounds.text or None}
    if situation.asked:
        wanted = max(1, bounds.least)
        sentence = f"{_counted(situation.asked, 'request waits', 'requests wait')} for it: it is woken."
        return Decision(wanted, "wake", "asked", sentence, figures)
    if bounds.least > 0:
        return Decision(bounds.least, "schedule", "schedule", _said(bounds, bounds.least), figures)
    return Decision(0, "hold", "asleep", "It sleeps until a request comes.", figures)


def _falls_asleep(policy: Policy, bounds: Bounds, situation: Situation) -> bool:
    if policy.idle is None or bounds.least > 0 or situation.asked or situation.rolling:
        return False
    if situation.serving < situation.current:
        return False
    since = situation.now - policy.idle
    if situation.since is None or situation.since > since:
        return False
    seen = [point for point in situation.idle_points or situation.points if point.until > since]
    if not seen or _stale(seen, situation.now):
        return False
    return all(point.idle for point in seen) and covered(seen, since, situation.now) >= COVERED


def _to_bounds(policy: Policy, bounds: Bounds, situation: Situation, wanted: int) -> Decision:
    if wanted < situation.current and situation.rolling:
        return _hold(
            "rollout", "A change is being rolled out: no server is taken away.", policy, bounds, situation
        )
    cause: Cause = "schedule" if bounds.text else "bounds"
    return Decision(wanted, cause, cause, _said(bounds, wanted), _figures(policy, bounds, situation))


def _by_load(policy: Policy, bounds: Bounds, situation: Situation) -> Decision:
    now, current = situation.now, situation.current
    if _stale(situation.points, now):
        return _hold(
            "stale", "Its figures are old or there are none: nothing changes.", policy, bounds, situation
        )
    asked = _asked_throughout(policy, situation)
    up = (asked.need.servers or 0) if asked is not None else 0
    if asked is not None and min(up, bounds.most) > current:
        return _more(policy, bounds, situation, min(up, bounds.most), asked)
    if up > current:
        return _hold(
            "most", f"It has the most servers that it may have, {bounds.most}.", policy, bounds, situation
        )
    return _fewer(policy, bounds, situation)


def _asked_throughout(policy: Policy, situation: Situation) -> Asked | None:
    """What is asked for in the whole window in which more must be; null where it is not told throughout."""
    since = situation.now - policy.up_window
    seen = [point for point in situation.points if point.until > since]
    needs = [need(point, policy.targets) for point in seen]
    known = [each for each in needs if each.servers is not None]
    if not known or len(known) < len(needs) or covered(seen, since, situation.now) < COVERED:
        return None
    least = _least(known)
    if least.by in SYMPTOMS and not _settled(policy, situation):
        return None
    if (least.servers or 0) <= situation.current:
        return Asked(least, policy.up_window)
    sure = _least([need(point, policy.targets, chance=CHANCE) for point in seen])
    longer = _on_average(policy, situation)
    usual = _least([least, longer[0]]) if longer is not None else None
    if longer is not None and usual is not None and (usual.servers or 0) > (sure.servers or 0):
        return Asked(replace(longer[0], servers=usual.servers), longer[1])
    return Asked(sure, policy.up_window)


def _least(needs: Sequence[Need]) -> Need:
    return min(needs, key=lambda each: each.servers or 0)


def _on_average(policy: Policy, situation: Situation) -> tuple[Need, float] | None:
    """(need of the mean over the long window, its seconds); null where other servers served in some of it."""
    seconds = max(policy.up_window, min(LONG_WINDOWS * policy.up_window, policy.down_window))
    since = situation.now - seconds
    seen = [point for point in situation.points if point.until > since]
    same = all(point.servers is not None and round(point.servers) == situation.current for point in seen)
    if not same or covered(seen, since, situation.now) < COVERED:
        return None
    found = need(smoothed(seen, situation.now, seconds)[0], policy.targets)
    return (found, seconds) if found.servers is not None else None


def _settled(policy: Policy, situation: Situation) -> bool:
    """Whether all servers have served for long enough to tell by a symptom that they are too few."""
    since = situation.now - SETTLING_WINDOWS * policy.up_window
    seen = [point for point in situation.points if point.until > since]
    return all(point.servers is not None and round(point.servers) >= situation.current for point in seen)


def _more(policy: Policy, bounds: Bounds, situation: Situation, wanted: int, asked: Asked) -> Decision:
    figures = _figures(policy, bounds, situation)
    if situation.reason in _ROOM_REASONS and situation.serving < situation.current:
        sentence = f"{wanted} servers are needed, but those asked for before have no room yet."
        return Decision(situation.current, "hold", "no_room", sentence, figures)
    if _within(situation.last_up, policy.up_cooldown, situation.now):
        sentence = f"{wanted} servers are needed; the last change is less than {policy.up_cooldown:g} s ago."
        return Decision(situation.current, "hold", "cooldown", sentence, figures)
    name, value = asked.need.by or "in_flight", asked.need.value or 0.0
    target = next((each.value for each in policy.targets if each.metric == name), 0.0)
    often = (
        f"for {asked.seconds:g} s or more"
        if asked.seconds <= policy.up_window
        else f"on average over {asked.seconds:g} s"
    )
    sentence = f"{_WORDS[name]}: {value:.3g} {often}, the target is {target:g}."
    return Decision(wanted, "load", f"up_{name}", sentence[0].upper() + sentence[1:], figures)


def _fewer(policy: Policy, bounds: Bounds, situation: Situation) -> Decision:
    since = situation.now - policy.down_window
    newest = [point for point in situation.points if point.until > since]
    seen = smoothed(newest, situation.now, policy.down_window / STRETCHES)
    needs = [need(point, policy.targets, FILLED_ON_AVERAGE) for point in seen]
    told = [point for point, each in zip(seen, needs, strict=True) if not each.missing]
    most = max([_sustained(policy, newest), *(each.servers or 0 for each in needs)])
    wanted = min(max(most, bounds.least), situation.current)
    if wanted == situation.current:
        return _hold("steady", "Its servers are what the load asks for.", policy, bounds, situation)
    refused = _why_not_fewer(policy, situation, told, since)
    if refused is not None:
        return _hold(*refused, policy, bounds, situation)
    servers = _counted(wanted, "server", "servers")
    sentence = f"For {policy.down_window:g} s the load asked for no more than {servers}."
    return Decision(wanted, "load", "down", sentence, _figures(policy, bounds, situation))


def _sustained(policy: Policy, points: Sequence[Point]) -> int:
    """The most that was asked for throughout some `up_window`: with fewer servers more would have been added then."""
    found = 0
    needs = [need(point, policy.targets).servers for point in points]
    for first, point in enumerate(points):
        inside = []
        for later in range(first, len(points)):
            inside.append(needs[later])
            if points[later].until - point.at >= policy.up_window:
                found = max(found, min((each for each in inside if each is not None), default=0))
                break
    return found


def _why_not_fewer(
    policy: Policy, situation: Situation, told: Sequence[Point], since: float
) -> tuple[str, str] | None:
    """(reason, sentence) where fewer servers would do, as far as is known, but none is taken away."""
    if situation.rolling:
        return "rollout", "A change is being rolled out: no server is taken away."
    missing = need(situation.points[-1], policy.targets).missing
    if missing:
        names = ", ".join(_WORDS[name] for name in missing)
        return "missing", f"Not known: {names}. Without it no server is taken away."
    if covered(told, since, situation.now) < COVERED:
        return "missing", f"Too little is known of the last {policy.down_window:g} s to take a server away."
    if situation.serving < situation.current:
        return "starting", "Not all its servers serve: none is taken away."
    changed = max(situation.last_up or 0.0, situation.last_down or 0.0)
    if _within(changed or None, policy.down_cooldown, situation.now):
        return "cooldown", f"The last change is less than {policy.down_cooldown:g} s ago."
    if situation.since is not None and situation.since > since:
        return "new", f"It has run for less than {policy.down_window:g} s."
    return None


def _stale(points: Sequence[Point], now: float) -> bool:
    return not points or now - points[-1].until > STALE_SECONDS


def _within(moment: float | None, seconds: float, now: float) -> bool:
    return moment is not None and now - moment < seconds


def _hold(reason: str, sentence: str, policy: Policy, bounds: Bounds, situation: Situation) -> Decision:
    return Decision(situation.current, "hold", reason, sentence, _figures(policy, bounds, situation))


def _figures(policy: Policy, bounds: Bounds, situation: Situation) -> dict[str, Any]:
    """What is kept with a decision: the newest figures beside their targets, and what bounded it."""
    newest = situation.points[-1] if situation.points else None
    return {
        "current": situation.current,
        "serving": situation.serving,
        "least": bounds.least,
        "most": bounds.most,
        "schedule": bounds.text or None,
        "asked": situation.asked,
        "running": newest.running if newest else None,
        "waiting": newest.waiting if newest else None,
        "targets": {
            each.metric: {"is": value_of(newest, each.metric) if newest else None, "wanted": each.value}
            for each in policy.targets
        },
        "at": newest.until if newest else None,
    }


def _said(bounds: Bounds, wanted: int) -> str:
    servers = _counted(wanted, "server", "servers")
    if bounds.text:
        return f"The schedule ({bounds.text}) asks for {bounds.least} to {bounds.most}: {servers}."
    return f"Its bounds are {bounds.least} to {bounds.most}: {servers}."


def _counted(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"
