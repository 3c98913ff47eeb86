"""What one deployment needs next: which replicas to place, which servers to drain, when to switch, when to give up.

A pure function of what the rows say, called each second: level-triggered, so a lost event loses nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

# Triton supervisor policy (reference 6.7): 1, 2, 4 ... 60 s, up at most five exits in ten minutes.
BACKOFF_FIRST_SECONDS = 1.0
BACKOFF_MOST_SECONDS = 60.0
FAILURES_ALLOWED = 5
FAILURE_WINDOW = timedelta(minutes=10)
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
    }
)
LIVE = frozenset({"placed", "spawned", "loading", "serving", "draining", "unreachable"})


@dataclass(frozen=True, slots=True)
class RevisionFact:
    """A revision that runs or is about to."""

    id: int
    replicas: int


@dataclass(frozen=True, slots=True)
class InstanceFact:
    """One instance row; `failed_at` is null for one that did not fail."""

    id: int
    revision: int
    replica: int
    state: str
    reason: str = ""
    stop_requested: bool = False
    failed_at: datetime | None = None

    @property
    def live(self) -> bool:
        """Whether it has, or is about to have, a process."""
        return self.state in LIVE

    @property
    def serves(self) -> bool:
        """Whether it may be given requests."""
        return self.state == "serving" and not self.stop_requested


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

    @property
    def target(self) -> RevisionFact | None:
        """The revision that should run."""
        return self.pending or self.active


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do now.

    `place`: (revision, replica, restarts so far). `drain`: instance ids. `gave_up`: the revision that is not tried
    any more, with the instance whose failure says why. `switch`: the pending revision serves whole. `state` is what
    the deployment is: stopped, stopping, starting, ready, degraded or failed; null where nothing can be said.
    """

    place: tuple[tuple[int, int, int], ...] = ()
    drain: tuple[int, ...] = ()
    switch: bool = False
    gave_up: tuple[int, int] | None = None
    state: str | None = None


def decide(situation: Situation) -> Decision:
    """The next step of one deployment."""
    live = [row for row in situation.instances if row.live]
    if not situation.wanted:
        drain = tuple(row.id for row in live if row.state != "draining")
        return Decision(drain=drain, state="stopping" if live else "stopped")
    target = situation.target
    if target is None:
        return Decision(drain=tuple(row.id for row in live if row.state != "draining"))
    place, gave_up = _placements(situation, target)
    switch = situation.pending is not None and _serving(situation, situation.pending) >= target.replicas
    return Decision(
        place=tuple(place),
        drain=tuple(row.id for row in live if row.state != "draining" and _unwanted(situation, row)),
        switch=switch,
        gave_up=gave_up,
        state=_state(situation, gave_up),
    )


def _unwanted(situation: Situation, row: InstanceFact) -> bool:
    kept = [revision for revision in (situation.active, situation.pending) if revision is not None]
    mine = next((revision for revision in kept if revision.id == row.revision), None)
    return row.stop_requested or mine is None or row.replica >= mine.replicas


def _serving(situation: Situation, revision: RevisionFact) -> int:
    return sum(1 for row in situation.instances if row.revision == revision.id and row.serves)


def _placements(
    situation: Situation, target: RevisionFact
) -> tuple[list[tuple[int, int, int]], tuple[int, int] | None]:
    place: list[tuple[int, int, int]] = []
    if situation.held:
        return place, None
    for replica in range(target.replicas):
        mine = [row for row in situation.instances if (row.revision, row.replica) == (target.id, replica)]
        if any(row.live for row in mine):
            continue
        failures = _counted(mine, situation)
        if failures and (failures[-1].reason in DETERMINISTIC or len(failures) >= FAILURES_ALLOWED):
            return [], (target.id, failures[-1].id)
        if not failures or situation.now >= retry_at(failures):
            place.append((target.id, replica, len(failures)))
    return place, None


def _counted(rows: Iterable[InstanceFact], situation: Situation) -> list[InstanceFact]:
    """Failures that count, oldest first: in the window, and after the last press of a button."""
    since = situation.now - FAILURE_WINDOW
    if situation.deployed_at is not None:
        since = max(since, situation.deployed_at)
    found = [row for row in rows if row.failed_at is not None and row.failed_at >= since]
    return sorted(found, key=lambda row: (row.failed_at, row.id))


def retry_at(failures: list[InstanceFact]) -> datetime:
    """When the replica of these failures is started again: exponential, with a spread that its id gives."""
    last = failures[-1]
    failed_at = last.failed_at or datetime.min.replace(tzinfo=UTC)
    wait = min(BACKOFF_FIRST_SECONDS * 2 ** (len(failures) - 1), BACKOFF_MOST_SECONDS)
    spread = 0.8 + 0.4 * ((last.id * 2654435761) % 997) / 997
    return failed_at + timedelta(seconds=wait * spread)


def _state(situation: Situation, gave_up: tuple[int, int] | None) -> str:
    active = situation.active
    serving = _serving(situation, active) if active is not None else 0
    if active is not None and serving >= active.replicas:
        return "ready"
    if serving:
        return "degraded"
    # With an active revision to fall back to, a failed roll-out is not the end.
    fallback = situation.pending is not None and active is not None
    return "failed" if gave_up is not None and not fallback else "starting"
