"""Reads of this app. Only `settled` changes a row: a turn that is found dead is ended where it is read."""

from __future__ import annotations

from django.contrib.auth.models import AnonymousUser, User
from django.db.models import QuerySet
from django.utils.translation import gettext as _

from apps.accounts.roles import Action, may
from apps.chat import states
from apps.chat.models import Conversation, Turn
from apps.core.exceptions import NotFound

# A turn whose text may be shown to the engine again.
_USABLE = (states.DONE, states.STOPPED, states.INTERRUPTED)


def conversations(user: User | AnonymousUser) -> QuerySet[Conversation]:
    """The person's own conversations, the one used last first."""
    return Conversation.objects.select_related("deployment", "owner").filter(owner_id=user.pk)


def conversation(user: User | AnonymousUser | str, conversation_id: int) -> Conversation:
    """One conversation that the person may view: the owner's own, or any for administrators.

    Raises NotFound, also for a conversation of somebody else.
    """
    rows = Conversation.objects.select_related("deployment", "owner")
    if not isinstance(user, str) and not may(user, Action.ADMINISTER):
        rows = rows.filter(owner_id=user.pk)
    found = rows.filter(pk=conversation_id).first()
    if found is None:
        raise NotFound(
            "unknown_conversation",
            _("There is no such conversation."),
            remedy=_("It may have been deleted; begin a new one."),
            field="conversation",
        )
    return found


def turns(conversation: Conversation) -> list[Turn]:
    """The newest turn of each position, in order. Answers that were made anew are reached by `versions`."""
    newest: dict[int, Turn] = {}
    for row in conversation.turns.order_by("position", "id"):
        newest[row.position] = row
    return list(newest.values())


def versions(turn: Turn) -> QuerySet[Turn]:
    """Every answer to the question of `turn`, oldest first."""
    return Turn.objects.filter(conversation_id=turn.conversation_id, position=turn.position).order_by("id")


def history(turn: Turn) -> list[dict[str, str]]:
    """Chat messages that go to the engine: system prompt, the turns before, the question of `turn`.

    Turns without an answer, and failed ones, are left out: a template wants user and assistant in turns.
    """
    conversation = turn.conversation
    messages: list[dict[str, str]] = []
    if conversation.system_prompt.strip():
        messages.append({"role": "system", "content": conversation.system_prompt})
    for row in turns(conversation):
        if row.position < turn.position and row.state in _USABLE and row.answer:
            messages.append({"role": "user", "content": row.prompt})
            messages.append({"role": "assistant", "content": row.answer})
    messages.append({"role": "user", "content": turn.prompt})
    return messages


def turn(user: User | AnonymousUser | str, uid: str) -> Turn:
    """One turn that the person may view. Raises NotFound."""
    found = Turn.objects.select_related("conversation__owner", "conversation__deployment").filter(uid=uid)
    row = found.first()
    if row is not None:
        conversation(user, row.conversation_id)
        return row
    raise NotFound(
        "unknown_turn",
        _("There is no such turn."),
        remedy=_("Reload the page."),
        field="turn",
    )
