"""What rows of work have in common: a number of their own, and a cancel that comes before or during the work."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from django.db import IntegrityError, models, transaction
from django.db.models import Max

from apps.core import audit, clock
from apps.core.exceptions import InfrastructureError, NotPossibleNow
from apps.core.models import StatusModel
from apps.core.transitions import amend, transition

NUMBER_TRIES = 5

Row = TypeVar("Row", bound=models.Model)
Job = TypeVar("Job", bound=StatusModel)


def create_numbered(model: type[Row], create: Callable[[int], Row], contended: InfrastructureError) -> Row:
    """What `create` makes with the next free number, in one transaction with whatever it writes besides.

    Tried again where somebody else took the number; raises `contended` after NUMBER_TRIES.
    """
    for _try in range(NUMBER_TRIES):
        try:
            with transaction.atomic():
                highest = model._default_manager.aggregate(highest=Max("number"))["highest"] or 0
                return create(highest + 1)
        except IntegrityError:
            continue
    raise contended


def ask_to_cancel(
    actor: audit.Actor, job: Job, verb: str, *, before_it_began: str, ended: Callable[[Job], NotPossibleNow]
) -> Job:
    """Cancel a queued job at once; ask the worker of a running one to end it, audited as `verb`.

    Raises what `ended` makes of a job that is over.
    """
    now = clock.now()
    if job.state == "queued" and transition(
        job,
        "cancelled",
        actor=actor,
        sources=["queued"],
        reason="cancelled",
        sentence=before_it_began,
        cancel_requested_at=now,
        finished_at=now,
    ):
        return job
    return ask_to_end(actor, job, ["running"], verb, ended=ended)


def ask_to_end(
    actor: audit.Actor, job: Job, states: Sequence[str], verb: str, *, ended: Callable[[Job], NotPossibleNow]
) -> Job:
    """Write on a job in one of these states that somebody wants it ended, audited as `verb`. Raises what `ended`
    makes of one that is in another."""
    with transaction.atomic():
        asked_at = getattr(job, "cancel_requested_at", None) or clock.now()
        if not amend(job, states=states, cancel_requested_at=asked_at):
            raise ended(job)
        audit.record(actor, verb, job, from_state=job.state)
    return job


def refuse_unended(job: StatusModel, code: str, sentence: str, remedy: str) -> None:
    """Raise NotPossibleNow while a job is on its way; what has ended may be deleted."""
    if job.is_active:
        raise NotPossibleNow(code, sentence, remedy=remedy)


def delete_audited(actor: audit.Actor, job: StatusModel) -> None:
    """Delete a job's row, audited as `<kind>.deleted`."""
    with transaction.atomic():
        audit.record(actor, f"{job.kind}.deleted", job)
        job.delete()
