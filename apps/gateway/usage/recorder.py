"""Records of ended requests: taken without waiting, written in batches by one thread.

    recorder = Recorder(); recorder.start()      # or run() in a thread of one's own
    recorder.put(record)                          # never waits
    recorder.stop()                               # writes what is left

What is in memory when the process is killed is lost: at most FLUSH_SECONDS of records while the database answers.
While it does not, counts are kept for every key, route and hour, and the newest KEPT requests of the list.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable

from django.db import close_old_connections, connections

from apps.gateway.domain.facts import RequestRecord
from apps.gateway.usage import store
from apps.gateway.usage.counting import Counts, Place

log = logging.getLogger(__name__)

FLUSH_SECONDS = 0.5
# Requests of the list that are kept while the database is away, and that one transaction writes.
KEPT = 20_000
BATCH = 500
RETRY_SECONDS = (0.5, 1.0, 2.0, 5.0)

BodyDays = Callable[[str], int]


class Recorder:
    """Takes records from any thread. `lost` counts requests that left the list unwritten; their counts are kept."""

    def __init__(self, body_days: BodyDays | None = None) -> None:
        self._body_days = body_days or (lambda route: 7)
        self._new: deque[RequestRecord] = deque()
        self._list: deque[RequestRecord] = deque()
        self._counts: dict[Place, Counts] = {}
        self._used: dict[int, float] = {}
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._failures = 0
        self.lost = 0

    def put(self, record: RequestRecord) -> None:
        """Take a record; it is written within FLUSH_SECONDS while the database answers."""
        self._new.append(record)

    @property
    def waiting(self) -> int:
        """Records that are not written yet."""
        return len(self._new) + len(self._list)

    def start(self) -> None:
        """Write from a thread of the recorder's own."""
        self._thread = threading.Thread(target=self.run, name="gateway-recorder", daemon=True)
        self._thread.start()

    def run(self) -> None:
        """Write until `stop`, then what is left once more."""
        while not self._stop.wait(self._pause()):
            self.flush()
        self.flush()
        connections.close_all()

    def stop(self, seconds: float = 5.0) -> None:
        """Write what is left and end the thread; waits for that at most `seconds`."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(seconds)
            self._thread = None
        if self.waiting or self._counts:
            log.error("%d records of requests could not be written before the end.", self.waiting)

    def flush(self) -> bool:
        """Write everything that there is now; False where the database did not take it."""
        self._sort_in()
        close_old_connections()
        try:
            while self._counts or self._list or self._used:
                self._write_once()
        except Exception as error:
            # Whatever it is, records must not end for it: they are written when the cause is gone.
            if not self._failures:
                log.exception("Records of requests cannot be written; they are kept: %s", error)
            self._failures += 1
            return False
        if self._failures:
            log.warning("Records of requests are written again.")
        self._failures = 0
        return True

    def _pause(self) -> float:
        if not self._failures:
            return FLUSH_SECONDS
        return RETRY_SECONDS[min(self._failures, len(RETRY_SECONDS)) - 1]

    def _sort_in(self) -> None:
        while self._new:
            record = self._new.popleft()
            self._counts.setdefault(Place.of(record), Counts()).add(record)
            if record.key_id is not None:
                self._used[record.key_id] = max(self._used.get(record.key_id, 0.0), record.at)
            else:
                # Nobody's requests are counted, but fill no list.
                continue
            self._list.append(record)
            if len(self._list) > KEPT:
                self._list.popleft()
                self.lost += 1

    def _write_once(self) -> None:
        """One transaction: all counts, the times of last use, and the next requests of the list."""
        batch = [self._list[index] for index in range(min(BATCH, len(self._list)))]
        store.write(self._counts, self._used, batch, self._body_days, time.time())
        self._counts, self._used = {}, {}
        for _record in batch:
            self._list.popleft()
