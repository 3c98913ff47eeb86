"""What a person gives to begin a comparison, checked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from django.utils.translation import gettext as _
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from apps.chat.prompt_sets import PROMPT_LIMIT
from apps.core.exceptions import InvalidInput
from apps.core.refused import refused_fields

LEAST_SIDES, MOST_SIDES = 2, 4
MOST_QUESTIONS = 50


class SideFields(BaseModel):
    """One engine: a deployment, or one of its revisions that serves; or an external deployment."""

    model_config = ConfigDict(extra="forbid", strict=True)

    deployment: Annotated[str, Field(min_length=1, max_length=63)] | None = None
    external: Annotated[str, Field(min_length=1, max_length=63)] | None = None
    revision: Annotated[int, Field(ge=1)] | None = None

    @model_validator(mode="after")
    def _of_one_kind(self) -> SideFields:
        if (self.deployment is None) == (self.external is None):
            raise ValueError("give either a deployment or an external deployment")
        if self.external is not None and self.revision is not None:
            raise ValueError("an external deployment has no revisions")
        return self


class ComparisonFields(BaseModel):
    """A comparison to begin. Its questions are `prompts`, those of a prompt set, or those of a saved conversation.

    With a conversation its own answers are a side of their own, unless `recorded` is false, and what it was asked is
    asked again as one conversation, in its system prompt and parameters where none are given.
    """

    model_config = ConfigDict(extra="forbid", strict=True)

    sides: Annotated[list[SideFields], Field(min_length=1, max_length=MOST_SIDES)]
    prompts: Annotated[
        list[Annotated[str, Field(min_length=1, max_length=PROMPT_LIMIT, pattern=r"\S")]],
        Field(max_length=MOST_QUESTIONS),
    ] = Field(default_factory=list)
    prompt_set: Annotated[str, Field(max_length=63)] | None = None
    conversation: Annotated[int, Field(ge=1)] | None = None
    recorded: bool = True
    chained: bool = False
    mode: Literal["together", "in_turn"] = "together"
    title: Annotated[str, Field(max_length=200)] = ""
    system_prompt: Annotated[str, Field(max_length=50_000)] | None = None
    params: dict[str, Any] | None = None


def read(data: Mapping[str, Any]) -> ComparisonFields:
    """Checked fields. Raises InvalidInput with a finding for each that is refused."""
    try:
        found = ComparisonFields.model_validate(dict(data))
    except ValidationError as error:
        raise refused_fields(
            error, _("Give the fields that the API's description of a comparison lists.")
        ) from error
    _one_source(found)
    return found


def _one_source(found: ComparisonFields) -> None:
    given = [
        name
        for name, value in (
            ("prompts", found.prompts),
            ("prompt_set", found.prompt_set),
            ("conversation", found.conversation),
        )
        if value
    ]
    if len(given) == 1:
        return
    raise InvalidInput(
        "one_source_of_questions",
        _("A comparison needs its questions from one place.") if given else _("There is nothing to ask yet."),
        field=given[1] if given else "prompts",
        remedy=_("Give either prompts, or a prompt set, or a saved conversation."),
    )
