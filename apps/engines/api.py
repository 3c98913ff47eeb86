"""REST: build profiles, builds and engines."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.http import HttpRequest
from ninja import Query, Router, Schema, Status
from pydantic import BaseModel, ConfigDict, Field

from apps.accounts.rest import (
    REFUSALS,
    LogQuery,
    LogText,
    Number,
    Page,
    PageQuery,
    StatusFields,
    actor_of,
    page_of,
)
from apps.accounts.roles import Action, require
from apps.engines import selectors, serialize, services
from apps.engines.build_lists import BuildFilter, narrowed
from apps.engines.builds_api import router as builds_router
from apps.engines.memory_api import router as memory_router
from apps.engines.quantization_api import router as quantization_router
from apps.engines.shapes import BuildProfileFields, ParallelFields, TargetFields
from apps.realtime import log_sources

router = Router()


class BuildProfile(Schema):
    """How an engine is made."""

    id: int
    name: str
    builder: str
    checkpoint: str
    quantization: str = Field(description="A weight type, or the name of a quantization profile, or none.")
    options: dict[str, Any]
    recipe: str
    dtype: str
    parallel: ParallelFields
    target: TargetFields
    build: dict[str, Any]
    convert: dict[str, Any]
    created_at: datetime
    updated_at: datetime


class NewBuildProfile(BuildProfileFields):
    """A build profile to create."""

    name: str


class Build(StatusFields):
    """One attempt to make an engine. `progress` is 0..1; null where it cannot be told."""

    number: int
    profile: str | None
    checkpoint: str
    builder: str | None
    quantization: str | None
    options: dict[str, Any]
    fingerprint: str
    requested_by: str | None
    engine: str | None
    reused: bool
    attempt: int
    retries: int
    node: str | None
    slot: str | None
    placement: dict[str, Any] | None = Field(description="Why this slot, or what each kind of node lacks.")
    cancel_requested: bool
    stages: list[dict[str, Any]]
    progress: float | None
    rate_bytes_per_second: float | None
    eta_seconds: float | None
    diagnosis: dict[str, Any] | None
    has_log: bool
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    seconds: float | None
    actions: list[str] = Field(description="What may be done now: cancel, retry.")


class NewBuild(BaseModel):
    """Which profile to build."""

    model_config = ConfigDict(extra="forbid", strict=True)

    profile: str = Field(description="Name of a build profile.")


class Engine(StatusFields):
    """A built artefact with its manifest."""

    fingerprint: str
    checkpoint: str
    builder: str
    quantization: str
    node: str | None
    path: str
    size_bytes: int
    manifest: dict[str, Any]
    created_at: datetime


class BuildQuery(PageQuery, BuildFilter):
    """Narrows the list of builds."""


PROFILES, BUILDS, ENGINES = ["build profiles"], ["builds"], ["engines"]


@router.get(
    "/build-profiles",
    response={200: Page[BuildProfile], **REFUSALS},
    operation_id="list_build_profiles",
    tags=PROFILES,
)
def list_build_profiles(request: HttpRequest, page: Query[PageQuery]) -> dict[str, Any]:
    """Every build profile, by name."""
    require(actor_of(request), Action.VIEW)
    return page_of(selectors.build_profiles(), page, serialize.build_profile_dict)


@router.post(
    "/build-profiles",
    response={201: BuildProfile, **REFUSALS},
    operation_id="create_build_profile",
    tags=PROFILES,
)
def create_build_profile(request: HttpRequest, body: NewBuildProfile) -> Status[dict[str, Any]]:
    """Create a build profile."""
    made = services.save_build_profile(actor_of(request), body.model_dump(mode="json"))
    return Status(201, serialize.build_profile_dict(made))


@router.get(
    "/build-profiles/{name}",
    response={200: BuildProfile, **REFUSALS},
    operation_id="get_build_profile",
    tags=PROFILES,
)
def get_build_profile(request: HttpRequest, name: str) -> dict[str, Any]:
    """One build profile."""
    require(actor_of(request), Action.VIEW)
    return serialize.build_profile_dict(selectors.build_profile(name))


@router.put(
    "/build-profiles/{name}",
    response={200: BuildProfile, **REFUSALS},
    operation_id="change_build_profile",
    tags=PROFILES,
)
def change_build_profile(request: HttpRequest, name: str, body: BuildProfileFields) -> dict[str, Any]:
    """Change a build profile; what is left out goes back to its default. Builds that exist keep theirs."""
    require(actor_of(request), Action.CONFIGURE)
    profile = selectors.build_profile(name)
    changed = services.save_build_profile(actor_of(request), body.model_dump(mode="json"), profile)
    return serialize.build_profile_dict(changed)


@router.delete(
    "/build-profiles/{name}",
    response={204: None, **REFUSALS},
    operation_id="delete_build_profile",
    tags=PROFILES,
)
def delete_build_profile(request: HttpRequest, name: str) -> Status[None]:
    """Delete a build profile that no deployment uses."""
    require(actor_of(request), Action.CONFIGURE)
    services.delete_build_profile(actor_of(request), selectors.build_profile(name))
    return Status(204, None)


@router.get("/builds", response={200: Page[Build], **REFUSALS}, operation_id="list_builds", tags=BUILDS)
def list_builds(request: HttpRequest, query: Query[BuildQuery]) -> dict[str, Any]:
    """Builds, newest first."""
    require(actor_of(request), Action.VIEW)
    return page_of(narrowed(selectors.builds(), query), query, serialize.build_dict)


@router.post("/builds", response={201: Build, **REFUSALS}, operation_id="start_build", tags=BUILDS)
def start_build(request: HttpRequest, body: NewBuild) -> Status[dict[str, Any]]:
    """Start a build of a profile, or join the one that is making the same engine."""
    require(actor_of(request), Action.OPERATE)
    build = services.start_build(actor_of(request), selectors.build_profile(body.profile))
    return Status(201, serialize.build_dict(build))


@router.get("/builds/{number}", response={200: Build, **REFUSALS}, operation_id="get_build", tags=BUILDS)
def get_build(request: HttpRequest, number: Number) -> dict[str, Any]:
    """One build."""
    require(actor_of(request), Action.VIEW)
    return serialize.build_dict(selectors.build(number))


@router.post(
    "/builds/{number}/cancel", response={200: Build, **REFUSALS}, operation_id="cancel_build", tags=BUILDS
)
def cancel_build(request: HttpRequest, number: Number) -> dict[str, Any]:
    """Cancel a build; a running one ends within five seconds."""
    require(actor_of(request), Action.OPERATE)
    return serialize.build_dict(services.cancel_build(actor_of(request), selectors.build(number)))


@router.post(
    "/builds/{number}/retry", response={201: Build, **REFUSALS}, operation_id="retry_build", tags=BUILDS
)
def retry_build(request: HttpRequest, number: Number) -> Status[dict[str, Any]]:
    """Build a failed or cancelled build's specification again, as a new build."""
    require(actor_of(request), Action.OPERATE)
    build = services.retry_build(actor_of(request), selectors.build(number))
    return Status(201, serialize.build_dict(build))


