"""Revisions: immutable snapshots. A configuration that ran before keeps its number when it is deployed again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.contrib.auth.models import User
from django.db.models import F, Max
from django.utils.translation import gettext as _

from apps.core import audit, clock
from apps.core.exceptions import InvalidInput
from apps.core.transitions import amend, announce, transition
from apps.engines import selectors as engine_selectors
from apps.engines.models import Engine
from apps.serving import selectors, states
from apps.serving.domain import batching
from apps.serving.models import BatchingProfile, Deployment, Instance, Revision


def batching_snapshot(profile: BatchingProfile) -> dict[str, Any]:
    """The part of a profile that a revision keeps; keys that came later are left out where nothing is set."""
    values = {key: getattr(profile, key) for key in batching.SNAPSHOT_KEYS}
    later = batching.LATER_KEYS
    return {key: value for key, value in values.items() if key not in later or value != later[key]}


def plain_profile() -> dict[str, Any]:
    """What a profile says in which nothing was set."""
    return {key: getattr(BatchingProfile(), key) for key in batching.SNAPSHOT_KEYS}


def present(deployment: Deployment) -> dict[str, Any] | None:
    """What a revision of the present configuration would hold; null while its engine is not built."""
    if deployment.build_profile is None:
        return snapshot(deployment, None)
    engine = engine_selectors.newest_engine(deployment.build_profile)
    return None if engine is None else snapshot(deployment, engine)


def snapshot(deployment: Deployment, engine: Engine | None) -> dict[str, Any]:
    """What a revision of the present configuration holds; without an engine it is of the deployment's repository."""
    repository = deployment.repository
    return {
        "engine": engine,
        "repository_fingerprint": repository.fingerprint if repository is not None else "",
        "batching": batching_snapshot(deployment.batching),
        "replicas": deployment.replicas,
        "placement": dict(deployment.placement) or {"device": "any"},
    }


def matching(deployment: Deployment, wanted: dict[str, Any]) -> Revision | None:
    """The newest revision with this very content."""
    for revision in deployment.revisions.filter(engine=wanted["engine"]).order_by("-number"):
        if all(getattr(revision, key) == value for key, value in wanted.items()):
            return revision
    return None


def ensure(
    actor: User | str, deployment: Deployment, engine: Engine | None, requested_by: User | None
) -> Revision:
    """The revision of the present configuration, made pending unless it runs. Call inside a transaction.

    One that differs from what runs in its number of servers alone takes over those that run; none is restarted.
    """
    wanted = snapshot(deployment, engine)
    found = matching(deployment, wanted)
    if found is not None and found.state == states.ACTIVE:
        supersede_pending(actor, deployment, keep=found)
        return found
    if found is not None and found.state == states.PENDING:
        return found
    source = _same_but_for_replicas(deployment, wanted)
    if found is None:
        found = _create(actor, deployment, wanted, requested_by)
    else:
        make_pending(actor, found, verb="revision.retried", supersede=source is None)
    if source is not None:
        carry_over(actor, deployment, source, found)
    supersede_pending(actor, deployment, keep=found)
    return found


def _create(
    actor: User | str, deployment: Deployment, wanted: dict[str, Any], requested_by: User | None
) -> Revision:
    before = selectors.target_revision(deployment)
    number = (deployment.revisions.aggregate(top=Max("number"))["top"] or 0) + 1
    revision = Revision.objects.create(
        deployment=deployment,
        number=number,
        state=states.PENDING,
        created_by=requested_by,
        moved_at=clock.now(),
        **wanted,
    )
    detail = {"changes": changes(before, revision), "from": before.number if before else None}
    audit.record(actor, "revision.created", revision, to_state=states.PENDING, detail=detail)
    announce(revision)
    return revision


def changes(before: Revision | None, after: Revision) -> dict[str, list[Any]]:
    """{field: [old, new]} of what differs between two revisions; empty without an earlier one."""
    if before is None:
        return {}
    old, new = _plain(before), _plain(after)
    return {key: [old.get(key), new.get(key)] for key in sorted({*old, *new}) if old.get(key) != new.get(key)}


