"""What one deployment needs next: which replicas to place, which servers to drain, when to switch, when to go back.

A pure function of what the rows say, called each second: level-triggered, so a lost event loses nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from apps.serving.domain.canary import Step, wanted_at
from apps.serving.domain.restarts import InstanceFact, Loop, counted, retry_at, stands_in_a_loop

__all__ = ["Decision", "InstanceFact", "Loop", "Policy", "RevisionFact", "Situation", "decide", "retry_at"]

# The same start would fail the same way: a person has to change something first.
DETERMINISTIC = frozenset(
    {
        "binary_missing",
        "config_refused",
        "load_failed",
        "start_failed",
        "binary_does_not_run",
        "engine_missing",
        "engine_does_not_fit",
        "repository_changed",
        "version_not_allowed",
        "ports_taken",
        "probe_refused",
        "several_hosts",
        "launcher_missing",
        "templates_missing",
        "backend_missing",
    }
)
# With a revision to go back to, the new one is not tried for ever: 1 + 2 s of waiting.
TRIES_OF_A_ROLLOUT = 3


@dataclass(frozen=True, slots=True)
class Policy:
    """How a change is rolled out: servers beyond the wanted number, servers that may be missing, and the longest time
    without progress (seconds). `canary` are the steps of weight that come before the rest; empty: none."""

    max_surge: int = 1
    max_unavailable: int = 0
    progress_seconds: float = 600.0
    canary: tuple[Step, ...] = ()


@dataclass(frozen=True, slots=True)
class RevisionFact:
    """A revision that runs or is about to. `step` is the canary's, null before the first and without one.

    `moved_at` is when something of the roll-out was last decided: its start, a step, the end of a pause.
    """

    id: int
    replicas: int
    step: int | None = None
    moved_at: datetime | None = None
    paused: bool = False
    promoted: bool = False


@dataclass(frozen=True, slots=True)
class Situation:
    """One deployment as its rows say. `pending` is the revision to roll out, null where none waits.

    `held`: it failed or waits for an engine, so nothing new is started before somebody presses a button or the
    engine is ready.
    """

    wanted: bool
    active: RevisionFact | None
    pending: RevisionFact | None
    instances: tuple[InstanceFact, ...]
    deployed_at: datetime | None
    now: datetime
    held: bool = False
    policy: Policy = Policy()

    @property
    def target(self) -> RevisionFact | None:
        """The revision that should run."""
        return self.pending or self.active

    @property
    def canary(self) -> bool:
        """Whether the pending revision is to be tried on a part of the requests first."""
        return bool(
            self.policy.canary
            and self.active is not None
            and self.pending is not None
            and not self.pending.promoted
        )

    @property
    def replicas(self) -> int:
        """The larger number of servers of the two revisions."""
        return max(each.replicas for each in (self.active, self.pending) if each is not None)


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do now.

    `place`: (revision, replica, restarts so far). `drain`: instance ids. `gave_up`: the revision that is not tried
    any more, with the instance whose failure says why, null where the time for progress ran out. `begin_canary`: the
    first step's servers serve. `switch`: the pending revision serves whole. `loops`: replicas that end again and
    again. `state` is what the deployment is: stopped, stopping, starting, ready, degraded, asleep or failed; null
    where nothing can be said.
    """

    place: tuple[tuple[int, int, int], ...] = ()
    drain: tuple[int, ...] = ()
    switch: bool = False
    gave_up: tuple[int, int | None] | None = None
    state: str | None = None
    begin_canary: bool = False
    loops: tuple[Loop, ...] = ()


def decide(situation: Situation) -> Decision:
    """The next step of one deployment."""
    live = [row for row in situation.instances if row.live]
    if not situation.wanted:
        drain = tuple(row.id for row in live if row.state != "draining")
        return Decision(drain=drain, state="stopping" if live else "stopped")
    if situation.target is None:
        return Decision(drain=tuple(row.id for row in live if row.state != "draining"))
    place, loops, gave_up = _placements(situation)
    leaving = {row.id for row in live if row.state != "draining" and _unwanted(situation, row)}
    pending = situation.pending
    if pending is None or pending.paused or gave_up is not None:
        return Decision(place, _ordered(leaving), False, gave_up, _state(situation, gave_up), False, loops)
    serving = _serving(situation, pending)
    begin = situation.canary and pending.step is None and serving >= wanted_new(situation)
    leaving |= _replaced(situation, leaving)
    return Decision(
        place=place,
        drain=_ordered(leaving),
        switch=not situation.canary and serving >= pending.replicas,
        gave_up=gave_up,
        state=_state(situation, gave_up),
        begin_canary=begin,
        loops=loops,
    )


def _ordered(ids: set[int]) -> tuple[int, ...]:
    return tuple(sorted(ids))


def wanted_new(situation: Situation) -> int:
    """Servers of the pending revision that should run now: of a canary as many as its weight asks for."""
    pending = situation.pending
    if pending is None:
        return 0
    if not situation.canary:
        return pending.replicas
    return wanted_at(situation.policy.canary[pending.step or 0].weight, pending.replicas)


def _kept_old(situation: Situation) -> int:
    """Servers of the active revision that must go on: all without a roll-out, at least one beside a canary."""
    active, pending = situation.active, situation.pending
    if active is None:
        return 0
    if pending is None:
        return active.replicas
    if situation.canary:
        return max(1, active.replicas - wanted_new(situation))
    return 0


def _unwanted(situation: Situation, row: InstanceFact) -> bool:
    kept = [revision for revision in (situation.active, situation.pending) if revision is not None]
    mine = next((revision for revision in kept if revision.id == row.revision), None)
    return row.stop_requested or mine is None or row.replica >= mine.replicas or _succeeded(situation, row)


