"""REST: comparisons, prompt sets, shared links, exports, and a turn's own request to copy."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from django.http import HttpRequest, HttpResponse
from ninja import Query, Router, Schema, Status
from pydantic import BaseModel, ConfigDict, Field

from apps.accounts.rest import REFUSALS, Number, Page, PageQuery, actor_of, page_of
from apps.accounts.roles import Action, require
from apps.chat import comparisons, copy_as, exports, prompt_sets, selectors, services, sharing
from apps.chat.compared_models import Comparison as ComparisonRow
from apps.chat.compared_models import SharedLink as SharedLinkRow
from apps.chat.comparison_inputs import ComparisonFields
from apps.chat.prompt_sets import PromptSetFields, prompt_set_dict

router = Router(tags=["comparisons"])
STRICT = ConfigDict(extra="forbid", strict=True)


class ShortComparison(Schema):
    """A comparison without its answers. Times are epoch seconds."""

    id: int
    title: str
    owner: str
    mode: str
    sides: list[dict[str, Any]]
    questions: int
    shared: bool
    created_at: float
    updated_at: float


class Comparison(Schema):
    """A comparison with every answer, its figures and its difference from the first side's; absent is null."""

    format: str
    id: int
    title: str
    owner: str
    mode: str
    chained: bool
    prompt_set: str | None
    system_prompt: str
    params: dict[str, Any]
    created_at: float
    updated_at: float
    sides: list[dict[str, Any]]
    questions: list[dict[str, Any]]


class NewComparisonTitle(BaseModel):
    """What a comparison is called from now on."""

    model_config = STRICT

    title: str


class PromptSet(Schema):
    """A named list of questions."""

    id: int
    name: str
    description: str
    prompts: list[str]
    created_at: datetime
    updated_at: datetime


class NewPromptSet(PromptSetFields):
    """A prompt set to make."""

    name: str


class ChangedPromptSet(BaseModel):
    """Fields of a prompt set to change; those left out stay."""

    model_config = STRICT

    description: str | None = None
    prompts: list[str] | None = None


class SharedLink(Schema):
    """A link: whoever is signed in, may view and has it, sees what it shows. Times are epoch seconds."""

    uid: str
    path: str
    owner: str
    conversation: int | None
    comparison: int | None
    created_at: float
    revoked_at: float | None


class Shared(SharedLink):
    """A link and the conversation or comparison that it shows, as its export has it."""

    shown: dict[str, Any]


class CopyAs(Schema):
    """One way to make a turn's request; the text is empty where the note says why."""

    id: str
    name: str
    language: str
    text: str
    note: str


class FormatQuery(BaseModel):
    """In which form."""

    format: Literal["json", "markdown"] = Field("json", description="json for programs, markdown for people.")


@router.get(
    "/comparisons", response={200: Page[ShortComparison], **REFUSALS}, operation_id="list_comparisons"
)
def list_comparisons(request: HttpRequest, page: Query[PageQuery]) -> dict[str, Any]:
    """My comparisons, the one used last first."""
    require(actor_of(request), Action.VIEW)
    return page_of(comparisons.comparisons(actor_of(request)), page, short_dict)


@router.post("/comparisons", response={201: Comparison, **REFUSALS}, operation_id="create_comparison")
def create_comparison(request: HttpRequest, body: ComparisonFields) -> Status[dict[str, Any]]:
    """Begin a comparison; the page, or `manage.py comparison run`, asks its questions."""
    made = services.create_comparison(actor_of(request), body.model_dump())
    return Status(201, exports.comparison_value(made))


@router.get(
    "/comparisons/{comparison_id}", response={200: Comparison, **REFUSALS}, operation_id="get_comparison"
)
def get_comparison(request: HttpRequest, comparison_id: Number) -> dict[str, Any]:
    """One comparison with its answers."""
    return exports.comparison_value(_comparison(request, comparison_id))


