"""What may be done with conversations and turns. Pages, socket, API and command line all call these.

`ask`, `edit` and `regenerate` make the row of a turn; `turn_runner.start(turn)` in the calling process streams it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from django.contrib.auth.models import User
from django.db import IntegrityError, transaction
from django.utils.translation import gettext as _

from apps.accounts.roles import Action, may, require
from apps.chat import params as sampling
from apps.chat import selectors, states, targets, turn_runner, waking
from apps.chat.comparisons import (
    create_comparison,
    delete_comparison,
    rename_comparison,
    repeat_comparison,
)
from apps.chat.models import Conversation, Turn
from apps.chat.prompt_sets import delete_prompt_set, save_prompt_set
from apps.chat.sharing import revoke_link, share
from apps.core import audit, clock, ids
from apps.core.exceptions import InvalidInput, NotAllowed, NotPossibleNow
from apps.serving.models import Deployment
from apps.streaming import served

TITLE_LIMIT = 200
PROMPT_LIMIT = 200_000
SYSTEM_PROMPT_LIMIT = 50_000
# A title made of the first question.
_TITLE_LETTERS = 60


def create_conversation(
    actor: User,
    deployment: targets.Target,
    *,
    title: str = "",
    system_prompt: str = "",
    params: Mapping[str, Any] | None = None,
) -> Conversation:
    """Begin a conversation of `actor` with a deployment, which need not be serving yet, or an external one.

    Raises NotAllowed, or InvalidInput naming `title`, `system_prompt` or the parameter.
    """
    require(actor, Action.CHAT)
    conversation = Conversation(
        owner=actor,
        **targets.columns_of(deployment),
        title=_checked_title(title),
        system_prompt=_checked("system_prompt", system_prompt, SYSTEM_PROMPT_LIMIT),
        params=sampling.validate(params or {}).given(),
    )
    with transaction.atomic():
        conversation.save()
        audit.record(actor, "conversation.created", conversation)
    return conversation


def ask(
    actor: User,
    conversation: Conversation,
    prompt: str,
    *,
    after: Turn | Literal["shown"] | None = "shown",
    system_prompt: str | None = None,
    params: Mapping[str, Any] | None = None,
) -> Turn:
    """Add a question. Returns the turn in state streaming, owned by this process; start it with turn_runner.

    It follows `after` (null: it begins anew), by default the last turn that is shown. `system_prompt` and `params`,
    where given, become the conversation's own. Raises NotAllowed, InvalidInput naming the field, or NotPossibleNow
    where nothing serves or another answer is being made.
    """
    _require_owner(actor, conversation)
    parent = conversation.head if after == "shown" else after
    return _begin(actor, conversation, parent, _checked_prompt(prompt), system_prompt, params)


def edit(
    actor: User,
    turn: Turn,
    prompt: str,
    *,
    system_prompt: str | None = None,
    params: Mapping[str, Any] | None = None,
) -> Turn:
    """Ask a question in other words: a new turn beside `turn`, which stays with all that followed it.

    Raises as `ask` does.
    """
    _require_owner(actor, turn.conversation)
    return _begin(actor, turn.conversation, turn.parent, _checked_prompt(prompt), system_prompt, params)


def regenerate(
    actor: User,
    turn: Turn,
    *,
    system_prompt: str | None = None,
    params: Mapping[str, Any] | None = None,
) -> Turn:
    """Make the answer of a turn anew: a new turn beside it that replaces it. Raises as `ask` does."""
    conversation = turn.conversation
    _require_owner(actor, conversation)
    return _begin(actor, conversation, turn.parent, turn.prompt, system_prompt, params, replaces=turn)


def show_branch(actor: User, turn: Turn, *, here: bool = False) -> Conversation:
    """Show the branch that `turn` is on, to its newest end; with `here` it ends with the turn.

    The next question follows what is shown. Raises NotAllowed.
    """
    conversation = turn.conversation
    _require_owner(actor, conversation)
    conversation.head = turn if here else selectors.newest_end(turn)
    with transaction.atomic():
        conversation.save(update_fields=["head", "updated_at"])
        audit.record(actor, "conversation.branch_shown", conversation, detail={"turn": conversation.head.uid})
    return conversation


def rename_conversation(actor: User, conversation: Conversation, title: str) -> Conversation:
    """Give a conversation another title. Raises NotAllowed, or InvalidInput naming `title`."""
    _require_owner(actor, conversation)
    conversation.title = _checked_title(title)
    with transaction.atomic():
        conversation.save(update_fields=["title", "updated_at"])
        audit.record(actor, "conversation.renamed", conversation)
    return conversation


def delete_conversation(actor: User, conversation: Conversation) -> None:
    """Delete a conversation with its turns; a running answer is stopped. Owner or administrator."""
    if not may(actor, Action.ADMINISTER):
        _require_owner(actor, conversation)
    for running in conversation.turns.filter(state=states.STREAMING):
        stop_turn(actor, running)
    with transaction.atomic():
        audit.record(actor, "conversation.deleted", conversation)
        conversation.delete()


def stop_turn(actor: User, turn: Turn) -> bool:
    """Ask the process that streams the turn to stop it; the engine's request is cancelled.

    Returns False where the turn has ended already. Raises NotAllowed, or InfrastructureError where the turn runs in
    another process and Redis does not answer.
    """
    if not may(actor, Action.ADMINISTER):
        _require_owner(actor, turn.conversation)
    if turn.state != states.STREAMING:
        return False
    turn_runner.request_stop(turn.uid)
    return True


def _begin(
    actor: User,
    conversation: Conversation,
    parent: Turn | None,
    prompt: str,
    system_prompt: str | None,
    params: Mapping[str, Any] | None,
    replaces: Turn | None = None,
) -> Turn:
    checked = sampling.validate(conversation.params if params is None else params).given()
    sampling.require_supported(conversation.engine_name, targets.params_of(conversation.engine), checked)
    if system_prompt is not None:
        conversation.system_prompt = _checked("system_prompt", system_prompt, SYSTEM_PROMPT_LIMIT)
    if conversation.deployment is not None:
        _require_serving(conversation.deployment)
    conversation.params = checked
    conversation.title = conversation.title or _title_of(prompt)
    turn = Turn(
        conversation=conversation,
        uid=ids.short_id(16),
        position=parent.position + 1 if parent is not None else 1,
        parent=parent,
        prompt=prompt,
        params=checked,
        state=states.STREAMING,
        replaces=replaces,
        owner_process=turn_runner.process_id(),
    )
    try:
        _write(actor, turn)
    except IntegrityError:
        # An answer runs here, or its process died: only now, as looking for that costs every question something.
        turn_runner.settle_dead_turns(conversation)
        try:
            _write(actor, turn)
        except IntegrityError as error:
            raise NotPossibleNow(
                "turn_running",
                _("An answer is still being made in this conversation."),
                remedy=_("Wait for it, or stop it first."),
            ) from error
    return turn


def _write(actor: User, turn: Turn) -> None:
    conversation = turn.conversation
    with transaction.atomic():
        conversation.updated_at = clock.now()
        turn.save()
        conversation.head = turn
        conversation.save(update_fields=["system_prompt", "params", "title", "head", "updated_at"])
        audit.record(actor, "turn.asked", turn, to_state=states.STREAMING)


def _require_serving(deployment: Deployment) -> None:
    if served.of(deployment.pk).endpoints or waking.wakes(deployment):
        return
    raise NotPossibleNow(
        "nothing_serving",
        _("No instance of %(name)s is serving; the deployment is %(state)s.")
        % {"name": deployment.name, "state": deployment.state},
        remedy=_("Deploy it, or wait until it is ready; its page says what it is doing."),
        field="deployment",
    )


def _require_owner(actor: User, conversation: Conversation) -> None:
    require(actor, Action.CHAT)
    if conversation.owner_id != actor.pk:
        raise NotAllowed(
            "not_your_conversation",
            _("This conversation belongs to %(name)s.") % {"name": conversation.owner.get_username()},
            remedy=_("Begin a conversation of your own."),
        )


def _checked_prompt(prompt: str) -> str:
    if not prompt.strip():
        raise InvalidInput(
            "prompt_empty", _("The question is empty."), field="prompt", remedy=_("Write a question.")
        )
    return _checked("prompt", prompt, PROMPT_LIMIT)


def _checked(field: str, text: str, limit: int) -> str:
    """Text without NUL (PostgreSQL refuses it), or InvalidInput where it is too long."""
    if len(text) > limit:
        raise InvalidInput(
            "text_too_long",
            _("%(field)s has %(length)d characters; at most %(limit)d are taken.")
            % {"field": field, "length": len(text), "limit": limit},
            field=field,
            remedy=_("Shorten it."),
        )
    return text.replace("\x00", "")


def _checked_title(title: str) -> str:
    return _checked("title", " ".join(title.split()), TITLE_LIMIT)


def _title_of(prompt: str) -> str:
    words = " ".join(prompt.split())
    return words if len(words) <= _TITLE_LETTERS else words[: _TITLE_LETTERS - 1].rstrip() + "…"


__all__ = [
    "ask",
    "create_comparison",
    "create_conversation",
    "delete_comparison",
    "delete_conversation",
    "delete_prompt_set",
    "edit",
    "regenerate",
    "rename_comparison",
    "rename_conversation",
    "repeat_comparison",
    "revoke_link",
    "save_prompt_set",
    "share",
    "show_branch",
    "stop_turn",
]
