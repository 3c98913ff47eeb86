"""One attempt at a run of the load queue (load runs and quality runs): how it stops, fails and is written."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

from django.utils.translation import gettext as _

from apps.loadtests import attempts
from apps.loadtests.attempts import Claim, Failure
from workers.attempt_rows import Ended, refuse_order
from workers.child_attempt import ChildAttempt
from workers.supervisor import StepResult
from workers.watch import Watch


class RunAttempt(ChildAttempt):
    """One claimed attempt at a run. `died` is the reason where its child just ended."""

    died: ClassVar[str]

    def __init__(self, claim: Claim, worker: str, folder: Path) -> None:
        super().__init__(claim.run, claim.attempt, worker, claim.previous, folder)

    @abstractmethod
    def _what(self) -> str:
        """How sentences name the child."""

    def _renew(self) -> bool:
        return attempts.renew_run(self.row, self.number)

    def _must_end(self) -> bool:
        return attempts.stop_requested(self.row)

    def _amend(self, **columns: Any) -> bool:
        return attempts.record_run(self.row, self.number, **columns)

    def _failure(self, reason: str, sentence: str, remedy: str) -> Failure:
        return Failure(reason, sentence, remedy)

    def _overdue(self) -> Failure:
        return Failure(
            "deadline",
            _("It ran longer than it may and was ended."),
            _("See the run's log; what it asked may have stopped answering."),
        )

    def _judge(self, result: StepResult, watch: Watch) -> None:
        """Raise Ended unless the child ended well."""
        # First: a worker that stops ends the child's processes, which then say that they died.
        refuse_order(result, watch)
        if result.failure is not None:
            told = result.failure
            raise Ended(
                Failure(str(told.get("reason")), str(told.get("sentence")), str(told.get("remedy") or ""))
            )
        if result.ending == "deadline":
            raise Ended(self._overdue())
        if result.ending == "disk_low":
            raise Ended(
                Failure(
                    "disk_full",
                    _("The disk was about to be full, so it was ended."),
                    _("Free space on the disk of the home folder, then run it again."),
                )
            )
        if result.exit_code != 0:
            raise Ended(
                Failure(
                    self.died,
                    _("%(what)s ended with exit code %(code)s.")
                    % {"what": self._what(), "code": result.exit_code},
                    _("See the run's log."),
                    retry=True,
                )
            )

    def _ending(self, ended: Ended) -> Callable[[], bool] | None:
        row, number, worker = self.row, self.number, self.worker
        if ended.failure is not None:
            failure = ended.failure
            return lambda: attempts.fail_run(row, number, failure, worker)
        if ended.order == "cancelled":
            said = _("Stopped before it had measured anything.")
            return lambda: attempts.cancel_run(row, number, said, worker)
        if ended.order == "stopped":
            why = Failure("worker_stopped", _("The worker stopped; the run begins again with the next one."))
            return lambda: attempts.requeue_run(row, number, why, worker, retries=row.retries)
        return None


def plain_environment() -> dict[str, str]:
    """What a child of the load queue needs of the environment; secrets and proxies are not in it."""
    return {"PATH": os.defpath, "LANG": "C.UTF-8", "PYTHONUNBUFFERED": "1"}
