"""REST: checkpoints."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from ninja import File, Query, Router, Schema, Status
from ninja.files import UploadedFile
from pydantic import BaseModel, ConfigDict, Field

from apps.accounts.rest import REFUSALS, Page, PageQuery, StatusFields, actor_of, page_of
from apps.accounts.roles import Action, require
from apps.registry import selectors, serialize, services
from apps.registry.domain.sources import MAX_FILES
from apps.registry.shapes import CheckpointFields

router = Router(tags=["checkpoints"])


class Offered(Schema):
    """A file that may be chosen."""

    name: str
    size_bytes: int


class Fetch(Schema):
    """How far a hub's repository or an archive is."""

    commit: str | None = Field(description="What the revision named when it was first asked")
    folder: str | None
    bytes_done: int | None
    bytes_total: int | None
    progress: float | None = Field(description="0 to 1")
    rate_bytes_per_second: float | None
    eta_seconds: float | None
    attempt: int
    retries: int
    not_before: str | None
    cancelling: bool
    offered: list[Offered]


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
    fetch: Fetch | None = Field(description="null where nothing is fetched")


class NewCheckpoint(CheckpointFields):
    """A checkpoint to register."""

    name: str


class Retry(BaseModel):
    """Which files to fetch, where a person chooses."""

    model_config = ConfigDict(extra="forbid", strict=True)

    files: list[str] = Field(default_factory=list, max_length=MAX_FILES)


class Deletion(BaseModel):
    """What goes with a checkpoint."""

    files: bool = Field(False, description="Remove what Inflight fetched for it, too.")


class Upload(Schema):
    """An archive that was uploaded: the `source.archive` of a checkpoint."""

    archive: str


class HubAccess(Schema):
    """How hubs are asked. The token itself is never shown."""

    endpoint: str | None = Field(description="A mirror; null: the library's own hub")
    has_token: bool
    token_set_at: str | None


class HubAccessChange(BaseModel):
    """What changes; what is left out stays."""

    model_config = ConfigDict(extra="forbid", strict=True)

    endpoint: str | None = None
    token: str | None = Field(None, description="null removes it")


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


@router.post(
    "/checkpoints/{name}/cancel", response={200: Checkpoint, **REFUSALS}, operation_id="cancel_checkpoint"
)
def cancel_checkpoint(request: HttpRequest, name: str) -> dict[str, Any]:
    """Stop fetching; what is here is kept for another try."""
    require(actor_of(request), Action.CONFIGURE)
    return serialize.checkpoint_dict(services.cancel_fetch(actor_of(request), selectors.checkpoint(name)))


@router.post(
    "/checkpoints/{name}/retry", response={200: Checkpoint, **REFUSALS}, operation_id="retry_checkpoint"
)
def retry_checkpoint(request: HttpRequest, name: str, body: Retry) -> dict[str, Any]:
    """Fetch again what failed, was cancelled or refused; `files` chooses among what the repository has."""
    require(actor_of(request), Action.CONFIGURE)
    row = services.retry_fetch(actor_of(request), selectors.checkpoint(name), body.files)
    return serialize.checkpoint_dict(row)


@router.delete("/checkpoints/{name}", response={204: None, **REFUSALS}, operation_id="delete_checkpoint")
def delete_checkpoint(request: HttpRequest, name: str, query: Query[Deletion]) -> Status[None]:
    """Forget a checkpoint; its files stay unless asked otherwise."""
    require(actor_of(request), Action.CONFIGURE)
    services.delete_checkpoint(actor_of(request), selectors.checkpoint(name), files=query.files)
    return Status(204, None)


@router.post("/checkpoint-archives", response={201: Upload, **REFUSALS}, operation_id="upload_archive")
def upload_archive(request: HttpRequest, upload: File[UploadedFile]) -> Status[dict[str, str]]:
    """Bring an archive of weights; register a checkpoint with its path next."""
    kept = services.keep_upload(actor_of(request), upload.name or "", upload.chunks(), upload.size)
    return Status(201, {"archive": str(kept)})


@router.get("/hub-access", response={200: HubAccess, **REFUSALS}, operation_id="get_hub_access")
def get_hub_access(request: HttpRequest) -> dict[str, Any]:
    """How hubs are asked."""
    require(actor_of(request), Action.VIEW)
    return serialize.hub_access_dict(selectors.hub_access())


@router.put("/hub-access", response={200: HubAccess, **REFUSALS}, operation_id="change_hub_access")
def change_hub_access(request: HttpRequest, body: HubAccessChange) -> dict[str, Any]:
    """Change mirror and token; needs the role administrator."""
    row = services.save_hub_access(actor_of(request), body.model_dump(exclude_unset=True))
    return serialize.hub_access_dict(row)
