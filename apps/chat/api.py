"""REST: conversations. A person reads their own; asking goes through the socket, or `manage.py chat`."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from ninja import Query, Router, Schema, Status
from pydantic import BaseModel, ConfigDict, Field

from apps.accounts.rest import REFUSALS, Number, Page, PageQuery, actor_of, page_of
from apps.accounts.roles import Action, require
from apps.chat import selectors, serialize, services, targets

router = Router(tags=["conversations"])


class Conversation(Schema):
    """A chat of one person with one deployment, or one external deployment. Times are epoch seconds."""

    id: int
    title: str | None
    owner: str
    deployment: str | None
    deployment_id: int | None
    external: str | None
    system_prompt: str
    params: dict[str, Any]
    created_at: float
    updated_at: float


class Turn(Schema):
    """One question and its answer. Times are epoch seconds; what was not measured is null."""

    uid: str
    conversation: int
    position: int
    state: str
    tone: str
    prompt: str
    answer: str
    params: dict[str, Any]
    metrics: dict[str, Any]
    instance: str | None
    revision: int | None
    replaces: str | None
    parent: str | None
    siblings: list[str]
    reason: str | None
    sentence: str | None
    remedy: str | None
    started_at: float | None
    first_token_at: float | None
    finished_at: float | None


class ConversationWithTurns(Conversation):
    """A conversation and the turns of the branch that it shows."""

    turns: list[Turn]


class NewConversation(BaseModel):
    """A conversation to begin."""

    model_config = ConfigDict(extra="forbid", strict=True)

    deployment: str | None = Field(None, description="Name of a deployment.")
    external: str | None = Field(None, description="Name of an external deployment, instead of one of ours.")
    title: str = ""
    system_prompt: str = ""
    params: dict[str, Any] = Field(default_factory=dict, description="Sampling parameters.")


class NewTitle(BaseModel):
    """What a conversation is called from now on."""

    model_config = ConfigDict(extra="forbid", strict=True)

    title: str


@router.get(
    "/conversations", response={200: Page[Conversation], **REFUSALS}, operation_id="list_conversations"
)
def list_conversations(request: HttpRequest, page: Query[PageQuery]) -> dict[str, Any]:
    """My conversations, the one used last first."""
    require(actor_of(request), Action.VIEW)
    return page_of(selectors.conversations(actor_of(request)), page, serialize.conversation_dict)


@router.post("/conversations", response={201: Conversation, **REFUSALS}, operation_id="create_conversation")
def create_conversation(request: HttpRequest, body: NewConversation) -> Status[dict[str, Any]]:
    """Begin a conversation with a deployment, or an external one."""
    require(actor_of(request), Action.CHAT)
    made = services.create_conversation(
        actor_of(request),
        targets.named(body.deployment, body.external),
        title=body.title,
        system_prompt=body.system_prompt,
        params=body.params,
    )
    return Status(201, serialize.conversation_dict(made))


@router.get(
    "/conversations/{conversation_id}",
    response={200: ConversationWithTurns, **REFUSALS},
    operation_id="get_conversation",
)
def get_conversation(request: HttpRequest, conversation_id: Number) -> dict[str, Any]:
    """One conversation with its turns."""
    require(actor_of(request), Action.VIEW)
    row = selectors.conversation(actor_of(request), conversation_id)
    turns = [serialize.turn_dict(shown.turn, shown.siblings) for shown in selectors.branch(row)]
    return {**serialize.conversation_dict(row), "turns": turns}


@router.patch(
    "/conversations/{conversation_id}",
    response={200: Conversation, **REFUSALS},
    operation_id="rename_conversation",
)
def rename_conversation(request: HttpRequest, conversation_id: Number, body: NewTitle) -> dict[str, Any]:
    """Give a conversation another title."""
    row = selectors.conversation(actor_of(request), conversation_id)
    return serialize.conversation_dict(services.rename_conversation(actor_of(request), row, body.title))


@router.delete(
    "/conversations/{conversation_id}", response={204: None, **REFUSALS}, operation_id="delete_conversation"
)
def delete_conversation(request: HttpRequest, conversation_id: Number) -> Status[None]:
    """Delete a conversation with its turns."""
    row = selectors.conversation(actor_of(request), conversation_id)
    services.delete_conversation(actor_of(request), row)
    return Status(204, None)


class ShowTurn(BaseModel):
    """Which branch a conversation shows."""

    model_config = ConfigDict(extra="forbid", strict=True)

    here: bool = Field(
        False, description="True: it ends with this turn, so that the next question follows it."
    )


class TurnTimeline(Schema):
    """When each message of the engine came.

    `marks` are [ms, tokens, characters] each: milliseconds since the question was sent, ids that came with it (null
    where the engine does not count them), characters of the answer that it completed. A fourth item, where
    log-probabilities were asked for, has one {token, logprob, top: [[token, logprob], ...]} an id.
    """

    marks: list[list[Any]]


@router.get("/turns/{uid}", response={200: Turn, **REFUSALS}, operation_id="get_turn")
def get_turn(request: HttpRequest, uid: str) -> dict[str, Any]:
    """One question and its answer."""
    require(actor_of(request), Action.VIEW)
    return serialize.turn_dict(selectors.turn(actor_of(request), uid))


@router.get(
    "/turns/{uid}/timeline", response={200: TurnTimeline, **REFUSALS}, operation_id="get_turn_timeline"
)
def get_turn_timeline(request: HttpRequest, uid: str) -> dict[str, Any]:
    """When each message of the engine came during an answer that has ended."""
    require(actor_of(request), Action.VIEW)
    return {"marks": selectors.timeline(selectors.turn(actor_of(request), uid))}


@router.post(
    "/turns/{uid}/show", response={200: ConversationWithTurns, **REFUSALS}, operation_id="show_branch"
)
def show_branch(request: HttpRequest, uid: str, body: ShowTurn) -> dict[str, Any]:
    """Show the branch of a conversation that a turn is on."""
    turn = selectors.turn(actor_of(request), uid)
    row = services.show_branch(actor_of(request), turn, here=body.here)
    return get_conversation(request, row.pk)


@router.post("/turns/{uid}/stop", response={200: Turn, **REFUSALS}, operation_id="stop_turn")
def stop_turn(request: HttpRequest, uid: str) -> dict[str, Any]:
    """Stop an answer that is being made; its text so far is kept."""
    turn = selectors.turn(actor_of(request), uid)
    services.stop_turn(actor_of(request), turn)
    return serialize.turn_dict(turn)
