"""REST: batching profiles, deployments, revisions and instances."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from ninja import Query, Router, Status
from pydantic import BaseModel, ConfigDict, Field

from apps.accounts.rest import REFUSALS, LogQuery, LogText, Page, PageQuery, actor_of, page_of
from apps.accounts.roles import Action, require
from apps.realtime import log_sources
from apps.serving import (
    autoscale,
    changes,
    crashes,
    inputs,
    preview,
    selectors,
    serialize,
    services,
    timeline,
    versions,
)
from apps.serving.models import Deployment as DeploymentRow
from apps.serving.models import Revision as RevisionRow
from apps.serving.schemas import (
    BatchingProfile,
    BatchingProfilePlan,
    BatchingProfileVersion,
    CrashReport,
    Deployment,
    Instance,
    RenderedFiles,
    Revision,
    RolloutState,
    ScalingDecision,
    TimelineEntry,
)
from apps.serving.shapes import BatchingProfileFields, DeploymentFields

router = Router()
PROFILES, DEPLOYMENTS, INSTANCES = ["batching profiles"], ["deployments"], ["instances"]


class NewBatchingProfile(BatchingProfileFields):
    """A batching profile to create."""

    name: str


class Confirmation(BaseModel):
    """The change that was looked at."""

    confirm: str = Field(
        "", max_length=64, description="The plan's token: refused where the change has become another one."
    )


class ProfileRollBack(BaseModel):
    """Which version of a profile shall hold again."""

    model_config = ConfigDict(extra="forbid", strict=True)

    version: int = Field(ge=1, le=2**31 - 1, description="Number of a version.")


class NewDeployment(DeploymentFields):
    """A deployment to create, stopped."""

    name: str


class RollBack(BaseModel):
    """Which revision shall run again."""

    model_config = ConfigDict(extra="forbid", strict=True)

    revision: int = Field(ge=1, le=2**31 - 1, description="Number of a revision.")


class FilesQuery(BaseModel):
    """Which configuration to render."""

    revision: int | None = Field(None, ge=1, le=2**31 - 1, description="Null: as it is configured now.")


class InstanceQuery(PageQuery):
    """Narrows the list of instances."""

    deployment: str = Field("", max_length=63)
    state: str = Field("", max_length=30)


@router.get(
    "/batching-profiles",
    response={200: Page[BatchingProfile], **REFUSALS},
    operation_id="list_batching_profiles",
    tags=PROFILES,
)
def list_batching_profiles(request: HttpRequest, page: Query[PageQuery]) -> dict[str, Any]:
    """Every batching profile, by name."""
    require(actor_of(request), Action.VIEW)
    return page_of(selectors.batching_profiles(), page, serialize.batching_profile_dict)


@router.post(
    "/batching-profiles",
    response={201: BatchingProfile, **REFUSALS},
    operation_id="create_batching_profile",
    tags=PROFILES,
)
def create_batching_profile(request: HttpRequest, body: NewBatchingProfile) -> Status[dict[str, Any]]:
    """Create a batching profile."""
    made = services.save_batching_profile(actor_of(request), body.model_dump(mode="json"))
    return Status(201, serialize.batching_profile_dict(made))


@router.get(
    "/batching-profiles/{name}",
    response={200: BatchingProfile, **REFUSALS},
    operation_id="get_batching_profile",
    tags=PROFILES,
)
def get_batching_profile(request: HttpRequest, name: str) -> dict[str, Any]:
    """One batching profile with what in it has no effect."""
    require(actor_of(request), Action.VIEW)
    return serialize.batching_profile_dict(selectors.batching_profile(name))


@router.put(
    "/batching-profiles/{name}",
    response={200: BatchingProfile, **REFUSALS},
    operation_id="change_batching_profile",
    tags=PROFILES,
)
def change_batching_profile(
    request: HttpRequest, name: str, body: BatchingProfileFields, confirmation: Query[Confirmation]
) -> dict[str, Any]:
    """Change a batching profile; what is left out goes back to its default.

    Deployments keep what they run until they are deployed again. `plan_batching_profile` says beforehand what would
    change and restart.
    """
    require(actor_of(request), Action.CONFIGURE)
    profile = selectors.batching_profile(name)
    changed = services.save_batching_profile(
        actor_of(request), body.model_dump(mode="json"), profile, confirmation.confirm or None
    )
    return serialize.batching_profile_dict(changed)


@router.post(
    "/batching-profiles/{name}/plan",
    response={200: BatchingProfilePlan, **REFUSALS},
    operation_id="plan_batching_profile",
    tags=PROFILES,
)
def plan_batching_profile(request: HttpRequest, name: str, body: BatchingProfileFields) -> dict[str, Any]:
    """What changing it so would do: fields, files of each deployment, what restarts. Saves nothing."""
    require(actor_of(request), Action.CONFIGURE)
    profile = selectors.batching_profile(name)
    found = changes.plan_batching_profile(actor_of(request), body.model_dump(mode="json"), profile)
    return found.as_dict()


@router.get(
    "/batching-profiles/{name}/versions",
    response={200: Page[BatchingProfileVersion], **REFUSALS},
    operation_id="list_batching_profile_versions",
    tags=PROFILES,
)
def list_batching_profile_versions(request: HttpRequest, name: str, page: Query[PageQuery]) -> dict[str, Any]:
    """What the profile said after each change, the newest first, with who and when."""
    require(actor_of(request), Action.VIEW)
    return page_of(selectors.batching_profile(name).versions.all(), page, versions.version_dict)


@router.post(
    "/batching-profiles/{name}/roll-back",
    response={200: BatchingProfile, **REFUSALS},
    operation_id="roll_back_batching_profile",
    tags=PROFILES,
)
def roll_back_batching_profile(request: HttpRequest, name: str, body: ProfileRollBack) -> dict[str, Any]:
    """Give the profile the values of an earlier version. Deployments keep what they run until deployed again."""
    require(actor_of(request), Action.CONFIGURE)
    profile = selectors.batching_profile(name)
    changed = services.roll_back_batching_profile(actor_of(request), profile, body.version)
    return serialize.batching_profile_dict(changed)


@router.delete(
    "/batching-profiles/{name}",
    response={204: None, **REFUSALS},
    operation_id="delete_batching_profile",
    tags=PROFILES,
)
def delete_batching_profile(request: HttpRequest, name: str) -> Status[None]:
    """Delete a batching profile that no deployment uses."""
    require(actor_of(request), Action.CONFIGURE)
    services.delete_batching_profile(actor_of(request), selectors.batching_profile(name))
    return Status(204, None)


@router.get(
    "/deployments",
    response={200: Page[Deployment], **REFUSALS},
    operation_id="list_deployments",
    tags=DEPLOYMENTS,
)
def list_deployments(request: HttpRequest, page: Query[PageQuery]) -> dict[str, Any]:
    """Every deployment, by name."""
    require(actor_of(request), Action.VIEW)
    return page_of(selectors.deployments(), page, serialize.deployment_dict)


@router.post(
    "/deployments",
    response={201: Deployment, **REFUSALS},
    operation_id="create_deployment",
    tags=DEPLOYMENTS,
)
def create_deployment(request: HttpRequest, body: NewDeployment) -> Status[dict[str, Any]]:
    """Create a deployment; it is stopped until it is deployed."""
    data = {"name": body.name, **_columns(body)}
    return Status(201, _shown(services.save_deployment(actor_of(request), data)))


@router.get(
    "/deployments/{name}",
    response={200: Deployment, **REFUSALS},
    operation_id="get_deployment",
    tags=DEPLOYMENTS,
)
def get_deployment(request: HttpRequest, name: str) -> dict[str, Any]:
    """One deployment with its instances."""
    require(actor_of(request), Action.VIEW)
    return serialize.deployment_dict(selectors.deployment(name))


@router.put(
    "/deployments/{name}",
    response={200: Deployment, **REFUSALS},
    operation_id="change_deployment",
    tags=DEPLOYMENTS,
)
def change_deployment(request: HttpRequest, name: str, body: DeploymentFields) -> dict[str, Any]:
    """Change a deployment's configuration; what runs changes when it is deployed."""
    require(actor_of(request), Action.CONFIGURE)
    row = selectors.deployment(name)
    return _shown(services.save_deployment(actor_of(request), _columns(body), row))


