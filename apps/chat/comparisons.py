"""Comparisons: the same questions to 2 to 4 engines, kept with every answer and its timings.

Each side answers in conversations of its own (ComparisonPart), so that streaming, stopping, resuming and measuring
are those of the playground. Who asks is the page, over the chat socket, or comparison_run.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

from django.contrib.auth.models import AnonymousUser, User
from django.db import transaction
from django.db.models import QuerySet
from django.utils.translation import gettext as _

from apps.accounts.roles import Action, may, require
from apps.chat import comparison_inputs, prompt_sets, selectors, targets
from apps.chat import params as sampling
from apps.chat.compared_models import Comparison, ComparisonPart, PromptSet
from apps.chat.comparison_inputs import LEAST_SIDES, MOST_QUESTIONS, MOST_SIDES, ComparisonFields
from apps.chat.models import Conversation, Turn
from apps.chat.serialize import turn_dict
from apps.core import audit
from apps.core.exceptions import InvalidInput, NotAllowed, NotFound, NotPossibleNow
from apps.gateway.models import ExternalDeployment
from apps.registry.models import Checkpoint
from apps.serving import selectors as serving
from apps.serving.models import Deployment
from apps.streaming import prompts
from apps.streaming.selectors import pick_instance

_TITLE_LETTERS = 60
TITLE_LIMIT = 200
# What is kept of an answer that a saved conversation had.
_RECORDED = ("uid", "state", "tone", "answer", "metrics", "instance", "revision", "params", "started_at")
_turn = itertools.count()


def create_comparison(actor: User, data: Mapping[str, Any]) -> Comparison:
    """Begin a comparison of the actor's; nothing is asked yet. `data` as comparison_inputs.ComparisonFields.

    Raises NotAllowed, InvalidInput naming the field, or NotFound for a deployment, prompt set or conversation.
    """
    require(actor, Action.CHAT)
    given = comparison_inputs.read(data)
    saved = selectors.conversation(actor, given.conversation) if given.conversation else None
    chosen = prompt_sets.prompt_set(given.prompt_set) if given.prompt_set else None
    sides = _sides(given, saved)
    questions = _questions(given, chosen, saved)
    row = Comparison(
        owner=actor,
        title=_title(given, chosen, saved, questions),
        mode=given.mode,
        sides=sides,
        questions=questions,
        chained=given.chained or saved is not None,
        system_prompt=_text(given.system_prompt, saved.system_prompt if saved else ""),
        params=sampling.validate(_params(given, saved)).given(),
        prompt_set=chosen,
    )
    with transaction.atomic():
        row.save()
        _make_parts(row)
        audit.record(actor, "comparison.created", row)
    return row


def repeat_comparison(actor: User, comparison: Comparison) -> Comparison:
    """The same comparison once more, as a new one with nothing answered yet; the old answers stay."""
    _require_owner(actor, comparison)
    with transaction.atomic():
        row = Comparison.objects.create(
            owner=actor,
            **{
                name: getattr(comparison, name)
                for name in (
                    "title",
                    "mode",
                    "sides",
                    "questions",
                    "chained",
                    "system_prompt",
                    "params",
                    "prompt_set",
                )
            },
        )
        _make_parts(row)
        audit.record(actor, "comparison.created", row, detail={"repeats": comparison.pk})
    return row


def rename_comparison(actor: User, comparison: Comparison, title: str) -> Comparison:
    """Give a comparison another name. Raises NotAllowed, or InvalidInput naming `title`."""
    _require_owner(actor, comparison)
    words = " ".join(title.replace("\x00", "").split())
    if not words or len(words) > TITLE_LIMIT:
        raise InvalidInput(
            "title_length",
            _("A title has 1 to %(most)d characters.") % {"most": TITLE_LIMIT},
            field="title",
            remedy=_("Shorten it.") if words else _("Write one."),
        )
    comparison.title = words
    with transaction.atomic():
        comparison.save(update_fields=["title", "updated_at"])
        audit.record(actor, "comparison.renamed", comparison)
    return comparison


def delete_comparison(actor: User, comparison: Comparison) -> None:
    """Delete a comparison with its answers and links. Owner or administrator; not while it still answers."""
    if not may(actor, Action.ADMINISTER):
        _require_owner(actor, comparison)
    if Turn.objects.filter(conversation__comparison_part__comparison=comparison, state="streaming").exists():
        raise NotPossibleNow(
            "comparison_runs",
            _("An answer is still being made in this comparison."),
            remedy=_("Stop it first, or wait for it."),
        )
    with transaction.atomic():
        audit.record(actor, "comparison.deleted", comparison)
        Conversation.objects.filter(comparison_part__comparison=comparison).delete()
        comparison.delete()


def comparisons(user: User | AnonymousUser) -> QuerySet[Comparison]:
    """The person's own comparisons, the one used last first."""
    return Comparison.objects.select_related("owner", "prompt_set").filter(owner_id=user.pk)


