"""What rows of work have in common: a number of their own, and a cancel that comes before or during the work."""

from __future__ import annotations

from collections.abc import Callable
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
    with transaction.atomic():
        asked_at = getattr(job, "cancel_requested_at", None) or now
        if not amend(job, states=["running"], cancel_requested_at=asked_at):
            raise ended(job)
        audit.record(actor, verb, job, from_state=job.state)
    return job