@router.delete(
    "/deployments/{name}",
    response={204: None, **REFUSALS},
    operation_id="delete_deployment",
    tags=DEPLOYMENTS,
)
def delete_deployment(request: HttpRequest, name: str) -> Status[None]:
    """Delete a stopped deployment with its history."""
    require(actor_of(request), Action.CONFIGURE)
    services.delete_deployment(actor_of(request), selectors.deployment(name))
    return Status(204, None)


@router.post(
    "/deployments/{name}/deploy",
    response={200: Deployment, **REFUSALS},
    operation_id="deploy",
    tags=DEPLOYMENTS,
)
def deploy(request: HttpRequest, name: str) -> dict[str, Any]:
    """Make it run as it is configured now; without an engine a build is started and waited for."""
    require(actor_of(request), Action.OPERATE)
    return _shown(services.deploy(actor_of(request), selectors.deployment(name)))


@router.post(
    "/deployments/{name}/stop",
    response={200: Deployment, **REFUSALS},
    operation_id="stop_deployment",
    tags=DEPLOYMENTS,
)
def stop_deployment(request: HttpRequest, name: str) -> dict[str, Any]:
    """Stop it: requests in flight finish, then the servers exit."""
    require(actor_of(request), Action.OPERATE)
    return _shown(services.stop(actor_of(request), selectors.deployment(name)))


