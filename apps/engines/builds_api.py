"""REST: remedies, comparison, compatibility, imported engines and clean-up."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from ninja import Query, Router, Schema, Status
from pydantic import BaseModel, ConfigDict, Field

from apps.accounts.rest import REFUSALS, Number, actor_of
from apps.accounts.roles import Action, require
from apps.engines import compatibility, imports, rebuilds, remedies, retention, selectors, serialize
from apps.engines.comparing import comparison
from apps.engines.domain.retention import KINDS, Decision
from apps.fleet.models import Node
from apps.fleet.selectors import node as find_node

router = Router()
BUILDS, ENGINES, KEPT = ["builds"], ["engines"], ["clean-up"]
Json = dict[str, Any]


class Remedy(Schema):
    """What may be changed in a failed build's profile; null: not set."""

    id: str
    field: str
    old: Any
    new: Any
    label: str


class RemedyChoice(BaseModel):
    """Which remedy to apply."""

    model_config = ConfigDict(extra="forbid", strict=True)

    remedy: str = Field(max_length=200, description="Its id.")


class CompareQuery(Schema):
    """Two builds by their numbers."""

    a: Number
    b: Number


class EnginePath(BaseModel):
    """A folder to look at."""

    model_config = ConfigDict(extra="forbid", strict=True)

    path: str = Field(min_length=1, max_length=1000)


class NodeChoice(BaseModel):
    """Which node to build for."""

    model_config = ConfigDict(extra="forbid", strict=True)

    node: str = Field(max_length=40, description="Its node id.")


class CleanUp(BaseModel):
    """What to remove of what a dry run lists; null: all of it."""

    model_config = ConfigDict(extra="forbid", strict=True)

    items: list[str] | None = Field(
        None, max_length=10_000, description="Ids: engine:..., stage:..., log:..."
    )


class Pin(BaseModel):
    """What to keep from every clean-up, or to let go."""

    model_config = ConfigDict(extra="forbid", strict=True)

    kind: str = Field(description=f"One of {', '.join(KINDS)}.")
    key: str = Field(max_length=200)
    pinned: bool


@router.get(
    "/builds/{number}/remedies",
    response={200: list[Remedy], **REFUSALS},
    operation_id="list_remedies",
    tags=BUILDS,
)
def list_remedies(request: HttpRequest, number: Number) -> list[Json]:
    """What may be changed in the profile of a failed build; empty where nothing helps."""
    require(actor_of(request), Action.VIEW)
    return [change.as_dict() for change in remedies.remedies_of(selectors.build(number))]


@router.post(
    "/builds/{number}/remedies",
    response={201: Json, **REFUSALS},
    operation_id="apply_remedy",
    tags=BUILDS,
)
def apply_remedy(request: HttpRequest, number: Number, body: RemedyChoice) -> Status[Json]:
    """Change the profile as a remedy says and start a build of it."""
    build = remedies.apply_remedy(actor_of(request), selectors.build(number), body.remedy)
    return Status(201, serialize.build_dict(build))


@router.get("/build-comparison", response={200: Json, **REFUSALS}, operation_id="compare_builds", tags=BUILDS)
def compare_builds(request: HttpRequest, query: Query[CompareQuery]) -> Json:
    """What differed between two builds, and what came of it."""
    require(actor_of(request), Action.VIEW)
    return comparison(selectors.build(query.a), selectors.build(query.b)).as_dict()


@router.get(
    "/engines/{fingerprint}/compatibility",
    response={200: list[Json], **REFUSALS},
    operation_id="get_engine_compatibility",
    tags=ENGINES,
)
def get_engine_compatibility(request: HttpRequest, fingerprint: str) -> list[Json]:
    """Whether an engine runs on each node."""
    require(actor_of(request), Action.VIEW)
    nodes = Node.objects.prefetch_related("toolchains", "gpus")
    engine = selectors.engine(fingerprint)
    return [
        {"node": node.node_id, **answer.as_dict()}
        for node, answer in compatibility.engine_hosts(engine, nodes)
    ]


@router.post(
    "/engines/{fingerprint}/rebuild",
    response={201: Json, **REFUSALS},
    operation_id="rebuild_engine",
    tags=ENGINES,
)
def rebuild_engine(request: HttpRequest, fingerprint: str, body: NodeChoice) -> Status[Json]:
    """Build the same for another node."""
    require(actor_of(request), Action.OPERATE)
    engine = selectors.engine(fingerprint)
    build = rebuilds.rebuild_for_node(actor_of(request), engine, find_node(body.node))
    return Status(201, serialize.build_dict(build))


@router.post(
    "/engine-imports/look", response={200: Json, **REFUSALS}, operation_id="look_at_engine", tags=ENGINES
)
def look_at_engine(request: HttpRequest, body: EnginePath) -> Json:
    """What a folder holds, before it is imported. Changes nothing."""
    require(actor_of(request), Action.CONFIGURE)
    return imports.look_at_engine(body.path).as_dict()


@router.post("/engine-imports", response={201: Json, **REFUSALS}, operation_id="import_engine", tags=ENGINES)
def import_engine(request: HttpRequest, body: imports.EngineImport) -> Status[Json]:
    """Take in an engine that was built elsewhere; its files are linked."""
    engine = imports.import_engine(actor_of(request), body.model_dump())
    return Status(201, serialize.engine_dict(engine))


@router.get("/clean-up", response={200: list[Json], **REFUSALS}, operation_id="plan_clean_up", tags=KEPT)
def plan_clean_up(request: HttpRequest) -> list[Json]:
    """The dry run: everything that is kept, what would go, and why the rest stays."""
    require(actor_of(request), Action.VIEW)
    return [_decision(each) for each in retention.plan_clean_up()]


@router.post("/clean-up", response={200: Json, **REFUSALS}, operation_id="clean_up", tags=KEPT)
def clean_up(request: HttpRequest, body: CleanUp) -> Json:
    """Remove what the policy lets go; it is decided again, so what came into use meanwhile stays."""
    return retention.clean_up(actor_of(request), body.items).as_dict()


@router.post("/pins", response={204: None, **REFUSALS}, operation_id="set_pinned", tags=KEPT)
def set_pinned(request: HttpRequest, body: Pin) -> Status[None]:
    """Keep an engine, a stage or a log from every clean-up, or let it go again."""
    retention.set_pinned(actor_of(request), body.kind, body.key, body.pinned)
    return Status(204, None)


@router.get(
    "/retention-policy", response={200: Json, **REFUSALS}, operation_id="get_retention_policy", tags=KEPT
)
def get_retention_policy(request: HttpRequest) -> Json:
    """Days that things are kept."""
    require(actor_of(request), Action.VIEW)
    return retention.policy_dict(retention.policy_row())


@router.put(
    "/retention-policy", response={200: Json, **REFUSALS}, operation_id="save_retention_policy", tags=KEPT
)
def save_retention_policy(request: HttpRequest, body: retention.PolicyFields) -> Json:
    """Change how long things are kept; what is left out goes back to its default."""
    return retention.policy_dict(retention.save_retention_policy(actor_of(request), body.model_dump()))


def _decision(decision: Decision) -> Json:
    return decision.as_dict()
