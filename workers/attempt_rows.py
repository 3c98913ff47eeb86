"""What attempts at builds and fetches share: how one ends, and writing to its row while the lease is held."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

from django.db import DatabaseError, connections

from workers.supervisor import StepResult
from workers.watch import Watch

log = logging.getLogger(__name__)
# How long a write of an attempt waits between tries for a database that does not answer.
DATABASE_PAUSE_SECONDS = 1.0


class Ended(Exception):
    """The attempt is over: a failure to write, of the kind that its row takes, or an order of the watch."""

    def __init__(self, failure: Any, order: str = "") -> None:
        super().__init__(order)
        self.failure, self.order = failure, order


def write_row(what: str, watch: Watch, write: Callable[[], bool]) -> None:
    """Write to the row of `what`; waits for a database that does not answer for as long as the lease is held.

    Raises Ended where another attempt owns the row, or the wait is over.
    """
    while True:
        try:
            if write():
                return
            raise Ended(None, "lost")
        except DatabaseError as error:
            log.warning("The row of %s cannot be written: %s", what, error)
            connections.close_all()
            order = watch.order()
            if order is not None:
                raise Ended(None, order) from error
            time.sleep(DATABASE_PAUSE_SECONDS)


def refuse_order(result: StepResult, watch: Watch) -> None:
    """Raise Ended where a step ended, or never began, because the watch said so."""
    if result.ending in ("cancelled", "lost", "stopped"):
        raise Ended(None, result.ending)
    if result.ending == "not_started":
        raise Ended(None, watch.order() or "lost")
