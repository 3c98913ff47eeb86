"""Waking the load worker up. A message is only a hint: the waiting row is the work, and the sweep sends again."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import Q, QuerySet
from django.utils.translation import gettext as _

from apps.core import clock
from apps.core.transitions import amend
from apps.realtime.broker import BROKER_ERRORS, wake
from apps.registry import states
from apps.registry.hub.policy import (
    FETCH,
    MESSAGE_LIFE_SECONDS,
    RESEND_AFTER_SECONDS,
    UNCLAIMED_AFTER_SECONDS,
)
from apps.registry.models import Checkpoint

log = logging.getLogger(__name__)
NOT_TAKEN, UNREACHABLE = "not_taken", "queue_unreachable"
# Reasons of a waiting row that say why it still waits; a claim clears them.
WAITS = frozenset({"", NOT_TAKEN, UNREACHABLE})


def waiting() -> QuerySet[Checkpoint]:
    """Rows that wait for a worker: registered, and their files are not here."""
    return Checkpoint.objects.filter(state=states.REGISTERED, path="")


def queue_name(node_id: str) -> str:
    """Queue of a node's load worker."""
    return f"node.{node_id}.load"


def on_commit(row: Checkpoint) -> None:
    """Send a waiting row as soon as the surrounding transaction has committed."""
    transaction.on_commit(lambda: _send_quietly(row.pk))


def send(row: Checkpoint) -> bool:
    """Wake the worker for a waiting row. False where it stays waiting; the row then says why."""
    # The row first: the worker may have the message before this returns.
    if not amend(row, states=[states.REGISTERED], dispatched_at=clock.now(), **_said(row)):
        return False
    try:
        _publish(row)
    except BROKER_ERRORS as error:
        log.warning("Checkpoint %s could not be sent: %s", row.name, error)
        if row.reason in WAITS and row.reason != UNREACHABLE:
            amend(
                row,
                states=[states.REGISTERED],
                reason=UNREACHABLE,
                sentence=_("The queue (Redis) cannot be reached."),
                remedy=_("It begins by itself once Redis is back: make status shows it."),
            )
        return False
    return True


def resend() -> int:
    """Send waiting rows again that were not sent for 10 s and may be tried now; returns how many were sent."""
    now = clock.now()
    due = Q(dispatched_at__isnull=True) | Q(dispatched_at__lt=now - timedelta(seconds=RESEND_AFTER_SECONDS))
    ripe = Q(not_before__isnull=True) | Q(not_before__lte=now)
    return sum(send(row) for row in waiting().filter(due, ripe).order_by("pk"))


def _said(row: Checkpoint) -> dict[str, Any]:
    """What the row says from now on. Why an earlier attempt ended stays until the next one begins."""
    if row.reason not in WAITS:
        return {}
    waited = (clock.now() - row.state_since).total_seconds()
    if row.dispatched_at is not None and waited > UNCLAIMED_AFTER_SECONDS:
        return {
            "reason": NOT_TAKEN,
            "sentence": _("It waits for the load worker, which is busy or does not run."),
            "remedy": _("One checkpoint is fetched at a time; make status shows whether worker-load runs."),
        }
    return {"reason": "", "sentence": "", "remedy": ""}


def _publish(row: Checkpoint) -> None:
    wake(FETCH, row.pk, queue_name(settings.INFLIGHT_NODE_ID), MESSAGE_LIFE_SECONDS)


def _send_quietly(pk: int) -> None:
    # After commit nothing may fail any more for the caller: the row waits, and the sweep sends it.
    try:
        row = waiting().filter(pk=pk).first()
        if row is not None:
            send(row)
    except Exception:
        log.exception("Waking a worker for checkpoint %d failed; the sweep sends it again.", pk)
