"""One claimed attempt at a row's work by supervised child processes: what load runs, quality runs and fetches share.

A subclass says what is done (`_work`) and what its app writes; lease, orders, log, the child's identity on the row,
progress and how an attempt ends stand here. Builds have an attempt of their own: theirs has stages and devices.
"""

from __future__ import annotations

import logging
import shutil
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

from celery.exceptions import SoftTimeLimitExceeded
from django.conf import settings
from django.db import DatabaseError, connections
from django.utils.translation import gettext as _

from apps.core.exceptions import InflightError
from apps.engines.attempts import Renewal
from apps.fleet.processes import ProcessIdentity, end_tree, mark_of
from workers.attempt_rows import Ended, write_row
from workers.pumps import LogFile
from workers.stopping import stopping
from workers.supervisor import Supervisor
from workers.watch import Duties, Watch

log = logging.getLogger(__name__)
CHECKOUT = Path(__file__).resolve().parents[1]
END_PREVIOUS_SECONDS = 1.0


class ChildAttempt(ABC):
    """One claimed attempt. `previous` is the child that the attempt before may have left on this host."""

    # Whether what an attempt before wrote stays.
    keeps_folder: ClassVar[bool] = False
    # Seconds between two writes of progress.
    progress_every: ClassVar[float] = 2.0

    def __init__(
        self, row: Any, number: int, worker: str, previous: ProcessIdentity | None, folder: Path
    ) -> None:
        self.row, self.number, self.worker, self.previous, self.folder = row, number, worker, previous, folder
        self.written_at = 0.0

    # ------------------------------------------------------------------ what a kind of work says

    @abstractmethod
    def _work(self, output: LogFile, watch: Watch) -> None:
        """Do it; write the row when it is done. Raises Ended or InflightError."""

    @abstractmethod
    def _renew(self) -> bool:
        """Renew the lease; False where it is lost."""

    @abstractmethod
    def _must_end(self) -> bool:
        """Whether somebody wants the child ended now."""

    @abstractmethod
    def _amend(self, **columns: Any) -> bool:
        """Write what is known now; False where fenced off."""

    @abstractmethod
    def _ending(self, ended: Ended) -> Callable[[], bool] | None:
        """What writes this end to the row; None where it is not ours to write any more."""

    @abstractmethod
    def _failure(self, reason: str, sentence: str, remedy: str) -> Any:
        """A failure of the kind that the row takes."""

    def _explained(self, error: Exception) -> Any:
        """The failure that an error is which says what is wrong itself; None for any other."""
        return (
            self._failure(error.code, error.sentence, error.remedy)
            if isinstance(error, InflightError)
            else None
        )

    @abstractmethod
    def _overdue(self) -> Any:
        """The failure of one that outlived its deadline."""

    @abstractmethod
    def _columns(self, done: float, total: float) -> dict[str, Any]:
        """What the row says of how far it is."""

    def _log_path(self) -> Path:
        return self.folder / "log.txt"

    def _after(self) -> None:  # noqa: B027 - most take nothing besides
        """Whatever happened: give back what was taken besides the child."""

    # ------------------------------------------------------------------ the attempt

    def run(self) -> None:
        """Work, then write how it ended."""
        duties = Duties(
            renew=lambda: Renewal(self._renew(), False), cancelled=self._must_end, stopping=stopping
        )
        watch = Watch(duties)
        watch.start()
        output: LogFile | None = None
        try:
            self._end_previous()
            if not self.keeps_folder:
                shutil.rmtree(self.folder, ignore_errors=True)
            output = LogFile(self._log_path())
            self._work(output, watch)
        except Exception as error:
            self._write_end(watch, self._ended_by(error))
        finally:
            watch.stop()
            self._after()
            if output is not None:
                output.close()

    def _ended_by(self, error: Exception) -> Ended:
        if isinstance(error, Ended):
            return error
        if isinstance(error, SoftTimeLimitExceeded):
            return Ended(self._overdue())
        explained = self._explained(error)
        if explained is not None:
            return Ended(explained)
        # A fault of ours: the row says so at once instead of waiting for its lease to run out.
        log.error("%s, attempt %d failed in the worker itself.", self._name, self.number, exc_info=error)
        return Ended(
            self._failure(
                "internal_error",
                _("The worker itself failed: %(error)s.") % {"error": f"{type(error).__name__}: {error}"},
                _("Report it with the worker's log under logs/, then try again."),
            )
        )

    @property
    def _name(self) -> str:
        return f"{self.row.kind} {self.row}"

    def _end_previous(self) -> None:
        """A new attempt first ends what the last one may have left running on this host."""
        if self.number > 1:
            end_tree(self._mark(self.number - 1), self.previous, END_PREVIOUS_SECONDS)

    def _mark(self, attempt: int) -> str:
        return mark_of(settings.INFLIGHT_NODE_ID, self.row.kind, self.row.pk, attempt)

    def _supervisor(self, output: LogFile, watch: Watch) -> Supervisor:
        """Runs the children of this attempt, each with its identity on the row before it may begin."""
        return Supervisor(
            mark=self._mark(self.number),
            log=output,
            watch=watch,
            record=lambda child: self._record(watch, child),
            progress=self._progress,
        )

    # ------------------------------------------------------------------ the row

    def _progress(self, done: float, total: float, last: bool = False) -> None:
        """Progress, every few seconds. It may be lost; nothing depends on it."""
        now = time.monotonic()
        columns = self._columns(done, total) if last or now - self.written_at >= self.progress_every else None
        if columns is None:
            return
        self.written_at = now
        try:
            self._amend(**columns)
        except DatabaseError as error:
            log.warning("Progress of %s was not written: %s", self._name, error)
            connections.close_all()

    def _keep(self, watch: Watch, **columns: Any) -> None:
        self._write(watch, lambda: self._amend(**columns))

    def _record(self, watch: Watch, child: ProcessIdentity) -> bool:
        """Put a child's identity on the row; False where it may not run."""
        try:
            self._write(watch, lambda: self._amend_child(child))
        except Ended:
            return False
        return True

    def _amend_child(self, child: ProcessIdentity) -> bool:
        return self._amend(child_pid=child.pid, child_created=child.created, child_group=child.group)

    def _write(self, watch: Watch, write: Callable[[], bool]) -> None:
        """Write to the row; see attempt_rows."""
        write_row(self._name, watch, write)

    def _write_end(self, watch: Watch, ended: Ended) -> None:
        """Write how the attempt ended. Where the lease is lost nothing is ours to write any more."""
        write = self._ending(ended)
        if write is None:
            log.warning("%s, attempt %d: the lease was lost.", self._name, self.number)
            return
        try:
            self._write(watch, write)
        except Ended:
            log.warning("%s, attempt %d: its end could not be written.", self._name, self.number)