def history_changes(newest_first: Sequence[Revision]) -> dict[int, dict[str, list[Any]]]:
    """{number: what differs from the revision made before it}; the oldest of them has none."""
    pairs = zip(newest_first[1:], newest_first, strict=False)
    return {after.number: changes(before, after) for before, after in pairs}


def _plain(revision: Revision) -> dict[str, Any]:
    engine = revision.engine
    return {
        "engine": f"{engine.quantization} {engine.fingerprint[:12]}" if engine is not None else None,
        "replicas": revision.replicas,
        **{f"batching.{key}": value for key, value in revision.batching.items()},
        **{f"placement.{key}": value for key, value in revision.placement.items()},
    }


def _same_but_for_replicas(deployment: Deployment, wanted: dict[str, Any]) -> Revision | None:
    """What runs or is rolled out with this very content, whatever its number of servers."""
    rows = deployment.revisions.filter(
        state__in=(states.ACTIVE, states.PENDING), engine=wanted["engine"]
    ).order_by("-number")
    for row in rows:
        if all(getattr(row, key) == value for key, value in wanted.items() if key != "replicas"):
            return row
    return None


def carry_over(actor: User | str, deployment: Deployment, source: Revision, target: Revision) -> None:
    """Let the servers of one revision belong to another that differs in their number alone.

    A target of the active revision becomes active at once; one of a revision that is rolled out takes its place in
    the roll-out. Servers that are too many drain, those that are missing are started.
    """
    carried = Instance.objects.filter(revision=source).exclude(state__in=selectors.NO_PROCESS)
    ids = list(carried.values_list("pk", flat=True))
    Instance.objects.filter(pk__in=ids).update(revision=target, version=F("version") + 1)
    progress: dict[str, Any] = {
        "canary_step": source.canary_step,
        "promoted_at": source.promoted_at,
        "paused_at": source.paused_at,
    }
    amend(target, moved_at=clock.now(), **progress)
    detail = {"instances": len(ids), "replicas": [source.replicas, target.replicas], "from": source.number}
    audit.record(actor, "revision.carried_over", target, to_state=target.state, detail=detail)
    if source.state == states.ACTIVE:
        amend(deployment, active_revision=target)
        transition(target, states.ACTIVE, actor=actor, sources=[states.PENDING], verb="revision.scaled")
    transition(source, states.SUPERSEDED, actor=actor, sources=[source.state])


def make_pending(actor: User | str, revision: Revision, verb: str, supersede: bool = True) -> None:
    """Let a failed or superseded revision be the next to run. Call inside a transaction."""
    fresh: dict[str, Any] = {"canary_step": None, "promoted_at": None, "paused_at": None}
    if not transition(revision, states.PENDING, actor=actor, verb=verb, moved_at=clock.now(), **fresh):
        raise InvalidInput(
            "revision_changed",
            _("Revision %(number)s is %(state)s now.") % {"number": revision.number, "state": revision.state},
            field="revision",
            remedy=_("Reload the page and choose again."),
        )
    if supersede:
        supersede_pending(actor, revision.deployment, keep=revision)


def go_back(actor: User | str, deployment: Deployment, revision: Revision) -> None:
    """Let an earlier revision be the next to run; one that differs in its number of servers alone restarts none.

    Going back is no trial: a canary's steps are left out. Call inside a transaction.
    """
    wanted = {key: getattr(revision, key) for key in snapshot(deployment, revision.engine)}
    source = _same_but_for_replicas(deployment, wanted)
    make_pending(actor, revision, verb="revision.rolled_back", supersede=source is None)
    amend(revision, promoted_at=clock.now())
    if source is not None:
        carry_over(actor, deployment, source, revision)
        supersede_pending(actor, deployment, keep=revision)


def supersede_pending(actor: User | str, deployment: Deployment, keep: Revision) -> None:
    """Give up every other revision that waits to run: one at a time is rolled out."""
    for other in deployment.revisions.filter(state=states.PENDING).exclude(pk=keep.pk):
        transition(other, states.SUPERSEDED, actor=actor)
