"""Waking the load worker up. A message is only a hint: the queued row is the work, and the sweep sends again."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import Q
from django.utils.translation import gettext as _

from apps.core import clock
from apps.core.transitions import amend
from apps.loadtests import states, waking
from apps.loadtests.models import LoadRun, QualityRun
from apps.loadtests.policy import (
    MESSAGE_LIFE_SECONDS,
    RESEND_AFTER_SECONDS,
    RUN_LOAD,
    RUN_QUALITY,
    UNCLAIMED_AFTER_SECONDS,
)
from apps.realtime.broker import BROKER_ERRORS, wake
from apps.serving import selectors as serving
from apps.serving.models import Deployment

AnyRun = LoadRun | QualityRun
TASKS: dict[str, str] = {LoadRun.kind: RUN_LOAD, QualityRun.kind: RUN_QUALITY}
log = logging.getLogger(__name__)
NOT_TAKEN, UNREACHABLE = "not_taken", "queue_unreachable"
WAITS = frozenset({"", NOT_TAKEN, UNREACHABLE, waking.WAKING})


def on_commit(row: AnyRun) -> None:
    """Send a queued run as soon as the surrounding transaction has committed."""
    transaction.on_commit(lambda: _send_quietly(type(row), row.pk))


def send(row: AnyRun) -> bool:
    """Wake the worker of the target's node for a queued run. False where it stays queued; the row then says why."""
    if waking.held(row):
        return False
    # The row first: the worker may have the message before this returns.
    if not amend(row, states=[states.QUEUED], dispatched_at=clock.now(), **_said(row)):
        return False
    try:
        _publish(row)
    except BROKER_ERRORS as error:
        log.warning("%s #%d could not be sent: %s", row.kind, row.number, error)
        if row.reason in WAITS and row.reason != UNREACHABLE:
            amend(
                row,
                states=[states.QUEUED],
                reason=UNREACHABLE,
                sentence=_("The queue (Redis) cannot be reached."),
                remedy=_("It begins by itself once Redis is back: make status shows it."),
            )
        return False
    return True


def resend() -> int:
    """Send queued runs again that were not sent for 10 s; returns how many were sent."""
    late = clock.now() - timedelta(seconds=RESEND_AFTER_SECONDS)
    due = Q(dispatched_at__isnull=True) | Q(dispatched_at__lt=late)
    models: tuple[type[AnyRun], ...] = (LoadRun, QualityRun)
    return sum(
        send(row)
        for model in models
        for row in model._default_manager.filter(due, state=states.QUEUED).order_by("number")
    )


def node_of(row: AnyRun) -> str:
    """The node whose worker does it: where the target's servers listen on loopback, or the engine's files lie."""
    if isinstance(row, QualityRun) and row.deployment is None and row.engine is not None:
        return str(row.engine.node.node_id if row.engine.node else settings.INFLIGHT_NODE_ID)
    return node_serving(row.deployment)


def node_serving(deployment: Deployment | None) -> str:
    """The node that serves a deployment; ours where nothing does, or there is none (an external upstream)."""
    if deployment is not None:
        instance = serving.serving_instances(deployment).select_related("node").first()
        if instance is not None and instance.node is not None:
            return str(instance.node.node_id)
    return str(settings.INFLIGHT_NODE_ID)


def _said(row: AnyRun) -> dict[str, Any]:
    if row.reason not in WAITS:
        return {}
    waited = (clock.now() - row.state_since).total_seconds()
    if row.dispatched_at is not None and waited > UNCLAIMED_AFTER_SECONDS:
        return {
            "reason": NOT_TAKEN,
            "sentence": _("It waits for the load worker, which is busy or does not run."),
            "remedy": _("One run is made at a time; make status shows whether worker-load runs."),
        }
    return {"reason": "", "sentence": "", "remedy": ""}


def _publish(row: AnyRun) -> None:
    wake(TASKS[row.kind], row.pk, f"node.{node_of(row)}.load", MESSAGE_LIFE_SECONDS)


def _send_quietly(model: type[AnyRun], pk: int) -> None:
    # After commit nothing may fail any more for the caller: the row is queued, and the sweep sends it.
    try:
        row = model._default_manager.filter(pk=pk, state=states.QUEUED).first()
        if row is not None:
            send(row)
    except Exception:
        log.exception("Waking a worker for %s %d failed; the sweep sends it again.", model.kind, pk)