def comparison(user: User | AnonymousUser | str, comparison_id: int) -> Comparison:
    """One comparison that the person may view: the owner's own, or any for administrators. Raises NotFound."""
    rows = Comparison.objects.select_related("owner", "prompt_set")
    if not isinstance(user, str) and not may(user, Action.ADMINISTER):
        rows = rows.filter(owner_id=user.pk)
    found = rows.filter(pk=comparison_id).first()
    if found is None:
        raise NotFound(
            "unknown_comparison",
            _("There is no such comparison."),
            remedy=_("It may have been deleted, or belong to somebody who has not shared it."),
            field="comparison",
        )
    return found


def engines_of(deployment: Deployment) -> list[int]:
    """Numbers of the deployment's revisions that can be asked now, newest first."""
    rows = serving.routable_instances().filter(deployment=deployment)
    return sorted(set(rows.values_list("revision__number", flat=True)), reverse=True)


def pick(conversation: Conversation) -> serving.Endpoint:
    """The server for the conversation's next answer: of the revision that its part is pinned to, else any by share.

    Raises NotPossibleNow where none serves.
    """
    part = _part_of(conversation)
    deployment = targets.own(conversation)
    if part is None or part.revision is None:
        return pick_instance(deployment)
    rows = list(serving.routable_instances().filter(deployment=deployment, revision__number=part.revision))
    if rows:
        return serving.endpoint(rows[next(_turn) % len(rows)])
    raise _not_serving(deployment, part.revision)


def checkpoint_of(conversation: Conversation) -> Checkpoint:
    """The checkpoint whose template the conversation is rendered by: of the revision that its part is pinned to.

    Raises NotPossibleNow as apps.streaming.prompts does.
    """
    part = _part_of(conversation)
    if part is not None and part.revision is not None:
        engine = serving.revision(targets.own(conversation), part.revision).engine
        if engine is not None:
            return engine.checkpoint
    return prompts.serving_checkpoint(targets.own(conversation))


def _part_of(conversation: Conversation) -> ComparisonPart | None:
    """The part that a conversation is, read once for each row."""
    found: ComparisonPart | None = getattr(conversation, "comparison_part", None)
    return found


def answers(row: Comparison) -> list[list[dict[str, Any] | None]]:
    """[question][side] -> the newest answer as serialize.turn_dict, None where there is none yet."""
    found: list[list[dict[str, Any] | None]] = [
        [question.get("recorded") if side.get("recorded") else None for side in row.sides]
        for question in row.questions
    ]
    turns = (
        Turn.objects.filter(conversation__comparison_part__comparison=row)
        .select_related("conversation__comparison_part", "parent", "replaces")
        .order_by("id")
    )
    for turn in turns:
        part = turn.conversation.comparison_part
        question = turn.position - 1 if row.chained else part.question
        if question < len(found):
            found[question][part.side] = turn_dict(turn, siblings=[turn.uid])
    return found


def side_name(side: Mapping[str, Any]) -> str:
    """What a side is called."""
    if side.get("recorded"):
        return _("%(name)s, recorded") % {"name": side["deployment"] or side.get("external")}
    if side.get("external"):
        return _("%(name)s (external)") % {"name": side["external"]}
    if side.get("revision"):
        return _("%(name)s, revision %(number)d") % {"name": side["deployment"], "number": side["revision"]}
    return str(side["deployment"])


