"""What people do with deployments. Each service writes what should be true; workers/reconcile.py makes it true."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction
from django.utils.translation import gettext as _

from apps.accounts.roles import Action, require
from apps.core import audit, clock
from apps.core.exceptions import InvalidInput, NotPossibleNow
from apps.core.transitions import amend, transition
from apps.engines import selectors as engine_selectors
from apps.engines import services as engine_services
from apps.engines import states as engine_states
from apps.engines.models import Build, Engine
from apps.serving import gates, inputs, preview, revisions, rollouts, selectors, states
from apps.serving.adoption import adopt_repository, adoption_plan, profile_of_line
from apps.serving.autoscale import begin_awake, settings_changed, wake_deployment
from apps.serving.imports import check_again, delete_repository, import_repository, require_unchanged
from apps.serving.models import Deployment, Instance, Revision
from apps.serving.profiles import (
    delete_batching_profile,
    roll_back_batching_profile,
    save_batching_profile,
)
from apps.serving.rollouts import pause_rollout, promote_rollout, resume_rollout

__all__ = [
    "adopt_repository",
    "check_again",
    "delete_batching_profile",
    "delete_deployment",
    "delete_repository",
    "deploy",
    "import_repository",
    "pause_rollout",
    "profile_of_line",
    "promote_rollout",
    "restart_instance",
    "resume_rollout",
    "roll_back",
    "roll_back_batching_profile",
    "save_batching_profile",
    "save_deployment",
    "start_waiting",
    "stop",
    "wake_deployment",
]

# States that a press of deploy leads out of; the others are already on their way or serve.
_RESTING = (states.STOPPED, states.FAILED, states.STOPPING)


def save_deployment(
    actor: User | str, data: Mapping[str, Any], instance: Deployment | None = None
) -> Deployment:
    """Create a deployment, stopped, or change one (`instance`). Keys left out keep their value or default.

    Keys: name, build_profile and batching (a row or its name), replicas, placement, slo, rollout, scaling. What runs
    is not touched before `deploy`; slo, rollout and scaling hold at once. Raises InvalidInput naming the field.
    """
    require(actor, Action.CONFIGURE)
    created = instance is None
    row = Deployment.objects.get(pk=instance.pk) if instance is not None else Deployment(state=states.STOPPED)
    if instance is not None and data.get("name", row.name) != row.name:
        raise InvalidInput(
            "name_fixed",
            _("The name of a deployment cannot change: clients call it by that name."),
            field="name",
            remedy=_("Create another deployment, and delete this one when nobody calls it any more."),
        )
    if row.repository is not None:
        data = _of_repository(row, data)
    wanted = inputs.resolve_deployment(data) if row.repository is None else dict(data)
    if created:
        wanted.setdefault("placement", {"device": "any"})
        for field in ("build_profile", "batching"):
            wanted.setdefault(field, None)
        if wanted.get("repository") is not None:
            wanted.setdefault("repository_model", adoption_plan(wanted["repository"]).entry)
        wanted = inputs.resolve_deployment(wanted)
        inputs.check_name(str(wanted.get("name", "")))
    changes = inputs.assign(row, wanted, inputs.DEPLOYMENT_FIELDS)
    if created:
        with transaction.atomic():
            row.save()
            audit.record(actor, "deployment.created", row, to_state=row.state, detail={"changes": changes})
    elif changes:
        with transaction.atomic():
            amend(row, **{key: getattr(row, key) for key in changes})
            audit.record(actor, "deployment.changed", row, detail={"changes": changes})
            if "scaling" in changes:
                settings_changed(actor, row)
    return row


def _of_repository(row: Deployment, data: Mapping[str, Any]) -> dict[str, Any]:
    """What may change on a deployment of a repository: all but which repository it serves."""
    data = inputs.resolve_deployment({**data, "repository": data.get("repository", row.repository)})
    if data.get("build_profile") or data.get("repository", row.repository) != row.repository:
        raise InvalidInput(
            "serves_a_repository",
            _("This deployment serves a model repository, and no engine of a build profile."),
            field="build_profile",
            remedy=_("Make another deployment for the build profile."),
        )
    return {key: value for key, value in data.items() if key not in ("build_profile", "repository")}


def deploy(actor: User | str, deployment: Deployment) -> Deployment:
    """Make the deployment run as it is configured now; a second press while it does changes nothing.

    Without an engine of the build profile a build is started and the deployment waits for it (what serves goes on
    serving). A configuration that was not deployed before becomes a new revision; a failed one is tried again.
    """
    require(actor, Action.OPERATE)
    deployment.refresh_from_db()
    _require_room(deployment)
    if deployment.repository is not None:
        require_unchanged(deployment.repository)
    if deployment.build_profile is None:
        return start_with(actor, deployment, None)
    engine = engine_selectors.newest_engine(deployment.build_profile)
    if engine is None:
        build = engine_services.start_build(actor, deployment.build_profile)
        engine = build.engine if build.state == engine_states.SUCCEEDED else None
        if engine is None:
            return _wait_for(actor, deployment, build)
    gates.check(deployment, engine)
    return start_with(actor, deployment, engine)


def _require_room(deployment: Deployment) -> None:
    """Refuse a batching profile whose KV cache cannot fit into this machine's memory."""
    if deployment.placement.get("device") == "gpu" or deployment.checkpoint is None:
        return
    found = preview.batching_findings(deployment.batching, deployment.checkpoint)
    errors = tuple(finding for finding in found if finding.severity == "error")
    if errors:
        first = errors[0]
        raise InvalidInput(first.id, first.message, field="batching", remedy=first.remedy, findings=errors)