@router.post(
    "/deployments/{name}/roll-back",
    response={200: Deployment, **REFUSALS},
    operation_id="roll_back",
    tags=DEPLOYMENTS,
)
def roll_back(request: HttpRequest, name: str, body: RollBack) -> dict[str, Any]:
    """Run an earlier revision again."""
    require(actor_of(request), Action.OPERATE)
    row = selectors.deployment(name)
    revision = selectors.revision(row, body.revision)
    return _shown(services.roll_back(actor_of(request), row, revision))


@router.post(
    "/deployments/{name}/rollout/pause",
    response={200: Deployment, **REFUSALS},
    operation_id="pause_rollout",
    tags=DEPLOYMENTS,
)
def pause_rollout(request: HttpRequest, name: str) -> dict[str, Any]:
    """Hold the roll-out where it is."""
    require(actor_of(request), Action.OPERATE)
    return _shown(services.pause_rollout(actor_of(request), selectors.deployment(name)))


@router.post(
    "/deployments/{name}/rollout/resume",
    response={200: Deployment, **REFUSALS},
    operation_id="resume_rollout",
    tags=DEPLOYMENTS,
)
def resume_rollout(request: HttpRequest, name: str) -> dict[str, Any]:
    """Go on with a paused roll-out."""
    require(actor_of(request), Action.OPERATE)
    return _shown(services.resume_rollout(actor_of(request), selectors.deployment(name)))


@router.post(
    "/deployments/{name}/rollout/promote",
    response={200: Deployment, **REFUSALS},
    operation_id="promote_rollout",
    tags=DEPLOYMENTS,
)
def promote_rollout(request: HttpRequest, name: str) -> dict[str, Any]:
    """Leave out the rest of the canary's steps."""
    require(actor_of(request), Action.OPERATE)
    return _shown(services.promote_rollout(actor_of(request), selectors.deployment(name)))


@router.post(
    "/deployments/{name}/wake",
    response={200: Deployment, **REFUSALS},
    operation_id="wake_deployment",
    tags=DEPLOYMENTS,
)
def wake_deployment(request: HttpRequest, name: str) -> dict[str, Any]:
    """Start the servers of a deployment that sleeps, without waiting for a request."""
    require(actor_of(request), Action.OPERATE)
    return _shown(services.wake_deployment(actor_of(request), selectors.deployment(name)))


@router.get(
    "/deployments/{name}/scaling",
    response={200: Page[ScalingDecision], **REFUSALS},
    operation_id="list_scaling_decisions",
    tags=DEPLOYMENTS,
)
def list_scaling_decisions(request: HttpRequest, name: str, page: Query[PageQuery]) -> dict[str, Any]:
    """Why it has as many servers as it has: each decision with its figures, newest first."""
    require(actor_of(request), Action.VIEW)
    return page_of(autoscale.decisions(selectors.deployment(name)), page, autoscale.decision_dict)


@router.get(
    "/deployments/{name}/rollout",
    response={200: RolloutState, **REFUSALS},
    operation_id="get_rollout",
    tags=DEPLOYMENTS,
)
def get_rollout(request: HttpRequest, name: str) -> dict[str, Any]:
    """Who gets which share of new requests at which addresses now, and how far a roll-out is.

    Clients that call Triton directly find its present address here; see docs/rollouts.md.
    """
    require(actor_of(request), Action.VIEW)
    return serialize.rollout_dict(selectors.deployment(name))


