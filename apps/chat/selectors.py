"""Reads of this app. Only `settled` changes a row: a turn that is found dead is ended where it is read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from django.contrib.auth.models import AnonymousUser, User
from django.db.models import QuerySet
from django.utils.translation import gettext as _

from apps.accounts.roles import Action, may
from apps.chat import states
from apps.chat.models import Conversation, Timeline, Turn
from apps.core.exceptions import NotFound
from apps.streaming import served
from apps.streaming.domain import thinking

# A turn whose text may be shown to the engine again.
_USABLE = (states.DONE, states.STOPPED, states.INTERRUPTED)


def conversations(user: User | AnonymousUser) -> QuerySet[Conversation]:
    """The person's own conversations, the one used last first; those of a comparison are on its own page."""
    return Conversation.objects.select_related("deployment", "external", "owner").filter(
        owner_id=user.pk, comparison_part__isnull=True
    )


def conversation(user: User | AnonymousUser | str, conversation_id: int) -> Conversation:
    """One conversation that the person may view: the owner's own, or any for administrators.

    Raises NotFound, also for a conversation of somebody else.
    """
    rows = Conversation.objects.select_related("deployment", "external", "owner")
    return _viewed(user, conversation_id, rows)


def conversation_to_ask(user: User | AnonymousUser | str, conversation_id: int) -> Conversation:
    """The same for a question: with its last turn, and a deployment as it serves now. In one small query."""
    rows = Conversation.objects.select_related("external", "head", "comparison_part")
    found = _viewed(user, conversation_id, rows)
    if found.deployment_id is not None:
        found.deployment = served.of(found.deployment_id).deployment
    return found


def _viewed(
    user: User | AnonymousUser | str, conversation_id: int, rows: QuerySet[Conversation]
) -> Conversation:
    # Without the model's order, whose making costs more than the row.
    found = rows.filter(pk=conversation_id).order_by("pk").first()
    if found is None or not (
        isinstance(user, str) or found.owner_id == user.pk or may(user, Action.ADMINISTER)
    ):
        raise NotFound(
            "unknown_conversation",
            _("There is no such conversation."),
            remedy=_("It may have been deleted; begin a new one."),
            field="conversation",
        )
    return found


@dataclass(frozen=True, slots=True)
class ShownTurn:
    """A turn of the shown branch and the ids of all turns after the same parent, oldest first."""

    turn: Turn
    siblings: list[str]


def branch(conversation: Conversation) -> list[ShownTurn]:
    """The branch that the conversation shows, first to last. One query, however many turns and branches there are."""
    rows = {row.pk: row for row in conversation.turns.select_related("replaces", "parent").order_by("id")}
    siblings: dict[int | None, list[str]] = {}
    for row in rows.values():
        siblings.setdefault(row.parent_id, []).append(row.uid)
    found: list[ShownTurn] = []
    at = rows.get(conversation.head_id or 0)
    while at is not None:
        found.append(ShownTurn(at, siblings[at.parent_id]))
        at = rows.get(at.parent_id or 0)
    return found[::-1]


def turns(conversation: Conversation) -> list[Turn]:
    """The turns of the branch that is shown, first to last."""
    return [shown.turn for shown in branch(conversation)]


def before(turn: Turn) -> list[Turn]:
    """The turns that `turn` follows, first to last."""
    if turn.parent_id is None:
        return []
    rows = {row.pk: row for row in Turn.objects.filter(conversation_id=turn.conversation_id)}
    found: list[Turn] = []
    at = rows.get(turn.parent_id or 0)
    while at is not None:
        found.append(at)
        at = rows.get(at.parent_id or 0)
    return found[::-1]


def newest_end(turn: Turn) -> Turn:
    """The end of the branch that was asked last below a turn; the turn itself where nothing follows it."""
    children: dict[int | None, Turn] = {}
    for row in Turn.objects.filter(conversation_id=turn.conversation_id, pk__gt=turn.pk).order_by("id"):
        children[row.parent_id] = row
    at = turn
    while at.pk in children:
        at = children[at.pk]
    return at


def messages(system_prompt: str, earlier: Iterable[Turn], question: str) -> list[dict[str, str]]:
    """Chat messages that go to the engine: system prompt, the turns before, the question.

    Turns without an answer, and failed ones, are left out: a template wants user and assistant in turns. So is what a
    model thought before it answered: its makers' templates leave it out of later prompts too.
    """
    found: list[dict[str, str]] = []
    if system_prompt.strip():
        found.append({"role": "system", "content": system_prompt})
    for row in earlier:
        said = thinking.split(row.answer).answer
        if row.state in _USABLE and said:
            found.append({"role": "user", "content": row.prompt})
            found.append({"role": "assistant", "content": said})
    found.append({"role": "user", "content": question})
    return found


def history(turn: Turn) -> list[dict[str, str]]:
    """The messages of a turn; see `messages`."""
    return messages(turn.conversation.system_prompt, before(turn), turn.prompt)


def timeline(turn: Turn) -> list[list[Any]]:
    """When each message of the engine came, as apps.chat.textlog.mark_json writes them; empty where nobody knows."""
    found = Timeline.objects.filter(turn=turn).values_list("marks", flat=True).first()
    return found or []


def turn(user: User | AnonymousUser | str, uid: str) -> Turn:
    """One turn that the person may view. Raises NotFound."""
    rows = Turn.objects.select_related(
        "conversation__owner", "conversation__deployment", "conversation__external", "replaces", "parent"
    )
    row = rows.filter(uid=uid).first()
    if row is not None:
        conversation(user, row.conversation_id)
        return row
    raise NotFound(
        "unknown_turn",
        _("There is no such turn."),
        remedy=_("Reload the page."),
        field="turn",
    )