def start_with(actor: User | str, deployment: Deployment, engine: Engine | None) -> Deployment:
    """Make the deployment run its present configuration with this engine; without one, its repository."""
    requested_by = actor if isinstance(actor, User) else None
    with transaction.atomic():
        revision = revisions.ensure(actor, deployment, engine, requested_by)
        _want_running(actor, deployment, detail={"revision": revision.number})
    return deployment


def start_waiting(actor: User | str, deployment: Deployment, engine: Engine) -> bool:
    """Go on with a deployment whose engine is ready. False where it waits no more."""
    refused = gates.refusal(deployment, engine)
    with transaction.atomic():
        waited = Deployment.objects.filter(pk=deployment.pk, waiting_build__isnull=False).update(
            waiting_build=None
        )
        if not waited:
            return False
        deployment.refresh_from_db()
        if refused is not None:
            rollouts.refuse(actor, deployment, refused)
            return True
        start_with(actor, deployment, engine)
    return True


def _want_running(actor: User | str, deployment: Deployment, detail: dict[str, Any]) -> None:
    wanted: dict[str, Any] = {
        "desired": Deployment.Desired.RUNNING,
        "deployed_at": clock.now(),
        "waiting_build": None,
        "scaled_to": begin_awake(deployment),
    }
    moved = transition(
        deployment,
        states.STARTING,
        actor=actor,
        sources=(*_RESTING, states.WAITING),
        verb="deployment.deployed",
        **wanted,
    )
    if not moved:
        # What was said of the last try does not hold for this one.
        amend(deployment, reason="", sentence="", remedy="", **wanted)
        audit.record(actor, "deployment.deployed", deployment, to_state=deployment.state, detail=detail)


def _wait_for(actor: User | str, deployment: Deployment, build: Build) -> Deployment:
    sentence = _("Waits for build %(number)s to make its engine.") % {"number": f"#{build.number}"}
    wanted: dict[str, Any] = {
        "desired": Deployment.Desired.RUNNING,
        "deployed_at": clock.now(),
        "waiting_build": build,
    }
    with transaction.atomic():
        moved = transition(
            deployment,
            states.WAITING,
            actor=actor,
            sources=_RESTING,
            reason="engine_not_built",
            sentence=sentence,
            verb="deployment.deployed",
            **wanted,
        )
        if not moved:
            amend(deployment, reason="engine_not_built", sentence=sentence, remedy="", **wanted)
            audit.record(actor, "deployment.deployed", deployment, sentence=sentence)
    return deployment