@router.post(
    "/comparisons/{comparison_id}/repeat",
    response={201: Comparison, **REFUSALS},
    operation_id="repeat_comparison",
)
def repeat_comparison(request: HttpRequest, comparison_id: Number) -> Status[dict[str, Any]]:
    """The same comparison as a new one, with nothing answered yet."""
    made = services.repeat_comparison(actor_of(request), _comparison(request, comparison_id))
    return Status(201, exports.comparison_value(made))


@router.patch(
    "/comparisons/{comparison_id}",
    response={200: ShortComparison, **REFUSALS},
    operation_id="rename_comparison",
)
def rename_comparison(
    request: HttpRequest, comparison_id: Number, body: NewComparisonTitle
) -> dict[str, Any]:
    """Give a comparison another title."""
    row = _comparison(request, comparison_id)
    return short_dict(services.rename_comparison(actor_of(request), row, body.title))


@router.delete(
    "/comparisons/{comparison_id}", response={204: None, **REFUSALS}, operation_id="delete_comparison"
)
def delete_comparison(request: HttpRequest, comparison_id: Number) -> Status[None]:
    """Delete a comparison with its answers and links."""
    services.delete_comparison(actor_of(request), _comparison(request, comparison_id))
    return Status(204, None)


@router.get("/comparisons/{comparison_id}/export", response={**REFUSALS}, operation_id="export_comparison")
def export_comparison(request: HttpRequest, comparison_id: Number, query: Query[FormatQuery]) -> HttpResponse:
    """A comparison as a file."""
    return download(_comparison(request, comparison_id), query.format)


@router.post(
    "/comparisons/{comparison_id}/share",
    response={200: SharedLink, **REFUSALS},
    operation_id="share_comparison",
)
def share_comparison(request: HttpRequest, comparison_id: Number) -> dict[str, Any]:
    """The link to a comparison of mine, made where there is none."""
    return link_dict(services.share(actor_of(request), _comparison(request, comparison_id)))


@router.get(
    "/conversations/{conversation_id}/export", response={**REFUSALS}, operation_id="export_conversation"
)
def export_conversation(
    request: HttpRequest, conversation_id: Number, query: Query[FormatQuery]
) -> HttpResponse:
    """A conversation as a file."""
    require(actor_of(request), Action.VIEW)
    return download(selectors.conversation(actor_of(request), conversation_id), query.format)


@router.post(
    "/conversations/{conversation_id}/share",
    response={200: SharedLink, **REFUSALS},
    operation_id="share_conversation",
)
def share_conversation(request: HttpRequest, conversation_id: Number) -> dict[str, Any]:
    """The link to a conversation of mine, made where there is none."""
    return link_dict(
        services.share(actor_of(request), selectors.conversation(actor_of(request), conversation_id))
    )


@router.get("/shared-links", response={200: Page[SharedLink], **REFUSALS}, operation_id="list_shared_links")
def list_shared_links(request: HttpRequest, page: Query[PageQuery]) -> dict[str, Any]:
    """My links that still hold."""
    require(actor_of(request), Action.VIEW)
    return page_of(sharing.links(actor_of(request)), page, link_dict)


@router.get("/shared-links/{uid}", response={200: Shared, **REFUSALS}, operation_id="get_shared_link")
def get_shared_link(request: HttpRequest, uid: str) -> dict[str, Any]:
    """What a link shows."""
    found, target = sharing.shown(actor_of(request), uid)
    value = (
        exports.comparison_value(target)
        if isinstance(target, ComparisonRow)
        else exports.conversation_value(target)
    )
    return {**link_dict(found), "shown": value}


@router.delete("/shared-links/{uid}", response={204: None, **REFUSALS}, operation_id="revoke_shared_link")
def revoke_shared_link(request: HttpRequest, uid: str) -> Status[None]:
    """Revoke a link: from now on it shows nothing to anybody."""
    services.revoke_link(actor_of(request), sharing.link(uid))
    return Status(204, None)


