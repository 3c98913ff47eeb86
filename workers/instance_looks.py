"""What servers say of themselves, asked of all of them at once in each tick."""

from __future__ import annotations

import logging
import time
from functools import partial

from apps.serving import states
from apps.serving.models import Instance
from workers.instance_spec import server_identity, server_ports, server_spec
from workers.runtimes.base import Observation, ServerRuntime
from workers.runtimes.jobs import Jobs

log = logging.getLogger(__name__)

# Each answer of a server to one look; what takes longer is read by a later tick.
LOOK_SECONDS = 2.0


class Looks:
    """Answers of the last look, and since when something odd has been seen. Losing it loses nothing."""

    def __init__(self, runtime: ServerRuntime, jobs: Jobs) -> None:
        self.runtime = runtime
        self.jobs = jobs
        self._seen: dict[tuple[str, int], Observation] = {}
        self._odd_since: dict[tuple[str, int, str], float] = {}
        self._moved: dict[tuple[str, int], tuple[float | None, float]] = {}
        self._misses: dict[tuple[str, int], int] = {}

    def look_at(self, rows: list[Instance], seconds: float) -> None:
        """Ask every server how it is and wait for the answers at most `seconds`.

        An answer that comes later is read by a later tick, so a server that hangs holds nobody up.
        """
        self._seen.clear()
        self._ask(rows, seconds)

    def look_again(self, row: Instance, seconds: float) -> None:
        """Ask one server anew, where what is known of it may be older than what just happened."""
        self.jobs.forget(lambda key: key == (row.uid, row.attempt, "look"))
        self._ask([row], seconds)

    def _ask(self, rows: list[Instance], seconds: float) -> None:
        keys: dict[tuple[str, int, str], Instance] = {}
        for row in rows:
            identity = server_identity(row)
            if row.state in states.INSTANCE_LIVE and identity is not None and self.runtime.adopt(identity):
                key = (row.uid, row.attempt, "look")
                look = partial(self.runtime.observe, server_spec(row), server_ports(row), LOOK_SECONDS)
                self.jobs.start(key, look)
                keys[key] = row
        self.jobs.wait(keys, seconds)
        for key, row in keys.items():
            try:
                found = self.jobs.take(key)
            except Exception:
                # One server that cannot be looked at must not keep the others waiting.
                log.exception("instance %s could not be looked at", row.uid)
                continue
            if found is not None:
                self._seen[(row.uid, row.attempt)] = found

    def of(self, row: Instance) -> Observation | None:
        """What the server said in this tick, null where it has not answered (yet) or another one answered."""
        found = self._seen.get((row.uid, row.attempt))
        if found is not None and found.live and found.server_id != row.uid:
            return None
        return found

    def for_seconds(self, row: Instance, oddity: str, odd: bool) -> float:
        """How long something odd has been seen without a break, as this process knows."""
        key = (row.uid, row.attempt, oddity)
        if not odd:
            self._odd_since.pop(key, None)
            return 0.0
        return time.monotonic() - self._odd_since.setdefault(key, time.monotonic())

    def still_for(self, row: Instance, progress: float | None) -> float:
        """How long a server has shown no progress, as this process knows; one that does not tell shows none."""
        key = (row.uid, row.attempt)
        known = self._moved.get(key)
        if known is None or (progress is not None and known[0] != progress):
            self._moved[key] = (progress, time.monotonic())
            self._misses.pop(key, None)
            return 0.0
        return time.monotonic() - known[1]

    def missed(self, row: Instance, answered: bool) -> int:
        """Probes in a row that a server that should generate has not answered, this one counted."""
        key = (row.uid, row.attempt)
        self._misses[key] = 0 if answered else self._misses.get(key, 0) + 1
        known = self._moved.get(key)
        if answered and known is not None:
            # A model that takes no text answers without computing: it is asked again after the same time.
            self._moved[key] = (known[0], time.monotonic())
        return self._misses[key]

    def forget(self, uid: str) -> None:
        """Nothing of this instance is of interest any more."""
        self.jobs.forget(lambda key: isinstance(key, tuple) and key[0] == uid)
        self._odd_since = {key: since for key, since in self._odd_since.items() if key[0] != uid}
        self._moved = {key: known for key, known in self._moved.items() if key[0] != uid}
        self._misses = {key: count for key, count in self._misses.items() if key[0] != uid}