@router.get(
    "/builds/{number}/log", response={200: LogText, **REFUSALS}, operation_id="get_build_log", tags=BUILDS
)
def get_build_log(request: HttpRequest, number: Number, query: Query[LogQuery]) -> dict[str, Any]:
    """A window of a build's log by byte offset; empty before the build has begun."""
    require(actor_of(request), Action.VIEW)
    build = selectors.build(number)
    where = selectors.log_address(build)
    return log_sources.window(where, query.offset, query.limit).as_dict()


@router.get("/engines", response={200: Page[Engine], **REFUSALS}, operation_id="list_engines", tags=ENGINES)
def list_engines(request: HttpRequest, page: Query[PageQuery]) -> dict[str, Any]:
    """Engines that exist, newest first."""
    require(actor_of(request), Action.VIEW)
    return page_of(selectors.engines(), page, serialize.engine_dict)


@router.get(
    "/engines/{fingerprint}", response={200: Engine, **REFUSALS}, operation_id="get_engine", tags=ENGINES
)
def get_engine(request: HttpRequest, fingerprint: str) -> dict[str, Any]:
    """One engine by its fingerprint, or by a beginning of it that is unique."""
    require(actor_of(request), Action.VIEW)
    return serialize.engine_dict(selectors.engine(fingerprint))


@router.delete(
    "/engines/{fingerprint}", response={200: Engine, **REFUSALS}, operation_id="delete_engine", tags=ENGINES
)
def delete_engine(request: HttpRequest, fingerprint: str) -> dict[str, Any]:
    """Delete the files of an engine that nothing uses; its record stays."""
    require(actor_of(request), Action.OPERATE)
    return serialize.engine_dict(services.delete_engine(actor_of(request), selectors.engine(fingerprint)))


router.add_router("", memory_router)
router.add_router("", quantization_router)
router.add_router("", builds_router)