@router.get("/turns/{uid}/copy-as", response={200: list[CopyAs], **REFUSALS}, operation_id="copy_turn_as")
def copy_turn_as(request: HttpRequest, uid: str) -> list[dict[str, str]]:
    """A turn's own request as curl, Python and JavaScript."""
    require(actor_of(request), Action.VIEW)
    return [one.as_dict() for one in copy_as.of_turn(selectors.turn(actor_of(request), uid))]


@router.get("/prompt-sets", response={200: Page[PromptSet], **REFUSALS}, operation_id="list_prompt_sets")
def list_prompt_sets(request: HttpRequest, page: Query[PageQuery]) -> dict[str, Any]:
    """Every prompt set."""
    require(actor_of(request), Action.VIEW)
    return page_of(prompt_sets.prompt_sets(), page, prompt_set_dict)


@router.post("/prompt-sets", response={201: PromptSet, **REFUSALS}, operation_id="create_prompt_set")
def create_prompt_set(request: HttpRequest, body: NewPromptSet) -> Status[dict[str, Any]]:
    """Make a prompt set."""
    return Status(201, prompt_set_dict(services.save_prompt_set(actor_of(request), body.model_dump())))


@router.get("/prompt-sets/{name}", response={200: PromptSet, **REFUSALS}, operation_id="get_prompt_set")
def get_prompt_set(request: HttpRequest, name: str) -> dict[str, Any]:
    """One prompt set."""
    require(actor_of(request), Action.VIEW)
    return prompt_set_dict(prompt_sets.prompt_set(name))


@router.patch("/prompt-sets/{name}", response={200: PromptSet, **REFUSALS}, operation_id="change_prompt_set")
def change_prompt_set(request: HttpRequest, name: str, body: ChangedPromptSet) -> dict[str, Any]:
    """Change a prompt set."""
    data = body.model_dump(exclude_none=True)
    return prompt_set_dict(services.save_prompt_set(actor_of(request), data, prompt_sets.prompt_set(name)))


@router.delete("/prompt-sets/{name}", response={204: None, **REFUSALS}, operation_id="delete_prompt_set")
def delete_prompt_set(request: HttpRequest, name: str) -> Status[None]:
    """Delete a prompt set; comparisons keep their copy of its questions."""
    services.delete_prompt_set(actor_of(request), prompt_sets.prompt_set(name))
    return Status(204, None)


def download(target: Any, wanted: str) -> HttpResponse:
    """A conversation or comparison as a file to keep."""
    text = exports.export(target, wanted)
    kind = exports.FORMATS[wanted][0]
    response = HttpResponse(text, content_type=f"{kind}; charset=utf-8")
    response["Content-Disposition"] = f'attachment; filename="{exports.file_name(target, wanted)}"'
    return response


def short_dict(row: ComparisonRow) -> dict[str, Any]:
    """A comparison without its answers."""
    return {
        "id": row.pk,
        "title": row.title,
        "owner": row.owner.get_username(),
        "mode": row.mode,
        "sides": [{**side, "name": comparisons.side_name(side)} for side in row.sides],
        "questions": len(row.questions),
        "shared": sharing.link_of(row) is not None,
        "created_at": row.created_at.timestamp(),
        "updated_at": row.updated_at.timestamp(),
    }


def link_dict(row: SharedLinkRow) -> dict[str, Any]:
    """A link as plain values; `path` is its page below this installation's address."""
    return {
        "uid": row.uid,
        "path": f"/playground/shared/{row.uid}/",
        "owner": row.created_by.get_username(),
        "conversation": row.conversation_id,
        "comparison": row.comparison_id,
        "created_at": row.created_at.timestamp(),
        "revoked_at": row.revoked_at.timestamp() if row.revoked_at else None,
    }


def _comparison(request: HttpRequest, comparison_id: int) -> ComparisonRow:
    require(actor_of(request), Action.VIEW)
    return comparisons.comparison(actor_of(request), comparison_id)
