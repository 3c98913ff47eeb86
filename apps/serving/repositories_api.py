"""REST: model repositories that somebody already had, and batching profiles out of fill_template.py lines."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.http import HttpRequest
from ninja import Query, Router, Schema, Status
from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from apps.accounts.rest import REFUSALS, Page, PageQuery, actor_of, page_of
from apps.accounts.roles import Action, require
from apps.serving import selectors, serialize, services
from apps.serving.adoption import adoption_plan
from apps.serving.schemas import BatchingProfile, Deployment
from apps.serving.shapes import Placement

router = Router(tags=["model repositories"])


class ModelRepository(Schema):
    """An imported repository: where its files lie, what the check found, who serves it."""

    id: int
    name: str
    source: dict[str, Any]
    folder: str
    fingerprint: str
    files: int
    size_bytes: int
    models: list[dict[str, Any]]
    findings: list[dict[str, Any]]
    graphs: dict[str, list[dict[str, str]]]
    not_models: list[str]
    deployments: list[str]
    created_by: str | None
    created_at: datetime
    checked_at: datetime


class RepositorySource(BaseModel):
    """Where a repository is: a folder of this node, or an archive that was uploaded (`/checkpoint-archives`)."""

    model_config = ConfigDict(extra="forbid", strict=True)

    path: str | None = Field(None, max_length=1000)
    archive: str | None = Field(None, max_length=1000)

    @model_validator(mode="after")
    def _one(self) -> RepositorySource:
        if (self.path is None) == (self.archive is None):
            raise PydanticCustomError("one_of_two", "name either a path or an archive")
        return self


class NewRepository(BaseModel):
    """A repository to import."""

    model_config = ConfigDict(extra="forbid", strict=True)

    name: str = Field(max_length=63)
    source: RepositorySource


class Adoption(BaseModel):
    """The deployment to make of a repository."""

    model_config = ConfigDict(extra="forbid", strict=True)

    name: str = Field(max_length=63, description="Public name of the deployment.")
    model: str = Field(
        "", max_length=255, description="Which model answers; empty: the ensemble, or the only one."
    )
    profile: str = Field("", max_length=63, description="Name of the new batching profile; empty: `name`.")
    checkpoint: str = Field(
        "",
        max_length=63,
        description="Checkpoint of its TensorRT-LLM engines, to list them among the engines.",
    )
    replicas: int = Field(1, ge=1, le=64)
    placement: Placement = Field(default_factory=Placement)


class AdoptionPlan(Schema):
    """What adopting would do: `profile` are fields of a batching profile, `kept` is text that stays as it is."""

    entry: str
    tuned: str
    kind: str
    needed: list[str]
    profile: dict[str, Any]
    mapped: list[dict[str, str]]
    kept: dict[str, str]
    blockers: list[dict[str, Any]]
    notes: list[dict[str, Any]]


class PlanQuery(BaseModel):
    """Which model answers."""

    model: str = Field("", max_length=255)


class TemplateLine(BaseModel):
    """A pasted command line."""

    model_config = ConfigDict(extra="forbid", strict=True)

    name: str = Field(max_length=63, description="Name of the new batching profile.")
    command: str = Field(max_length=20_000, description='fill_template.py -i FILE "name:value,name:value"')


class ProfileOfLine(Schema):
    """The batching profile, and what was found in the line."""

    profile: BatchingProfile
    findings: list[dict[str, Any]]


@router.get(
    "/model-repositories",
    response={200: Page[ModelRepository], **REFUSALS},
    operation_id="list_model_repositories",
)
def list_model_repositories(request: HttpRequest, page: Query[PageQuery]) -> dict[str, Any]:
    """Every imported model repository, by name."""
    require(actor_of(request), Action.VIEW)
    return page_of(selectors.model_repositories(), page, serialize.model_repository_dict)


@router.post(
    "/model-repositories",
    response={201: ModelRepository, **REFUSALS},
    operation_id="import_model_repository",
)
def import_model_repository(request: HttpRequest, body: NewRepository) -> Status[dict[str, Any]]:
    """Import a repository and check it; files that run need the role code-author."""
    source = body.source.model_dump(exclude_none=True)
    made = services.import_repository(actor_of(request), body.name, source)
    return Status(201, serialize.model_repository_dict(made))


@router.get(
    "/model-repositories/{name}",
    response={200: ModelRepository, **REFUSALS},
    operation_id="get_model_repository",
)
def get_model_repository(request: HttpRequest, name: str) -> dict[str, Any]:
    """One imported repository with its findings."""
    require(actor_of(request), Action.VIEW)
    return serialize.model_repository_dict(selectors.model_repository(name))


@router.post(
    "/model-repositories/{name}/check",
    response={200: ModelRepository, **REFUSALS},
    operation_id="check_model_repository",
)
def check_model_repository(request: HttpRequest, name: str) -> dict[str, Any]:
    """Read its files anew."""
    row = services.check_again(actor_of(request), selectors.model_repository(name))
    return serialize.model_repository_dict(row)


@router.get(
    "/model-repositories/{name}/plan",
    response={200: AdoptionPlan, **REFUSALS},
    operation_id="plan_adoption",
)
def plan_adoption(request: HttpRequest, name: str, query: Query[PlanQuery]) -> dict[str, Any]:
    """What adopting it would do, and what stands against that."""
    require(actor_of(request), Action.VIEW)
    return adoption_plan(selectors.model_repository(name), query.model).as_dict()


@router.post(
    "/model-repositories/{name}/adopt",
    response={201: Deployment, **REFUSALS},
    operation_id="adopt_model_repository",
)
def adopt_model_repository(request: HttpRequest, name: str, body: Adoption) -> Status[dict[str, Any]]:
    """Make a deployment of it, stopped, with a batching profile that says what its settings say."""
    data = body.model_dump(mode="json", exclude={"name"})
    row = services.adopt_repository(actor_of(request), selectors.model_repository(name), body.name, data)
    return Status(201, serialize.deployment_dict(selectors.deployment(row.name)))


@router.delete(
    "/model-repositories/{name}",
    response={204: None, **REFUSALS},
    operation_id="delete_model_repository",
)
def delete_model_repository(request: HttpRequest, name: str) -> Status[None]:
    """Forget a repository that no deployment serves."""
    require(actor_of(request), Action.CONFIGURE)
    services.delete_repository(actor_of(request), selectors.model_repository(name))
    return Status(204, None)


@router.post(
    "/batching-profiles/from-fill-template",
    response={201: ProfileOfLine, **REFUSALS},
    operation_id="create_profile_of_line",
    tags=["batching profiles"],
)
def create_profile_of_line(request: HttpRequest, body: TemplateLine) -> Status[dict[str, Any]]:
    """Make a batching profile out of a pasted fill_template.py line."""
    profile, findings = services.profile_of_line(actor_of(request), body.name, body.command)
    return Status(201, {"profile": serialize.batching_profile_dict(profile), "findings": findings})
