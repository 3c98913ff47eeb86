"""What a worker writes about a load run or a quality run.

Every write carries the attempt number, so a worker that was replaced meanwhile changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.db import transaction

from apps.core import clock, database_time
from apps.core.transitions import amend, transition
from apps.fleet.processes import ProcessIdentity
from apps.loadtests import dispatch, states
from apps.loadtests.models import LoadRun, QualityRun
from apps.loadtests.policy import LEASE_SECONDS, MAX_RETRIES

AnyRun = LoadRun | QualityRun
# Columns that a new attempt begins with empty.
FRESH: dict[type[AnyRun], dict[str, Any]] = {
    LoadRun: {"series": [], "summary": None},
    QualityRun: {"result": None},
}


@dataclass(frozen=True, slots=True)
class Claim:
    """A run that this worker now makes. `previous` is the child that the attempt before may have left."""

    run: Any
    attempt: int
    previous: ProcessIdentity | None


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a run failed. `retry`: the machine is to blame, try again."""

    reason: str
    sentence: str
    remedy: str = ""
    retry: bool = False


def claim_run(run_id: int, worker: str, node_id: str, model: type[AnyRun] = LoadRun) -> Claim | None:
    """Take a queued run for this worker: attempt + 1 and a lease. None: not to be had."""
    row = model._default_manager.filter(pk=run_id, state=states.QUEUED).first()
    if row is None:
        return None
    previous, attempt, now = child_of(row), row.attempt + 1, clock.now()
    with transaction.atomic():
        waiting = model._default_manager.filter(pk=row.pk, state=states.QUEUED, attempt=row.attempt)
        if not waiting.update(attempt=attempt):
            return None
        claimed = transition(
            row,
            states.RUNNING,
            actor=worker,
            sources=[states.QUEUED],
            attempt=attempt,
            lease_expires_at=database_time.now() + timedelta(seconds=LEASE_SECONDS),
            node_id=node_id,
            started_at=now,
            finished_at=None,
            progress=0.0,
            eta_seconds=None,
            **FRESH[model],
        )
    return Claim(row, attempt, previous) if claimed else None


def child_of(row: AnyRun) -> ProcessIdentity | None:
    """The child process that the row names, or None."""
    if row.child_pid is None or row.child_created is None or row.child_group is None:
        return None
    return ProcessIdentity(row.child_pid, row.child_created, row.child_group)


def renew_run(row: AnyRun, attempt: int) -> bool:
    """Renew the lease by 40 s; False where it has run out, or another attempt owns the row."""
    now = database_time.now()
    held = type(row)._default_manager.filter(
        pk=row.pk, state=states.RUNNING, attempt=attempt, lease_expires_at__gt=now
    )
    return bool(held.update(lease_expires_at=now + timedelta(seconds=LEASE_SECONDS)))


def stop_requested(row: AnyRun) -> bool:
    """Whether somebody pressed stop; one cheap read, polled twice a second."""
    return type(row)._default_manager.filter(pk=row.pk, cancel_requested_at__isnull=False).exists()


def record_run(row: AnyRun, attempt: int, **columns: Any) -> bool:
    """Write what is known now: environment, folder, child, progress, series. False where fenced off."""
    return amend(row, attempt=attempt, states=[states.RUNNING], **columns)


def finish_run(row: AnyRun, attempt: int, worker: str, **columns: Any) -> bool:
    """The run has its summary; where it was stopped before its time, it says so. False where fenced off."""
    return transition(
        row, states.SUCCEEDED, actor=worker, sources=[states.RUNNING], attempt=attempt, **columns, **_ended()
    )


def fail_run(row: AnyRun, attempt: int, failure: Failure, worker: str) -> bool:
    """Write why the run failed; where the machine is to blame and tries are left, it is queued again."""
    if failure.retry and row.retries < MAX_RETRIES and not stop_requested(row):
        return requeue_run(row, attempt, failure, worker, retries=row.retries + 1)
    return transition(
        row,
        states.FAILED,
        actor=worker,
        sources=[states.RUNNING],
        attempt=attempt,
        reason=failure.reason,
        sentence=failure.sentence,
        remedy=failure.remedy,
        **_ended(),
    )


def requeue_run(row: AnyRun, attempt: int, failure: Failure, worker: str, *, retries: int) -> bool:
    """Let a run begin again from its start. False where fenced off."""
    with transaction.atomic():
        done = transition(
            row,
            states.QUEUED,
            actor=worker,
            sources=[states.RUNNING],
            attempt=attempt,
            reason=failure.reason,
            sentence=failure.sentence,
            remedy=failure.remedy,
            verb=f"{row.kind}.requeued",
            retries=retries,
            lease_expires_at=None,
            dispatched_at=None,
            progress=None,
            eta_seconds=None,
        )
        if done:
            dispatch.on_commit(row)
    return done


def cancel_run(row: AnyRun, attempt: int, sentence: str, worker: str) -> bool:
    """The run was stopped and had measured nothing. False where fenced off."""
    return transition(
        row,
        states.CANCELLED,
        actor=worker,
        sources=[states.RUNNING],
        attempt=attempt,
        reason="cancelled",
        sentence=sentence,
        **_ended(),
    )


def _ended() -> dict[str, Any]:
    return {
        "child_pid": None,
        "child_created": None,
        "child_group": None,
        "lease_expires_at": None,
        "eta_seconds": None,
        "progress": 1.0,
        "finished_at": clock.now(),
    }
