"""Prompt sets: named lists of questions that a comparison asks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import QuerySet
from django.utils.translation import gettext as _
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from apps.accounts.roles import Action, require
from apps.chat.compared_models import PromptSet
from apps.core import audit
from apps.core.exceptions import NotFound
from apps.core.refused import refused_fields
from apps.serving.inputs import assign

MOST_PROMPTS = 200
PROMPT_LIMIT = 200_000


class PromptSetFields(BaseModel):
    """All of a prompt set but its name."""

    model_config = ConfigDict(extra="forbid", strict=True)

    description: Annotated[str, Field(max_length=500)] = ""
    prompts: list[Annotated[str, Field(min_length=1, max_length=PROMPT_LIMIT, pattern=r"\S")]] = Field(
        min_length=1, max_length=MOST_PROMPTS
    )


def save_prompt_set(
    actor: User | str, data: Mapping[str, Any], instance: PromptSet | None = None
) -> PromptSet:
    """Create a prompt set, or change one (`instance`): keys name, description, prompts.

    Raises InvalidInput naming the field, and the number of the prompt that is refused.
    """
    require(actor, Action.CONFIGURE)
    created = instance is None
    row = PromptSet.objects.get(pk=instance.pk) if instance is not None else PromptSet()
    values = dict(data)
    fields = {name: values[name] for name in PromptSetFields.model_fields if name in values}
    if created or fields:
        known = {} if created else {"description": row.description, "prompts": row.prompts}
        values |= _checked({**known, **fields}).model_dump()
    changes = assign(row, values, ("name", "description", "prompts"))
    if not created and not changes:
        return row
    with transaction.atomic():
        row.save()
        verb = "promptset.created" if created else "promptset.changed"
        audit.record(actor, verb, row, detail={"changes": sorted(changes)})
    return row


def delete_prompt_set(actor: User | str, row: PromptSet) -> None:
    """Delete a prompt set; comparisons that asked it keep their own copy of its questions."""
    require(actor, Action.CONFIGURE)
    with transaction.atomic():
        audit.record(actor, "promptset.deleted", row)
        row.delete()


def prompt_sets() -> QuerySet[PromptSet]:
    """Every prompt set, by name."""
    return PromptSet.objects.all()


def prompt_set(name: str) -> PromptSet:
    """The prompt set of that name, or NotFound."""
    found = PromptSet.objects.filter(name=name).first()
    if found is None:
        raise NotFound(
            "prompt_set_unknown",
            _("There is no prompt set %(name)s.") % {"name": name},
            field="prompt_set",
            remedy=_("Make one under Compare, or with manage.py apply."),
        )
    return found


def from_lines(text: str) -> list[str]:
    """Prompts that a person typed, one a line; empty lines are passed over.

    Where a line is only `---`, the text between such lines is one prompt each instead, so that one may have lines.
    """
    lines = text.replace("\r\n", "\n").split("\n")
    if any(line.strip() == "---" for line in lines):
        parts: list[list[str]] = [[]]
        for line in lines:
            if line.strip() == "---":
                parts.append([])
            else:
                parts[-1].append(line)
        found = ["\n".join(part).strip() for part in parts]
    else:
        found = [line.strip() for line in lines]
    return [prompt for prompt in found if prompt]


def prompt_set_dict(row: PromptSet) -> dict[str, Any]:
    """A prompt set as plain values."""
    return {
        "id": row.pk,
        "name": row.name,
        "description": row.description,
        "prompts": row.prompts,
        "created_at": row.created_at,
        "updated_at": row.updated_at,
    }


def _checked(values: Mapping[str, Any]) -> PromptSetFields:
    try:
        found = PromptSetFields.model_validate(dict(values))
    except ValidationError as error:
        raise refused_fields(
            error, _("Give 1 to %(most)d prompts, none of them empty.") % {"most": MOST_PROMPTS}
        ) from error
    # PostgreSQL refuses NUL.
    found.prompts = [prompt.replace("\x00", "") for prompt in found.prompts]
    return found
