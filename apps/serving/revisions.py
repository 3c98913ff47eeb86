"""Revisions: immutable snapshots. A configuration that ran before keeps its number when it is deployed again."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.models import User
from django.db.models import Max
from django.utils.translation import gettext as _

from apps.core import audit
from apps.core.exceptions import InvalidInput
from apps.core.transitions import announce, transition
from apps.engines.models import Engine
from apps.serving import states
from apps.serving.domain import batching
from apps.serving.models import BatchingProfile, Deployment, Revision


def batching_snapshot(profile: BatchingProfile) -> dict[str, Any]:
    """The part of a profile that a revision keeps; keys that came later are left out where nothing is set."""
    values = {key: getattr(profile, key) for key in batching.SNAPSHOT_KEYS}
    later = batching.LATER_KEYS
    return {key: value for key, value in values.items() if key not in later or value != later[key]}


def snapshot(deployment: Deployment, engine: Engine) -> dict[str, Any]:
    """What a revision of the present configuration holds."""
    return {
        "engine": engine,
        "batching": batching_snapshot(deployment.batching),
        "replicas": deployment.replicas,
        "placement": dict(deployment.placement) or {"device": "any"},
    }


def matching(deployment: Deployment, wanted: dict[str, Any]) -> Revision | None:
    """The newest revision with this very content."""
    for revision in deployment.revisions.filter(engine=wanted["engine"]).order_by("-number"):
        if all(getattr(revision, key) == wanted[key] for key in ("batching", "replicas", "placement")):
            return revision
    return None


def ensure(actor: User | str, deployment: Deployment, engine: Engine, requested_by: User | None) -> Revision:
    """The revision of the present configuration, made pending unless it runs. Call inside a transaction."""
    wanted = snapshot(deployment, engine)
    found = matching(deployment, wanted)
    if found is not None:
        if found.state in (states.FAILED, states.SUPERSEDED):
            make_pending(actor, found, verb="revision.retried")
        elif found.state == states.ACTIVE:
            supersede_pending(actor, deployment, keep=found)
        return found
    number = (deployment.revisions.aggregate(top=Max("number"))["top"] or 0) + 1
    revision = Revision.objects.create(
        deployment=deployment, number=number, state=states.PENDING, created_by=requested_by, **wanted
    )
    audit.record(actor, "revision.created", revision, to_state=states.PENDING)
    announce(revision)
    supersede_pending(actor, deployment, keep=revision)
    return revision


def make_pending(actor: User | str, revision: Revision, verb: str) -> None:
    """Let a failed or superseded revision be the next to run. Call inside a transaction."""
    if not transition(revision, states.PENDING, actor=actor, verb=verb):
        raise InvalidInput(
            "revision_changed",
            _("Revision %(number)s is %(state)s now.") % {"number": revision.number, "state": revision.state},
            field="revision",
            remedy=_("Reload the page and choose again."),
        )
    supersede_pending(actor, revision.deployment, keep=revision)


def supersede_pending(actor: User | str, deployment: Deployment, keep: Revision) -> None:
    """Give up every other revision that waits to run: one at a time is rolled out."""
    for other in deployment.revisions.filter(state=states.PENDING).exclude(pk=keep.pk):
        transition(other, states.SUPERSEDED, actor=actor)
