"""Waking workers up. A message is only a hint: the queued row is the work, and the sweep sends again."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from django.db import transaction
from django.db.models import Q, QuerySet
from django.utils.translation import gettext as _

from apps.core import clock, database_time
from apps.core.transitions import amend
from apps.engines import states
from apps.engines.models import Build
from apps.engines.place_builds import Look, kept, kept_waits, place_for
from apps.engines.policy import (
    MESSAGE_LIFE_SECONDS,
    RESEND_AFTER_SECONDS,
    RUN_BUILD,
    UNCLAIMED_AFTER_SECONDS,
)
from apps.fleet.domain.placement import Refusal
from apps.fleet.models import Gpu
from apps.realtime.broker import BROKER_ERRORS, wake

log = logging.getLogger(__name__)
# Reasons of a queued build that say why it still waits.
WAITS = frozenset(
    {
        *("not_taken", "no_worker", "no_toolchain", "waiting_for_slot", "waiting_for_share"),
        *("queue_unreachable",),
    }
)


def on_commit(build: Build) -> None:
    """Send a queued build to a worker as soon as the surrounding transaction has committed."""
    transaction.on_commit(lambda: _send_quietly(build.pk))


def send(build: Build, look: Look | None = None) -> bool:
    """Choose a slot for a queued build and wake its worker. False where it stays queued; the row then says why."""
    around = look or Look()
    found = place_for(build, around)
    if isinstance(found, Refusal):
        _explain_refusal(build, found)
        return False
    slot = Gpu.objects.select_related("node").filter(pk=found.gpu).first()
    if slot is None:
        return False
    other = _running_on(slot).exclude(pk=build.pk).first()
    if other is not None:
        _explain(
            build, "waiting_for_slot", _("Waits for build #%(number)s.") % {"number": other.number}, "", slot
        )
        return False
    around.sent(build, slot.pk)
    # The row first: the worker may have the message before this returns.
    said = _said_when_sent(build, slot)
    if not amend(
        build,
        states=[states.QUEUED],
        node=slot.node,
        gpu=slot,
        dispatched_at=clock.now(),
        placement=kept(found),
        **said,
    ):
        return False
    try:
        _publish(build, slot)
    except BROKER_ERRORS as error:
        log.warning("Build #%d could not be sent: %s", build.number, error)
        _explain(
            build,
            "queue_unreachable",
            _("The queue (Redis) cannot be reached."),
            _("The build starts by itself once Redis is back: make status shows it."),
            slot,
        )
        return False
    return True


def _said_when_sent(build: Build, slot: Gpu) -> dict[str, Any]:
    """What the row says from now on. Why an earlier attempt ended stays until the next one begins."""
    waited = (clock.now() - build.state_since).total_seconds()
    if (
        build.dispatched_at is not None
        and build.reason in {"", "not_taken"}
        and waited > UNCLAIMED_AFTER_SECONDS
    ):
        return {
            "reason": "not_taken",
            "sentence": _("It was sent to %(slot)s, whose worker does not take it.") % {"slot": slot},
            "remedy": _("See whether that worker runs: make status shows it."),
        }
    return {"reason": "", "sentence": "", "remedy": ""} if build.reason in WAITS else {}


def _publish(build: Build, slot: Gpu) -> None:
    wake(RUN_BUILD, build.pk, f"node.{slot.node.node_id}.gpu{slot.index}", MESSAGE_LIFE_SECONDS)


def resend() -> int:
    """Send queued builds again that were not sent for 10 s; returns how many were sent."""
    due = Q(dispatched_at__isnull=True) | Q(
        dispatched_at__lt=clock.now() - timedelta(seconds=RESEND_AFTER_SECONDS)
    )
    queued = Build.objects.filter(due, state=states.QUEUED).order_by("number")
    look = Look()
    return sum(send(build, look) for build in queued)


def next_on_commit(gpu: Gpu | None) -> None:
    """Wake the slot's worker for the oldest queued build, after commit: a slot has just become free."""
    if gpu is not None:
        transaction.on_commit(_next)


def _next() -> None:
    with _kept_quiet("the next build"):
        queued = Build.objects.filter(state=states.QUEUED).order_by("number").first()
        if queued is not None:
            send(queued)


def _send_quietly(pk: int) -> None:
    with _kept_quiet(f"build {pk}"):
        build = Build.objects.filter(pk=pk, state=states.QUEUED).first()
        if build is not None:
            send(build)


@contextmanager
def _kept_quiet(what: str) -> Iterator[None]:
    # After commit nothing may fail any more for the caller: the row is queued, and the sweep sends it.
    try:
        yield
    except Exception:
        log.exception("Waking a worker for %s failed; the sweep sends it again.", what)


def _explain_refusal(build: Build, refusal: Refusal) -> None:
    """Why no slot takes the build now: for TensorRT-LLM first which toolchain it needs, then what each node lacks."""
    if build.spec.get("builder") == "trtllm":
        reason = "no_toolchain"
        sentence = _(
            "No ready node has a GPU beside the toolchain %(name)s with TensorRT-LLM %(release)s."
        ) % {
            "name": build.spec.get("toolchain") or "-",
            "release": (build.spec.get("versions") or {}).get("tensorrt_llm", "-"),
        }
        remedy = _("Start that node's workers, or probe its toolchains again; or cancel and build anew.")
    else:
        reason, sentence = "no_worker", _("No worker is ready to build.")
        remedy = _("Start the workers (make status shows them); the build then starts by itself.")
    _explain(build, reason, f"{sentence} {refusal.sentence}", remedy, waits=kept_waits(refusal))


def _running_on(slot: Gpu) -> QuerySet[Build]:
    return Build.objects.filter(gpu=slot, state=states.RUNNING, lease_expires_at__gt=database_time.now())


def _explain(
    build: Build,
    reason: str,
    sentence: str,
    remedy: str,
    slot: Gpu | None = None,
    waits: dict[str, Any] | None = None,
) -> None:
    """Tell the person why the build still waits; written once, not at every sweep."""
    said = (reason, sentence, slot.pk if slot else None)
    if (build.reason, build.sentence, build.gpu_id) == said:
        return
    more: dict[str, Any] = {"placement": waits} if waits is not None else {}
    amend(
        build,
        states=[states.QUEUED],
        reason=reason,
        sentence=sentence,
        remedy=remedy,
        gpu=slot,
        node=slot.node if slot else None,
        **more,
    )