def _sides(given: ComparisonFields, saved: Conversation | None) -> list[dict[str, Any]]:
    sides: list[dict[str, Any]] = []
    if saved is not None and given.recorded:
        sides.append(_side(saved.engine) | {"recorded": saved.pk})
    for index, side in enumerate(given.sides):
        deployment = targets.named(side.deployment, side.external)
        if isinstance(deployment, ExternalDeployment):
            sides.append(_side(deployment))
            continue
        if deployment.repository_id is not None:
            raise InvalidInput(
                "no_chat_template",
                _("%(name)s serves a model repository, whose chat template nobody knows.")
                % {"name": deployment.name},
                field=f"sides.{index}.deployment",
                remedy=_("Compare deployments of a checkpoint."),
            )
        if side.revision is not None and side.revision not in engines_of(deployment):
            raise _not_serving(deployment, side.revision)
        sides.append(_side(deployment) | {"revision": side.revision})
    if not LEAST_SIDES <= len(sides) <= MOST_SIDES:
        raise InvalidInput(
            "number_of_sides",
            _("A comparison has %(least)d to %(most)d sides, not %(count)d.")
            % {"least": LEAST_SIDES, "most": MOST_SIDES, "count": len(sides)},
            field="sides",
            remedy=_("Choose another number of engines."),
        )
    return sides


def _side(target: targets.Target) -> dict[str, Any]:
    elsewhere = isinstance(target, ExternalDeployment)
    return {
        "deployment": None if elsewhere else target.name,
        "external": target.name if elsewhere else None,
        "revision": None,
        "recorded": None,
    }


def _questions(
    given: ComparisonFields, chosen: PromptSet | None, saved: Conversation | None
) -> list[dict[str, Any]]:
    if saved is None:
        asked = given.prompts if chosen is None else chosen.prompts
        return [{"prompt": text.replace("\x00", ""), "recorded": None} for text in asked[:MOST_QUESTIONS]]
    turns = selectors.turns(saved)[:MOST_QUESTIONS]
    if not turns:
        raise InvalidInput(
            "conversation_empty",
            _("Nothing was asked in this conversation yet."),
            field="conversation",
            remedy=_("Ask something in it, or choose another."),
        )
    found = []
    for turn in turns:
        facts = turn_dict(turn, siblings=[turn.uid])
        found.append({"prompt": turn.prompt, "recorded": {name: facts[name] for name in _RECORDED}})
    return found


def _params(given: ComparisonFields, saved: Conversation | None) -> Mapping[str, Any]:
    if given.params is not None:
        return given.params
    return saved.params if saved is not None else {}


def _text(given: str | None, otherwise: str) -> str:
    return (otherwise if given is None else given).replace("\x00", "")


def _title(
    given: ComparisonFields,
    chosen: PromptSet | None,
    saved: Conversation | None,
    questions: list[dict[str, Any]],
) -> str:
    if given.title.strip():
        return " ".join(given.title.replace("\x00", "").split())
    if chosen is not None:
        return chosen.name
    words = (saved.title if saved else "") or " ".join(questions[0]["prompt"].split())
    return words if len(words) <= _TITLE_LETTERS else words[: _TITLE_LETTERS - 1].rstrip() + "…"


def _make_parts(row: Comparison) -> None:
    """A conversation for each engine, and for each question of its own unless they are chained."""
    for index, side in enumerate(row.sides):
        if side.get("recorded"):
            continue
        try:
            target = targets.named(side["deployment"], side.get("external"))
        except NotFound as error:
            raise NotFound(
                error.code,
                error.sentence,
                field="sides",
                remedy=_("It was deleted; begin a comparison of those that exist."),
            ) from error
        for question in range(1 if row.chained else len(row.questions)):
            conversation = Conversation.objects.create(
                owner_id=row.owner_id,
                **targets.columns_of(target),
                title=row.title,
                system_prompt=row.system_prompt,
                params=row.params,
            )
            ComparisonPart.objects.create(
                comparison=row,
                conversation=conversation,
                side=index,
                question=question,
                revision=side["revision"],
            )


def _require_owner(actor: User, row: Comparison) -> None:
    require(actor, Action.CHAT)
    if row.owner_id != actor.pk:
        raise NotAllowed(
            "not_your_comparison",
            _("This comparison belongs to %(name)s.") % {"name": row.owner.get_username()},
            remedy=_("Begin one of your own."),
        )


def _not_serving(deployment: Deployment, revision: int) -> NotPossibleNow:
    now = engines_of(deployment)
    return NotPossibleNow(
        "revision_not_serving",
        _("Revision %(number)d of %(name)s does not serve now.")
        % {"number": revision, "name": deployment.name},
        field="revision",
        remedy=_("Those that do: %(numbers)s.") % {"numbers": ", ".join(map(str, now))}
        if now
        else _("None of its revisions serves; deploy it first."),
    )
