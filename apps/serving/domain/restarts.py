"""When a server that ended is started again: exponential, capped, spread, forgotten after ten healthy minutes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

BACKOFF_FIRST_SECONDS = 1.0
BACKOFF_MOST_SECONDS = 300.0
# A server that served this long before it ended begins a new count.
HEALTHY = timedelta(minutes=10)
# From so many ends in a row on a replica is said to be in a crash loop.
LOOP_ENDS = 3
LIVE = frozenset({"placed", "spawned", "loading", "serving", "draining", "unreachable"})


@dataclass(frozen=True, slots=True)
class InstanceFact:
    """One instance row; `failed_at` is null for one that did not fail, `serving_since` for one that never served.

    `evicted`: it is to leave its node and has given its replica's number to a successor; it serves until that does.
    """

    id: int
    revision: int
    replica: int
    state: str
    reason: str = ""
    stop_requested: bool = False
    failed_at: datetime | None = None
    serving_since: datetime | None = None
    evicted: bool = False

    @property
    def live(self) -> bool:
        """Whether it has, or is about to have, a process."""
        return self.state in LIVE

    @property
    def serves(self) -> bool:
        """Whether it may be given requests."""
        return self.state == "serving" and not self.stop_requested


@dataclass(frozen=True, slots=True)
class Loop:
    """A replica that ended `ends` times in a row; it is started again at `again`. `instance` ended last."""

    revision: int
    replica: int
    ends: int
    again: datetime
    instance: int


def counted(rows: Iterable[InstanceFact], now: datetime, deployed_at: datetime | None) -> list[InstanceFact]:
    """Failures of one replica that count, oldest first.

    After the last press of a button, and none before a server that was healthy: one that served ten minutes and then
    ended is the first of a new count, one that has been serving for ten minutes ends the count.
    """
    known = list(rows)
    healthy = any(
        row.serves and row.serving_since is not None and now - row.serving_since >= HEALTHY for row in known
    )
    if healthy:
        return []
    failed = [
        row
        for row in known
        if row.failed_at is not None and (deployed_at is None or row.failed_at >= deployed_at)
    ]
    failed.sort(key=lambda row: (row.failed_at, row.id), reverse=True)
    found: list[InstanceFact] = []
    for row in failed:
        found.append(row)
        if _was_healthy(row):
            break
    return found[::-1]


def _was_healthy(row: InstanceFact) -> bool:
    if row.serving_since is None or row.failed_at is None:
        return False
    return row.failed_at - row.serving_since >= HEALTHY


def retry_at(failures: Sequence[InstanceFact]) -> datetime:
    """When the replica of these failures is started again: exponential, with a spread that its id gives."""
    last = failures[-1]
    failed_at = last.failed_at or datetime.min.replace(tzinfo=UTC)
    wait = min(BACKOFF_FIRST_SECONDS * 2 ** min(len(failures) - 1, 30), BACKOFF_MOST_SECONDS)
    spread = 0.8 + 0.4 * ((last.id * 2654435761) % 997) / 997
    return failed_at + timedelta(seconds=min(wait * spread, BACKOFF_MOST_SECONDS))


def stands_in_a_loop(failures: Sequence[InstanceFact]) -> bool:
    """Whether so many ends in a row are worth saying."""
    return len(failures) >= LOOP_ENDS