@router.get(
    "/deployments/{name}/timeline",
    response={200: Page[TimelineEntry], **REFUSALS},
    operation_id="list_timeline",
    tags=DEPLOYMENTS,
)
def list_timeline(request: HttpRequest, name: str, page: Query[PageQuery]) -> dict[str, Any]:
    """Every transition of the deployment, its revisions and its servers, newest first, with reasons and figures."""
    require(actor_of(request), Action.VIEW)
    return page_of(timeline.entries(selectors.deployment(name)), page, timeline.entry_dict)


@router.get(
    "/crash-reports",
    response={200: Page[CrashReport], **REFUSALS},
    operation_id="list_crash_reports",
    tags=INSTANCES,
)
def list_crash_reports(request: HttpRequest, query: Query[InstanceQuery]) -> dict[str, Any]:
    """How servers ended that should not have, newest first."""
    require(actor_of(request), Action.VIEW)
    rows = crashes.reports()
    if query.deployment:
        rows = rows.filter(deployment_name=query.deployment)
    return page_of(rows, query, crashes.report_dict)


@router.get(
    "/deployments/{name}/revisions",
    response={200: Page[Revision], **REFUSALS},
    operation_id="list_revisions",
    tags=DEPLOYMENTS,
)
def list_revisions(request: HttpRequest, name: str, page: Query[PageQuery]) -> dict[str, Any]:
    """What was deployed so far, newest first."""
    require(actor_of(request), Action.VIEW)
    rows = selectors.deployment(name).revisions.select_related(
        "deployment", "engine__checkpoint", "created_by"
    )
    return page_of(rows, page, serialize.revision_dict)


@router.get(
    "/deployments/{name}/files",
    response={200: RenderedFiles, **REFUSALS},
    operation_id="get_rendered_files",
    tags=DEPLOYMENTS,
)
def get_rendered_files(request: HttpRequest, name: str, query: Query[FilesQuery]) -> dict[str, Any]:
    """The files that Triton reads, of the configuration as it is or of a revision."""
    require(actor_of(request), Action.VIEW)
    row = selectors.deployment(name)
    source: DeploymentRow | RevisionRow = row
    if query.revision is not None:
        source = selectors.revision(row, query.revision)
    return {"revision": query.revision, "files": preview.rendered_files(source)}


@router.get(
    "/instances", response={200: Page[Instance], **REFUSALS}, operation_id="list_instances", tags=INSTANCES
)
def list_instances(request: HttpRequest, query: Query[InstanceQuery]) -> dict[str, Any]:
    """Servers, newest first."""
    require(actor_of(request), Action.VIEW)
    rows = selectors.instances()
    if query.deployment:
        rows = rows.filter(deployment__name=query.deployment)
    if query.state:
        rows = rows.filter(state=query.state)
    return page_of(rows, query, serialize.instance_dict)


@router.get(
    "/instances/{uid}", response={200: Instance, **REFUSALS}, operation_id="get_instance", tags=INSTANCES
)
def get_instance(request: HttpRequest, uid: str) -> dict[str, Any]:
    """One server."""
    require(actor_of(request), Action.VIEW)
    return serialize.instance_dict(selectors.instance(uid))


@router.post(
    "/instances/{uid}/restart",
    response={200: Instance, **REFUSALS},
    operation_id="restart_instance",
    tags=INSTANCES,
)
def restart_instance(request: HttpRequest, uid: str) -> dict[str, Any]:
    """Let a server finish its requests, end it and start another in its place."""
    require(actor_of(request), Action.OPERATE)
    return serialize.instance_dict(services.restart_instance(actor_of(request), selectors.instance(uid)))


@router.get(
    "/instances/{uid}/log",
    response={200: LogText, **REFUSALS},
    operation_id="get_instance_log",
    tags=INSTANCES,
)
def get_instance_log(request: HttpRequest, uid: str, query: Query[LogQuery]) -> dict[str, Any]:
    """A window of a server's log by byte offset."""
    require(actor_of(request), Action.VIEW)
    where = selectors.log_address(selectors.instance(uid))
    return log_sources.window(where, query.offset, query.limit).as_dict()


def _columns(body: DeploymentFields) -> dict[str, Any]:
    return {
        **inputs.what_is_served(body.build, body.repository, body.model),
        "batching": body.batching,
        "replicas": body.replicas,
        "placement": body.placement.model_dump(mode="json"),
        "slo": body.slo.model_dump(mode="json"),
        "rollout": body.rollout.model_dump(mode="json"),
        "scaling": body.scaling.model_dump(mode="json"),
    }


def _shown(row: DeploymentRow) -> dict[str, Any]:
    return serialize.deployment_dict(selectors.deployment(row.name))
