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

from apps.core import clock
from apps.core.transitions import amend
from apps.engines import states
from apps.engines.models import Build
from apps.engines.policy import (
    MESSAGE_LIFE_SECONDS,
    RESEND_AFTER_SECONDS,
    RUN_BUILD,
    UNCLAIMED_AFTER_SECONDS,
)
from apps.fleet.models import Gpu, Toolchain
from apps.fleet.selectors import slots_for_work
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


def send(build: Build) -> bool:
    """Choose a slot for a queued build and wake its worker. False where it stays queued; the row then says why."""
    able = able_slots(build, slots_for_work())
    slot = _slot_for(build, able)
    if slot is None and build.spec.get("builder") == "trtllm":
        _explain_toolchain(build)
        return False
    if slot is None:
        _explain(
            build,
            "no_worker",
            _("No worker is ready to build."),
            _("Start the workers (make status shows them); the build then starts by itself."),
        )
        return False
    other = _running_on(slot).exclude(pk=build.pk).first()
    if other is not None:
        _explain(
            build, "waiting_for_slot", _("Waits for build #%(number)s.") % {"number": other.number}, "", slot
        )
        return False
    # The row first: the worker may have the message before this returns.
    said = _said_when_sent(build, slot)
    if not amend(build, states=[states.QUEUED], node=slot.node, gpu=slot, dispatched_at=clock.now(), **said):
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
    return sum(send(build) for build in queued)


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


def able_slots(build: Build, slots: list[Gpu]) -> list[Gpu]:
    """Those of the slots whose node can do the build: for TensorRT-LLM a GPU beside the toolchain that was chosen."""
    if build.spec.get("builder") != "trtllm":
        return slots
    wanted = build.spec.get("versions") or {}
    rows = Toolchain.objects.filter(name=build.spec.get("toolchain", ""))
    nodes = {
        row.node_id
        for row in rows
        if build.spec.get("recipe") in row.recipes and row.release == wanted.get("tensorrt_llm", row.release)
    }
    sm = build.spec.get("sm")
    return [
        slot
        for slot in slots
        if slot.node_id in nodes
        and slot.device == Gpu.Device.GPU
        and (sm is None or slot.compute_capability.replace(".", "") in ("", str(sm)))
    ]


def _explain_toolchain(build: Build) -> None:
    sentence = _("No ready node has a GPU beside the toolchain %(name)s with TensorRT-LLM %(release)s.")
    names = {
        "name": build.spec.get("toolchain") or "-",
        "release": (build.spec.get("versions") or {}).get("tensorrt_llm", "-"),
    }
    remedy = _("Start that node's workers, or probe its toolchains again; or cancel and build anew.")
    _explain(build, "no_toolchain", sentence % names, remedy)


def _slot_for(build: Build, slots: list[Gpu]) -> Gpu | None:
    """The slot that the build had if it is still good, else the one with the fewest builds."""
    for slot in slots:
        if slot.pk == build.gpu_id:
            return slot
    return min(
        slots,
        key=lambda slot: Build.objects.filter(gpu=slot, state__in=states.BUILD.active).count(),
        default=None,
    )


def _running_on(slot: Gpu) -> QuerySet[Build]:
    return Build.objects.filter(gpu=slot, state=states.RUNNING, lease_expires_at__gt=clock.now())


def _explain(build: Build, reason: str, sentence: str, remedy: str, slot: Gpu | None = None) -> None:
    """Tell the person why the build still waits; written once, not at every sweep."""
    said = (reason, sentence, slot.pk if slot else None)
    if (build.reason, build.sentence, build.gpu_id) == said:
        return
    amend(
        build,
        states=[states.QUEUED],
        reason=reason,
        sentence=sentence,
        remedy=remedy,
        gpu=slot,
        node=slot.node if slot else None,
    )