def _succeeded(situation: Situation, row: InstanceFact) -> bool:
    """Whether a server that is to leave its node has a successor that serves."""
    return row.evicted and any(
        other.serves and not other.evicted
        for other in situation.instances
        if (other.revision, other.replica) == (row.revision, row.replica)
    )


def _replaced(situation: Situation, already: set[int]) -> set[int]:
    """Servers of the active revision that the new ones may take the place of now, within `max_unavailable`."""
    active, pending = situation.active, situation.pending
    if active is None or pending is None:
        return set()
    old = [
        row
        for row in situation.instances
        if row.revision == active.id and row.live and row.state != "draining" and row.id not in already
    ]
    surplus = len(old) - _kept_old(situation)
    serving = sum(1 for row in situation.instances if row.serves and row.id not in already)
    spare = serving - (situation.replicas - situation.policy.max_unavailable)
    found: set[int] = set()
    # Those that do not serve first, then the highest numbers, which a smaller revision would lose anyway.
    for row in sorted(old, key=lambda row: (row.serves, -row.replica)):
        if len(found) >= surplus:
            break
        if row.serves:
            if spare <= 0:
                break
            spare -= 1
        elif _serving(situation, pending) == 0:
            # Nothing new is proven yet: what is on its way to serve may still be needed.
            continue
        found.add(row.id)
    return found


def _serving(situation: Situation, revision: RevisionFact) -> int:
    return sum(1 for row in situation.instances if row.revision == revision.id and row.serves)


def _placements(
    situation: Situation,
) -> tuple[tuple[tuple[int, int, int], ...], tuple[Loop, ...], tuple[int, int | None] | None]:
    """What to start, what ends again and again, and whether a revision is given up."""
    if situation.held:
        return (), (), None
    place: list[tuple[int, int, int]] = []
    loops: list[Loop] = []
    active, pending = situation.active, situation.pending
    if active is not None:
        gave_up = _missing(situation, active, _kept_old(situation), place, loops)
        if gave_up is not None and pending is None:
            return (), (), gave_up
    if pending is not None and not pending.paused:
        new: list[tuple[int, int, int]] = []
        gave_up = _missing(situation, pending, wanted_new(situation), new, loops)
        if gave_up is None and _overdue(situation, pending):
            gave_up = (pending.id, None)
        if gave_up is not None:
            return tuple(place), tuple(loops), gave_up
        place += new[: _room_for_new(situation, len(place))]
    return tuple(place), tuple(loops), None


def _room_for_new(situation: Situation, others: int) -> int:
    """How many servers of the pending revision may be started now, within `max_surge`."""
    pending = situation.pending
    if situation.active is None or pending is None:
        return len(situation.instances) + (pending.replicas if pending else 0)
    # One that drains still counts where a slot is full; that is for the leases to say.
    running = sum(1 for row in situation.instances if row.live and row.state != "draining")
    return max(0, situation.replicas + situation.policy.max_surge - running - others)


def _missing(
    situation: Situation,
    revision: RevisionFact,
    wanted: int,
    place: list[tuple[int, int, int]],
    loops: list[Loop],
) -> tuple[int, int | None] | None:
    """Add the replicas of a revision that are due to `place`; the revision where it is not tried any more."""
    with_fallback = (
        situation.pending is not None
        and situation.active is not None
        and (revision.id == situation.pending.id)
    )
    # One that leaves its node still serves, and holds no replica's number any more.
    mine: Sequence[InstanceFact] = [
        row for row in situation.instances if row.revision == revision.id and not (row.evicted and row.live)
    ]
    here = sum(1 for row in mine if row.live and row.replica < revision.replicas)
    for replica in range(revision.replicas):
        rows = [row for row in mine if row.replica == replica]
        failures = counted(rows, situation.now, situation.deployed_at)
        if failures and not any(row.serves for row in rows) and stands_in_a_loop(failures):
            loops.append(Loop(revision.id, replica, len(failures), retry_at(failures), failures[-1].id))
        if any(row.live for row in rows):
            continue
        if failures and failures[-1].reason in DETERMINISTIC:
            return (revision.id, failures[-1].id)
        if with_fallback and len(failures) >= TRIES_OF_A_ROLLOUT:
            return (revision.id, failures[-1].id)
        if here < wanted and (not failures or situation.now >= retry_at(failures)):
            place.append((revision.id, replica, len(failures)))
            here += 1
    return None


def _overdue(situation: Situation, pending: RevisionFact) -> bool:
    """Whether a roll-out with something to go back to has made no progress for too long."""
    if situation.active is None or pending.moved_at is None:
        return False
    if _serving(situation, pending) >= wanted_new(situation):
        return False
    served = [
        row.serving_since
        for row in situation.instances
        if row.revision == pending.id and row.serves and row.serving_since is not None
    ]
    since = max([pending.moved_at, *served])
    return (situation.now - since).total_seconds() > situation.policy.progress_seconds


def _state(situation: Situation, gave_up: tuple[int, int | None] | None) -> str:
    active = situation.active
    serving = 0
    if active is not None and active.replicas == 0 and situation.pending is None:
        return "asleep"
    if active is not None:
        serving = _serving(situation, active)
        if situation.pending is not None:
            # Both take requests while servers are exchanged one by one.
            serving += _serving(situation, situation.pending)
        if serving >= active.replicas:
            return "ready"
    if serving:
        return "degraded"
    # With an active revision to fall back to, a failed roll-out is not the end.
    fallback = situation.pending is not None and active is not None
    return "failed" if gave_up is not None and not fallback else "starting"
