"""A roll-out while it goes on: its pauses, the canary's steps, promotion, and going back. Each writes why.

Functions for people require their role; the others are called by the reconcile tick and by apps/control.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction
from django.utils.translation import gettext as _

from apps.accounts.roles import Action, require
from apps.core import audit, clock
from apps.core.exceptions import Finding, NotPossibleNow
from apps.core.transitions import amend, transition
from apps.serving import gates, policies, selectors, states
from apps.serving.models import Deployment, Instance, Revision

ACTOR = "ctl"


def say(deployment: Deployment, reason: str, sentence: str, remedy: str) -> None:
    """Put on the deployment's row what a person should know of it now."""
    if (deployment.reason, deployment.sentence) != (reason, sentence):
        amend(deployment, reason=reason, sentence=sentence, remedy=remedy)


def is_on_trial(deployment: Deployment, revision: Revision) -> bool:
    """Whether this revision is a canary whose steps are not over."""
    return bool(
        revision.state == states.PENDING
        and revision.promoted_at is None
        and deployment.active_revision_id is not None
        and policies.rollout_of(deployment).canary
    )


# ---------------------------------------------------------------------- people


def pause_rollout(actor: User | str, deployment: Deployment) -> Deployment:
    """Hold the roll-out where it is: shares stay, no server is exchanged, nothing is judged, no deadline runs."""
    require(actor, Action.OPERATE)
    revision = _pending(deployment)
    if revision.paused_at is None:
        with transaction.atomic():
            amend(revision, states=[states.PENDING], paused_at=clock.now())
            audit.record(actor, "rollout.paused", revision, to_state=revision.state)
            amend(deployment)
    return deployment


def resume_rollout(actor: User | str, deployment: Deployment) -> Deployment:
    """Go on with a paused roll-out; the step that it was in begins anew."""
    require(actor, Action.OPERATE)
    revision = _pending(deployment)
    if revision.paused_at is not None:
        with transaction.atomic():
            amend(revision, states=[states.PENDING], paused_at=None, moved_at=clock.now())
            audit.record(actor, "rollout.resumed", revision, to_state=revision.state)
            amend(deployment)
    return deployment


def promote_rollout(
    actor: User | str, deployment: Deployment, figures: Mapping[str, Any] | None = None, sentence: str = ""
) -> Deployment:
    """Leave out what is left of the canary's steps: the new revision takes all requests as its servers serve."""
    require(actor, Action.OPERATE)
    revision = _pending(deployment)
    gates.check(deployment, revision.engine)
    with transaction.atomic():
        moment = clock.now()
        amend(revision, states=[states.PENDING], promoted_at=moment, paused_at=None, moved_at=moment)
        audit.record(
            actor,
            "rollout.promoted",
            revision,
            to_state=revision.state,
            sentence=sentence,
            detail=dict(figures or {}),
        )
        amend(deployment)
    return deployment


def _pending(deployment: Deployment) -> Revision:
    deployment.refresh_from_db()
    revision = selectors.pending_revision(deployment)
    if revision is None or deployment.desired != Deployment.Desired.RUNNING:
        raise NotPossibleNow(
            "no_rollout",
            _("No change of %(name)s is being rolled out.") % {"name": deployment.name},
            remedy=_("Deploy a changed configuration; that begins a roll-out."),
        )
    return revision


def call_off(actor: User | str, deployment: Deployment) -> Revision | None:
    """End a roll-out by hand: the active revision goes on, as it did all the while. Null where none goes on."""
    revision = selectors.pending_revision(deployment)
    if revision is None:
        return None
    with transaction.atomic():
        sentence = _("The roll-out was called off; the revision before goes on.")
        transition(
            revision,
            states.SUPERSEDED,
            actor=actor,
            sources=[states.PENDING],
            verb="rollout.called_off",
            reason="called_off",
            sentence=sentence,
        )
        amend(deployment, deployed_at=clock.now(), waiting_build=None, reason="", sentence="", remedy="")
    return revision


def refuse(actor: User | str, deployment: Deployment, why: Finding) -> None:
    """An engine that a deployment waited for may not be deployed: say why; what serves goes on serving."""
    said: dict[str, Any] = {"reason": why.id, "sentence": why.message, "remedy": why.remedy}
    if not transition(deployment, states.FAILED, actor=actor, sources=[states.WAITING], **said):
        amend(deployment, **said)
        audit.record(
            actor,
            "deployment.refused",
            deployment,
            to_state=deployment.state,
            reason=why.id,
            sentence=why.message,
        )


# ---------------------------------------------------------------------- the tick and the canary's judge