def stop(actor: User | str, deployment: Deployment) -> Deployment:
    """Stop the deployment: no new requests, those in flight finish, then the servers exit. Twice changes nothing."""
    require(actor, Action.OPERATE)
    with transaction.atomic():
        deployment.refresh_from_db()
        wanted: dict[str, Any] = {"desired": Deployment.Desired.STOPPED, "waiting_build": None}
        if deployment.state in (states.STOPPED, states.STOPPING):
            amend(deployment, **wanted)
            return deployment
        idle = (
            deployment.state in (states.WAITING, states.ASLEEP, states.FAILED)
            and not selectors.live_instances(deployment).exists()
        )
        transition(
            deployment,
            states.STOPPED if idle else states.STOPPING,
            actor=actor,
            sources=[deployment.state],
            verb="deployment.stopped" if idle else "deployment.stopping",
            **wanted,
        )
    return deployment


def roll_back(actor: User | str, deployment: Deployment, revision: Revision) -> Deployment:
    """Run an earlier revision again. The configuration stays as it is; deploying it later makes it run again.

    The active revision is gone back to while another is rolled out: that roll-out is called off.
    """
    require(actor, Action.OPERATE)
    if revision.deployment_id != deployment.pk:
        raise InvalidInput(
            "revision_of_another",
            _("Revision %(number)s belongs to another deployment.") % {"number": revision.number},
            field="revision",
            remedy=_("Choose one of this deployment's revisions."),
        )
    if revision.engine is not None and revision.engine.state != engine_states.READY:
        raise NotPossibleNow(
            "engine_not_ready",
            _("The engine of revision %(number)s is %(state)s.")
            % {"number": revision.number, "state": revision.engine.state},
            field="revision",
            remedy=_("Build it again, then deploy."),
        )
    with transaction.atomic():
        deployment.refresh_from_db()
        revision.refresh_from_db()
        if revision.state == states.ACTIVE and rollouts.call_off(actor, deployment) is not None:
            return deployment
        if revision.state in (states.PENDING, states.ACTIVE):
            running = deployment.desired == Deployment.Desired.RUNNING
            raise NotPossibleNow(
                "revision_is_current",
                _("Revision %(number)s is the one that runs.") % {"number": revision.number}
                if running
                else _("Revision %(number)s is the current one.") % {"number": revision.number},
                field="revision",
                remedy=_("Choose an earlier revision.") if running else _("Press Deploy to start it."),
            )
        revisions.go_back(actor, deployment, revision)
        _want_running(actor, deployment, detail={"revision": revision.number, "rolled_back": True})
    return deployment


def restart_instance(actor: User | str, instance: Instance) -> Instance:
    """Let a server finish its requests, end it and start another in its place; a failed one is placed anew."""
    require(actor, Action.OPERATE)
    with transaction.atomic():
        instance.refresh_from_db()
        deployment = instance.deployment
        if deployment.desired != Deployment.Desired.RUNNING:
            raise NotPossibleNow(
                "deployment_stopped",
                _("The deployment %(name)s is stopped.") % {"name": deployment.name},
                remedy=_("Deploy it; that starts its servers."),
            )
        if instance.state == states.FAILED:
            if instance.revision.state == states.FAILED:
                revisions.make_pending(actor, instance.revision, verb="revision.retried")
            _want_running(actor, deployment, detail={"instance": instance.uid})
        elif not amend(
            instance,
            states=(states.SPAWNED, states.LOADING, states.SERVING, states.UNREACHABLE),
            stop_requested_at=clock.now(),
        ):
            raise NotPossibleNow(
                "instance_not_running",
                _("The server is %(state)s.") % {"state": instance.state},
                remedy=_("Wait until it serves, or until its successor does."),
            )
        audit.record(actor, "instance.restart", instance, to_state=instance.state)
    return instance


def delete_deployment(actor: User | str, deployment: Deployment) -> None:
    """Delete a stopped deployment with its revisions and history; engines and profiles stay."""
    require(actor, Action.CONFIGURE)
    with transaction.atomic():
        deployment.refresh_from_db()
        stopped = deployment.state in (states.STOPPED, states.FAILED)
        if not stopped or selectors.live_instances(deployment).exists():
            raise NotPossibleNow(
                "deployment_running",
                _("The deployment %(name)s is %(state)s.")
                % {"name": deployment.name, "state": deployment.state},
                remedy=_("Stop it first, then delete it."),
            )
        audit.record(actor, "deployment.deleted", deployment, from_state=deployment.state)
        # Instances first: revisions are protected while one points at them.
        deployment.instances.all().delete()
        deployment.delete()
