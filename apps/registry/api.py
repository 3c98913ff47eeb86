"""REST: checkpoints."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from ninja import Query, Router, Status
from pydantic import Field

from apps.accounts.rest import REFUSALS, Page, PageQuery, StatusFields, actor_of, page_of
from apps.accounts.roles import Action, require
from apps.registry import selectors, serialize, services
from apps.registry.shapes import CheckpointFields

router = Router(tags=["checkpoints"])


class Checkpoint(StatusFields):
    """Source weights and what their headers say."""

    name: str
    source: dict[str, Any]
    path: str | None
    format: str | None = Field(description="gguf or hf")
    size_bytes: int | None
    sha256: str | None
    facts: dict[str, Any]
    findings: list[dict[str, Any]]
    chat_template: str | None


class NewCheckpoint(CheckpointFields):
    """A checkpoint to register."""

    name: str


class CheckpointQuery(PageQuery):
    """Narrows the list."""

    state: str = Field("", max_length=30)


@router.get("/checkpoints", response={200: Page[Checkpoint], **REFUSALS}, operation_id="list_checkpoints")
def list_checkpoints(request: HttpRequest, query: Query[CheckpointQuery]) -> dict[str, Any]:
    """Every checkpoint, by name."""
    require(actor_of(request), Action.VIEW)
    rows = selectors.checkpoints()
    return page_of(rows.filter(state=query.state) if query.state else rows, query, serialize.checkpoint_dict)


@router.post("/checkpoints", response={201: Checkpoint, **REFUSALS}, operation_id="register_checkpoint")
def register_checkpoint(request: HttpRequest, body: NewCheckpoint) -> Status[dict[str, Any]]:
    """Register weights and inspect their headers."""
    made = services.register_checkpoint(actor_of(request), body.name, body.source.as_dict())
    return Status(201, serialize.checkpoint_dict(made))


@router.get("/checkpoints/{name}", response={200: Checkpoint, **REFUSALS}, operation_id="get_checkpoint")
def get_checkpoint(request: HttpRequest, name: str) -> dict[str, Any]:
    """One checkpoint."""
    require(actor_of(request), Action.VIEW)
    return serialize.checkpoint_dict(selectors.checkpoint(name))


@router.put(
    "/checkpoints/{name}", response={200: Checkpoint, **REFUSALS}, operation_id="change_checkpoint_source"
)
def change_checkpoint_source(request: HttpRequest, name: str, body: CheckpointFields) -> dict[str, Any]:
    """Point a checkpoint at other weights and inspect them."""
    require(actor_of(request), Action.CONFIGURE)
    changed = services.change_source(actor_of(request), selectors.checkpoint(name), body.source.as_dict())
    return serialize.checkpoint_dict(changed)


@router.post(
    "/checkpoints/{name}/inspect", response={200: Checkpoint, **REFUSALS}, operation_id="inspect_checkpoint"
)
def inspect_checkpoint(request: HttpRequest, name: str) -> dict[str, Any]:
    """Read the headers again."""
    require(actor_of(request), Action.CONFIGURE)
    return serialize.checkpoint_dict(services.inspect_again(actor_of(request), selectors.checkpoint(name)))


@router.delete("/checkpoints/{name}", response={204: None, **REFUSALS}, operation_id="delete_checkpoint")
def delete_checkpoint(request: HttpRequest, name: str) -> Status[None]:
    """Forget a checkpoint; its files stay."""
    require(actor_of(request), Action.CONFIGURE)
    services.delete_checkpoint(actor_of(request), selectors.checkpoint(name))
    return Status(204, None)