def begin_canary(deployment: Deployment) -> None:
    """The first step's servers serve: give them their share from now on."""
    revision = selectors.pending_revision(deployment)
    if revision is not None and revision.canary_step is None:
        set_step(ACTOR, deployment, revision, 0, _("Its first servers serve."), {})


def set_step(
    actor: User | str,
    deployment: Deployment,
    revision: Revision,
    step: int,
    why: str,
    figures: Mapping[str, Any],
) -> bool:
    """Begin a step of the canary; the figures that led to it are kept. False where somebody was first."""
    weight = policies.rollout_of(deployment).canary[step].weight
    sentence = _("Step %(step)d: %(weight)d %% of new requests. %(why)s") % {
        "step": step + 1,
        "weight": weight,
        "why": why,
    }
    with transaction.atomic():
        before = Revision.objects.filter(
            pk=revision.pk,
            state=states.PENDING,
            canary_step=revision.canary_step,
            promoted_at__isnull=True,
            paused_at__isnull=True,
        )
        if not before.update(canary_step=step):
            return False
        amend(revision, states=[states.PENDING], moved_at=clock.now(), reason="", sentence=sentence)
        audit.record(
            actor,
            "rollout.step",
            revision,
            to_state=revision.state,
            sentence=sentence,
            detail={"step": step, "weight": weight, **figures},
        )
        # The routers look at the deployment's version.
        amend(deployment)
    return True


def note(
    actor: User | str, revision: Revision, reason: str, sentence: str, figures: Mapping[str, Any]
) -> None:
    """Keep a judgement that changed nothing, and say it on the revision until another comes."""
    with transaction.atomic():
        if amend(revision, states=[states.PENDING], reason=reason, sentence=sentence):
            audit.record(
                actor,
                "rollout.held",
                revision,
                to_state=revision.state,
                reason=reason,
                sentence=sentence,
                detail=dict(figures),
            )


def give_up(deployment: Deployment, revision_id: int, instance_id: int | None) -> None:
    """Stop trying a revision. A roll-out leaves the active one serving; without one the deployment has failed."""
    revision = Revision.objects.get(pk=revision_id)
    if instance_id is None:
        seconds = policies.rollout_of(deployment).progress_seconds
        reason = "progress_deadline"
        sentence = _("Its servers were not serving after %(seconds)d s.") % {"seconds": seconds}
        if deployment.reason in ("no_free_share", "no_slot"):
            sentence = f"{sentence} {deployment.sentence}"
        remedy = _("Read the logs of its servers; give it more time under Roll-out if it needs that.")
    else:
        failed = Instance.objects.get(pk=instance_id)
        reason, sentence, remedy = failed.reason, failed.sentence, failed.remedy
    fail(ACTOR, deployment, revision, reason, sentence, remedy)


def fail(
    actor: User | str,
    deployment: Deployment,
    revision: Revision,
    reason: str,
    sentence: str,
    remedy: str,
    figures: Mapping[str, Any] | None = None,
) -> None:
    """End a revision's roll-out and go on with the one before; without one the deployment has failed."""
    with transaction.atomic():
        if revision.state == states.PENDING:
            transition(revision, states.FAILED, actor=actor, reason=reason, sentence=sentence, remedy=remedy)
            if figures:
                audit.record(
                    actor,
                    "rollout.rolled_back",
                    revision,
                    to_state=revision.state,
                    reason=reason,
                    sentence=sentence,
                    detail=dict(figures),
                )
        if deployment.active_revision_id not in (None, revision.pk):
            goes_on = _("Revision %(number)s failed, the one before goes on: %(cause)s") % {
                "number": revision.number,
                "cause": sentence,
            }
            say(deployment, "rollout_failed", goes_on, remedy)
            return
        sources = (states.STARTING, states.READY, states.DEGRADED)
        if deployment.state in sources:
            transition(
                deployment,
                states.FAILED,
                actor=actor,
                sources=[deployment.state],
                reason=reason,
                sentence=sentence,
                remedy=remedy,
            )


def tell_stop_first(deployment: Deployment, revision: Revision) -> None:
    """Say that the new servers have no room beside the old ones, so that one is stopped before the other starts."""
    sentence = _(
        "There is no room for a new server of revision %(number)d beside the old one: one is stopped, then one is "
        "started. Requests wait meanwhile."
    ) % {"number": revision.number}
    if revision.reason == "stop_first":
        return
    with transaction.atomic():
        amend(revision, states=[states.PENDING], reason="stop_first", sentence=sentence)
        audit.record(
            ACTOR,
            "rollout.stop_first",
            revision,
            to_state=revision.state,
            reason="stop_first",
            sentence=sentence,
        )
        say(
            deployment,
            "stop_first",
            sentence,
            _("Give each server a smaller share, or free the slot, and both fit side by side."),
        )
