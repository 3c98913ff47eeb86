"""Changing how many servers a deployment has, without a new revision: each decision is kept with its figures.

`scaled_to` on the deployment's row says it; the reconcile tick starts what is missing and drains what is too many.
apps/control/autoscale.py reads the figures and asks the domain; people wake a sleeping deployment by hand.
"""

from __future__ import annotations

from typing import Any

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import QuerySet
from django.utils.translation import gettext as _

from apps.accounts.roles import Action, require
from apps.core import audit
from apps.core.exceptions import NotPossibleNow
from apps.core.transitions import amend
from apps.serving.autoscale_policy import scaling_of
from apps.serving.domain.autoscale import Decision
from apps.serving.models import Deployment, ScalingDecision

# For each deployment; the newest stay.
KEPT_DECISIONS = 500
# What is the ordinary course of things is not kept again and again.
_ORDINARY = frozenset({"steady", "asleep"})
_LOOKED_AT = 20


def decisions(deployment: Deployment) -> QuerySet[ScalingDecision]:
    """Decisions of a deployment, newest first."""
    return deployment.scaling_decisions.all()


def wake_deployment(actor: User | str, deployment: Deployment) -> Deployment:
    """Start the servers of a deployment that sleeps, without waiting for a request. Awake it stays as it is."""
    require(actor, Action.OPERATE)
    deployment.refresh_from_db()
    if deployment.desired != Deployment.Desired.RUNNING:
        raise NotPossibleNow(
            "deployment_stopped",
            _("The deployment %(name)s is stopped.") % {"name": deployment.name},
            remedy=_("Deploy it; that starts its servers."),
        )
    wake(actor, deployment, _("Woken by hand."), "by_hand")
    return deployment


def wake(actor: User | str, deployment: Deployment, sentence: str, reason: str) -> bool:
    """Give a sleeping deployment a server; False where it does not sleep or somebody was first."""
    if deployment.scaled_to != 0:
        return False
    wanted = max(1, scaling_of(deployment).min_replicas)
    return change(actor, deployment, Decision(wanted, "wake", reason, sentence))


def change(actor: User | str, deployment: Deployment, decision: Decision) -> bool:
    """Make a decision hold, if the row still asks for as many servers as it did when it was read."""
    before = deployment.servers_of(deployment.active_revision)
    with transaction.atomic():
        same = Deployment.objects.filter(
            pk=deployment.pk, desired=Deployment.Desired.RUNNING, scaled_to=deployment.scaled_to
        )
        if not same.update(scaled_to=decision.replicas):
            return False
        amend(deployment, scaled_to=decision.replicas)
        keep(actor, deployment, before, decision)
        audit.record(
            actor,
            "deployment.scaled",
            deployment,
            to_state=deployment.state,
            reason=decision.reason,
            sentence=decision.sentence,
            detail={"changes": {"servers": [before, decision.replicas]}, "figures": decision.figures},
        )
    return True


def note(actor: str, deployment: Deployment, decision: Decision) -> bool:
    """Keep what held a change back, once until the next change; False where it was known or is ordinary."""
    if decision.reason in _ORDINARY:
        return False
    for row in decisions(deployment)[:_LOOKED_AT]:
        if row.before != row.after:
            break
        if row.reason == decision.reason:
            return False
    keep(actor, deployment, decision.replicas, decision)
    return True


def keep(actor: User | str, deployment: Deployment, before: int, decision: Decision) -> ScalingDecision:
    """Write the row of one decision, and forget the oldest."""
    row = ScalingDecision.objects.create(
        deployment=deployment,
        before=before,
        after=decision.replicas,
        cause=decision.cause,
        reason=decision.reason,
        sentence=decision.sentence,
        figures=decision.figures,
        actor=audit.actor_label(actor),
    )
    kept = list(decisions(deployment).values_list("pk", flat=True)[:KEPT_DECISIONS])
    if len(kept) == KEPT_DECISIONS:
        deployment.scaling_decisions.exclude(pk__in=kept).delete()
    return row


def begin_awake(deployment: Deployment) -> int | None:
    """`scaled_to` of a deployment that a person deploys: what scales itself keeps its servers and wakes."""
    settings = scaling_of(deployment)
    if not settings.acts:
        return None
    if deployment.desired == Deployment.Desired.RUNNING and deployment.scaled_to:
        return deployment.scaled_to
    return settings.start(deployment.replicas)


def settings_changed(actor: User | str, deployment: Deployment) -> None:
    """The settings are others: what scales no more has `replicas` again, what may not sleep any more wakes."""
    settings = scaling_of(deployment)
    if deployment.scaled_to is None:
        return
    if settings.acts and not (deployment.scaled_to == 0 and settings.idle_seconds is None):
        return
    before = deployment.scaled_to
    amend(deployment, scaled_to=settings.start(deployment.replicas) if settings.acts else None)
    sentence = _("How it scales was changed.")
    after = deployment.servers_of(deployment.active_revision)
    keep(actor, deployment, before, Decision(after, "bounds", "settings", sentence))


def decision_dict(row: ScalingDecision) -> dict[str, Any]:
    """One decision as plain values."""
    return {
        "id": row.pk,
        "at": row.at.isoformat(),
        "before": row.before,
        "after": row.after,
        "cause": row.cause,
        "reason": row.reason,
        "sentence": row.sentence,
        "figures": row.figures,
        "actor": row.actor,
    }
