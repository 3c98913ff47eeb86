"""Watches over one attempt: renews its lease, sees a cancel, and says when the work must end."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from django.db import connections

from apps.core import clock
from apps.engines.attempts import Renewal
from apps.engines.policy import GIVE_UP_AFTER_SECONDS, RENEW_EVERY_SECONDS

log = logging.getLogger(__name__)
# Cancel is seen within this; ending the tree takes up to 3 s more, and both together stay under 5 s.
POLL_SECONDS = 0.5

Order = Literal["cancelled", "lost", "stopped"]


@dataclass(frozen=True, slots=True)
class Duties:
    """What the watch calls: `renew` the lease, ask whether cancel was pressed, ask whether this worker stops."""

    renew: Callable[[], Renewal]
    cancelled: Callable[[], bool]
    stopping: Callable[[], bool]


class Watch(threading.Thread):
    """Polls until `stop`. `order()` says whether the work must end now, and why; `woken` is set when it changes.

    A database that does not answer is waited for, up to 30 s without a renewal: then another worker may soon own
    the build, and the work must end. That is judged by the caller's thread, which no stuck query can hold up.
    """

    def __init__(
        self,
        duties: Duties,
        *,
        renew_every: float = RENEW_EVERY_SECONDS,
        give_up_after: float = GIVE_UP_AFTER_SECONDS,
        poll_every: float = POLL_SECONDS,
    ) -> None:
        super().__init__(name="watch", daemon=True)
        self.woken = threading.Event()
        self._duties = duties
        self._renew_every, self._give_up_after, self._poll_every = renew_every, give_up_after, poll_every
        self._renewed_at = clock.monotonic()
        self._order: Order | None = None
        self._ended = threading.Event()

    def order(self) -> Order | None:
        """Why the work must end now, or None while it may go on."""
        if self._order is None and clock.monotonic() - self._renewed_at > self._give_up_after:
            return "lost"
        return self._order

    def stop(self) -> None:
        """End the thread; the lease is renewed no more."""
        self._ended.set()
        self.join(timeout=self._poll_every + 1)

    def run(self) -> None:
        """Poll, renew, survive what the database does."""
        try:
            while not self._ended.wait(self._poll_every):
                try:
                    self._look()
                except Exception as error:
                    log.warning("The build's row cannot be reached: %s", error)
                    connections.close_all()
        finally:
            connections.close_all()

    def _look(self) -> None:
        asked_at = clock.monotonic()
        if asked_at - self._renewed_at >= self._renew_every:
            renewal = self._duties.renew()
            if not renewal.held:
                self._give("lost")
            else:
                # From before the query: that is when the lease certainly still had its full length to run.
                self._renewed_at = asked_at
        if self._duties.cancelled():
            self._give("cancelled")
        elif self._duties.stopping():
            self._give("stopped")

    def _give(self, order: Order) -> None:
        if self._order is None:
            self._order = order
            self.woken.set()
