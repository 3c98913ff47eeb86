"""What a worker writes about a checkpoint that it fetches. Every write carries the attempt number, so a worker that
was replaced meanwhile changes nothing."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.db import transaction
from django.utils.translation import gettext as _

from apps.core import clock, database_time
from apps.core.transitions import amend, transition
from apps.registry import states
from apps.registry.hub import dispatch
from apps.registry.hub.policy import (
    LEASE_SECONDS,
    MAX_RETRIES,
    RETRY_FIRST_SECONDS,
    RETRY_LONGEST_SECONDS,
)
from apps.registry.inspection import Inspected
from apps.registry.models import Checkpoint


@dataclass(frozen=True, slots=True)
class Child:
    """A child process as the row names it; `created` in seconds since boot."""

    pid: int
    created: float
    group: int


@dataclass(frozen=True, slots=True)
class Claim:
    """A checkpoint that this worker now fetches. `previous` is the child that the attempt before may have left."""

    checkpoint: Checkpoint
    attempt: int
    previous: Child | None


@dataclass(frozen=True, slots=True)
class Failure:
    """Why an attempt failed: stable reason, sentence, remedy.

    `retry`: network or machine are to blame, try again (after `retry_after` seconds, where the hub named them).
    `refused`: the source itself is not to be used. `offered`: files that a person may choose from.
    """

    reason: str
    sentence: str
    remedy: str = ""
    retry: bool = False
    refused: bool = False
    retry_after: float | None = None
    offered: tuple[dict[str, Any], ...] = ()


def claim_fetch(checkpoint_id: int, worker: str, node_id: str) -> Claim | None:
    """Take a waiting checkpoint for this worker: attempt + 1 and a lease. None: not to be had."""
    row = dispatch.waiting().filter(pk=checkpoint_id).first()
    now = database_time.now()
    if row is None or (row.not_before is not None and row.not_before > now):
        return None
    previous, attempt = child_of(row), row.attempt + 1
    with transaction.atomic():
        unclaimed = Checkpoint.objects.filter(pk=row.pk, state=states.REGISTERED, attempt=row.attempt)
        if not unclaimed.update(attempt=attempt):
            return None
        claimed = transition(
            row,
            states.UNPACKING if "archive" in row.source else states.DOWNLOADING,
            actor=worker,
            sources=[states.REGISTERED],
            attempt=attempt,
            lease_expires_at=now + timedelta(seconds=LEASE_SECONDS),
            node_id=node_id,
            not_before=None,
            started_at=now,
            finished_at=None,
            offered=[],
            rate_bytes_per_second=None,
            eta_seconds=None,
        )
    return Claim(row, attempt, previous) if claimed else None


def child_of(row: Checkpoint) -> Child | None:
    """The child process that the row names, or None."""
    if row.child_pid is None or row.child_created is None or row.child_group is None:
        return None
    return Child(row.child_pid, row.child_created, row.child_group)


def renew_fetch(row: Checkpoint, attempt: int) -> bool:
    """Renew the lease by 40 s; False where it has run out, or another attempt owns the row."""
    now = database_time.now()
    held = Checkpoint.objects.filter(
        pk=row.pk, state__in=states.HELD, attempt=attempt, lease_expires_at__gt=now
    )
    return bool(held.update(lease_expires_at=now + timedelta(seconds=LEASE_SECONDS)))


def cancel_requested(row: Checkpoint) -> bool:
    """Whether somebody pressed cancel; one cheap read, polled twice a second."""
    return Checkpoint.objects.filter(pk=row.pk, cancel_requested_at__isnull=False).exists()


def record_fetch_child(row: Checkpoint, attempt: int, child: Child) -> bool:
    """Write the child's identity on the row, before it may run. False where fenced off."""
    return _amend(row, attempt, child_pid=child.pid, child_created=child.created, child_group=child.group)


def record_fetch(row: Checkpoint, attempt: int, **columns: Any) -> bool:
    """Write what is known now: commit, folder, bytes_total, log_path, progress. False where fenced off."""
    return _amend(row, attempt, **columns)


def begin_inspection(row: Checkpoint, attempt: int, path: str, worker: str) -> bool:
    """The files are published at `path`; now their headers are read. False where fenced off."""
    return transition(
        row,
        states.INSPECTING,
        actor=worker,
        sources=[states.DOWNLOADING, states.UNPACKING],
        attempt=attempt,
        path=path,
        bytes_done=row.bytes_total,
        rate_bytes_per_second=None,
        eta_seconds=None,
    )


def finish_fetch(row: Checkpoint, attempt: int, found: Inspected, worker: str) -> bool:
    """The checkpoint is ready. False where fenced off."""
    return transition(
        row,
        states.READY,
        actor=worker,
        sources=[states.INSPECTING],
        attempt=attempt,
        format=found.form,
        size_bytes=found.size_bytes,
        sha256=found.sha256,
        facts=found.facts,
        chat_template=found.chat_template,
        retries=0,
        **_ended(),
    )


def fail_fetch(
    row: Checkpoint, attempt: int, failure: Failure, worker: str, *, progressed: bool = False
) -> bool:
    """Write why the attempt failed; where the machine is to blame and tries are left, it waits for another."""
    if failure.retry and (progressed or row.retries < MAX_RETRIES):
        return requeue_fetch(row, attempt, failure, worker, retries=0 if progressed else row.retries + 1)
    return transition(
        row,
        states.REFUSED if failure.refused else states.FAILED,
        actor=worker,
        sources=states.HELD,
        attempt=attempt,
        reason=failure.reason,
        sentence=failure.sentence,
        remedy=failure.remedy,
        offered=list(failure.offered),
        **_ended(),
    )


def requeue_fetch(row: Checkpoint, attempt: int, failure: Failure, worker: str, *, retries: int) -> bool:
    """Let a fetch wait for another attempt, which goes on where this one was. A cancelled one ends instead."""
    if cancel_requested(row):
        return end_cancelled_fetch(row, attempt, worker)
    delay = failure.retry_after
    if delay is None:
        delay = min(RETRY_LONGEST_SECONDS, RETRY_FIRST_SECONDS * 2 ** max(0, retries - 1))
    with transaction.atomic():
        done = transition(
            row,
            states.REGISTERED,
            actor=worker,
            sources=states.HELD,
            attempt=attempt,
            reason=failure.reason,
            sentence=failure.sentence,
            remedy=failure.remedy,
            verb="checkpoint.requeued",
            retries=retries,
            path="",
            lease_expires_at=None,
            dispatched_at=None,
            not_before=clock.now() + timedelta(seconds=delay) if delay else None,
            rate_bytes_per_second=None,
            eta_seconds=None,
        )
        if done and not delay:
            dispatch.on_commit(row)
    return done


def end_cancelled_fetch(row: Checkpoint, attempt: int, worker: str) -> bool:
    """The fetch was cancelled and its processes are gone; what is here is kept for another try."""
    return transition(
        row,
        states.CANCELLED,
        actor=worker,
        sources=states.HELD,
        attempt=attempt,
        reason="cancelled",
        sentence=_("Cancelled while it was fetched."),
        remedy=_("Try again: it goes on where it was. Delete it to remove what is here."),
        **_ended(),
    )


def _amend(row: Checkpoint, attempt: int, **columns: Any) -> bool:
    return amend(row, attempt=attempt, states=states.HELD, **columns)


def _ended() -> dict[str, Any]:
    return {
        "child_pid": None,
        "child_created": None,
        "child_group": None,
        "lease_expires_at": None,
        "rate_bytes_per_second": None,
        "eta_seconds": None,
        "finished_at": clock.now(),
    }
