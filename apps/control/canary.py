"""The judge of canaries: reads what the new revision's servers did, and moves, promotes or takes back.

Called by the sweep every few seconds. What it decides is written with the figures that led to it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from django.utils.translation import gettext as _

from apps.control.domain.canary import Figures, Progress, Promise, Verdict, figures_of, judge
from apps.core import clock
from apps.core.exceptions import InflightError
from apps.serving import policies, rollouts, selectors, states
from apps.serving.domain.canary import wanted_at
from apps.serving.models import Deployment, Instance, Revision
from apps.telemetry import history

log = logging.getLogger(__name__)
ACTOR = "canary"
# (instance ids, since, until) -> telemetry's window, for tests that hold the figures.
Read = Callable[[Sequence[int], float, float], Mapping[str, Any]]


def sweep(read: Read | None = None) -> int:
    """Judge every canary that is in a step; returns how many were moved, promoted or taken back."""
    rows = Revision.objects.select_related("engine", "deployment__active_revision__engine").filter(
        state=states.PENDING,
        canary_step__isnull=False,
        promoted_at__isnull=True,
        paused_at__isnull=True,
        deployment__desired=Deployment.Desired.RUNNING,
        deployment__active_revision__isnull=False,
    )
    moved = 0
    for row in rows:
        try:
            moved += _look(row, read or _read) != "wait"
        except InflightError as error:
            # Somebody pressed a button meanwhile; the next sweep sees what it made.
            log.info("the canary of %s was not moved: %s", row.deployment.name, error.sentence)
    return moved


def _read(instances: Sequence[int], since: float, until: float) -> Mapping[str, Any]:
    return history.window([history.Scope("instance", each) for each in instances], since, until)


def _look(revision: Revision, read: Read) -> str:
    deployment = revision.deployment
    settings, slo = policies.rollout_of(deployment), policies.slo_of(deployment)
    step = min(revision.canary_step or 0, len(settings.canary) - 1)
    if step < 0:
        # The steps were deleted from the settings meanwhile.
        rollouts.promote_rollout(ACTOR, deployment, sentence=_("The canary's steps were taken out."))
        return "promote"
    now = time.time()
    began = (revision.moved_at or revision.state_since).timestamp()
    since = max(began, now - slo.window_seconds)
    new_rows, old_rows = _instances(deployment, revision)
    active = deployment.active_revision
    new = _figures(revision, read([row.pk for row in new_rows], since, now)) if new_rows else Figures()
    old = _figures(active, read([row.pk for row in old_rows], since, now)) if old_rows else Figures()
    wanted = wanted_at(settings.canary[step].weight, deployment.servers_of(revision))
    verdict = judge(
        Promise(slo.ttft_ms, slo.itl_ms, slo.error_rate),
        Progress(
            elapsed=max(0.0, (clock.now().timestamp()) - began),
            seconds=float(settings.canary[step].seconds),
            last=step + 1 >= len(settings.canary),
            ready=len(new_rows) >= wanted,
            deadline=float(settings.progress_seconds),
        ),
        new,
        old,
    )
    _act(deployment, revision, step, verdict, _kept(verdict, slo, since, now, new, old))
    return verdict.action


def compare(deployment: Deployment, seconds: float, read: Read | None = None) -> tuple[Figures, Figures]:
    """What the active and the pending revision's servers did in the last `seconds`, in this order."""
    pending = selectors.pending_revision(deployment)
    rows = list(selectors.routable_instances().filter(deployment=deployment))
    now = time.time()
    found = []
    for revision in (deployment.active_revision, pending):
        ids = [row.pk for row in rows if revision is not None and row.revision_id == revision.pk]
        found.append(_figures(revision, (read or _read)(ids, now - seconds, now)) if ids else Figures())
    return found[0], found[1]


def _figures(revision: Revision | None, window: Mapping[str, Any]) -> Figures:
    engine = revision.engine if revision is not None else None
    return figures_of(window, counts_every_end=engine is not None and engine.builder == "llamacpp")


def _instances(deployment: Deployment, revision: Revision) -> tuple[list[Instance], list[Instance]]:
    rows = list(selectors.routable_instances().filter(deployment=deployment))
    new = [row for row in rows if row.revision_id == revision.pk]
    return new, [row for row in rows if row.revision_id == deployment.active_revision_id]


def _kept(
    verdict: Verdict, slo: policies.Slo, since: float, until: float, new: Figures, old: Figures
) -> dict[str, Any]:
    return {
        "verdict": verdict.reason,
        "slo": slo.model_dump(mode="json"),
        "new": new.as_dict(),
        "old": old.as_dict(),
        "since": since,
        "until": until,
    }


def _act(
    deployment: Deployment, revision: Revision, step: int, verdict: Verdict, figures: dict[str, Any]
) -> None:
    if verdict.action == "advance":
        rollouts.set_step(ACTOR, deployment, revision, step + 1, verdict.sentence, figures)
    elif verdict.action == "promote":
        rollouts.promote_rollout(ACTOR, deployment, figures, verdict.sentence)
    elif verdict.action == "roll_back":
        rollouts.fail(
            ACTOR,
            deployment,
            revision,
            verdict.reason,
            verdict.sentence,
            _("Compare both revisions on the tab Roll-out, then change the configuration and deploy again."),
            figures,
        )
    elif verdict.reason in ("both_miss", "too_few_requests") and revision.reason != verdict.reason:
        rollouts.note(ACTOR, revision, verdict.reason, verdict.sentence, figures)
