"""Sampling parameters of a turn: what the engine takes, in which range."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from django.utils.translation import gettext as _
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from apps.core.exceptions import Finding, InvalidInput

Words = Annotated[list[Annotated[str, Field(min_length=1, max_length=200)]], Field(max_length=16)]


class SamplingParams(BaseModel):
    """Parameters of one turn; null leaves the engine's default, which is greedy and so repeatable.

    Names and meaning are those of the TensorRT-LLM ensemble's inputs; `top_k` 0 means no limit.
    """

    model_config = ConfigDict(extra="forbid")

    max_tokens: int = Field(default=512, ge=1, le=32_768)
    temperature: float | None = Field(default=None, ge=0, le=5, allow_inf_nan=False)
    top_k: int | None = Field(default=None, ge=0, le=1_000_000)
    top_p: float | None = Field(default=None, gt=0, le=1, allow_inf_nan=False)
    seed: int | None = Field(default=None, ge=0, le=2**53 - 1)
    min_tokens: int | None = Field(default=None, ge=0, le=32_768)
    repetition_penalty: float | None = Field(default=None, gt=0, le=10, allow_inf_nan=False)
    presence_penalty: float | None = Field(default=None, ge=-2, le=2, allow_inf_nan=False)
    frequency_penalty: float | None = Field(default=None, ge=-2, le=2, allow_inf_nan=False)
    # Alternatives to report with each token; 0 for the chosen one alone.
    logprobs: int | None = Field(default=None, ge=0, le=20)
    stop_words: Words = Field(default_factory=list)
    bad_words: Words = Field(default_factory=list)
    # No sampling, but it travels with it: the class in which the request waits.
    priority: Literal["high", "normal", "low"] | None = None

    def given(self) -> dict[str, Any]:
        """What was set, for the row and the page: nulls and empty lists left out."""
        return {name: value for name, value in self.model_dump().items() if value not in (None, [])}


def validate(params: Mapping[str, Any]) -> SamplingParams:
    """Check parameters that a person or program sent. Raises InvalidInput naming the first field at fault."""
    try:
        return SamplingParams.model_validate(dict(params))
    except ValidationError as error:
        findings = tuple(_finding(problem) for problem in error.errors(include_url=False))
        first = findings[0]
        raise InvalidInput(
            first.id, first.message, field=first.where, remedy=first.remedy, findings=findings
        ) from error


def require_supported(name_of_engine: str, known: frozenset[str], given: Mapping[str, Any]) -> None:
    """Raises InvalidInput naming the first parameter that the engine has nothing for; `known` are those it has."""
    for name in given:
        if name not in known:
            raise InvalidInput(
                "unsupported_parameter",
                _("%(name)s: the engine of %(deployment)s has no such parameter.")
                % {"name": name, "deployment": name_of_engine},
                field=name,
                remedy=_("Leave it empty."),
            )


def _finding(problem: Any) -> Finding:
    field = ".".join(str(part) for part in problem["loc"])
    if problem["type"] == "extra_forbidden":
        known = ", ".join(SamplingParams.model_fields)
        return Finding(
            "unknown_parameter",
            "error",
            _("There is no sampling parameter “%(field)s”.") % {"field": field},
            where=field,
            remedy=_("Use one of: %(known)s.") % {"known": known},
        )
    return Finding(
        "parameter_out_of_range",
        "error",
        _("%(field)s: %(problem)s.") % {"field": field, "problem": problem["msg"]},
        where=field,
        remedy=_("Change the value, or leave it empty for the engine's default."),
    )


def schema() -> dict[str, Any]:
    """JSON schema of the parameters, for the drawer of the playground and the API."""
    return SamplingParams.model_json_schema()
