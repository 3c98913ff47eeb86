"""What pydantic refused, as the error that people read."""

from __future__ import annotations

from pydantic import ValidationError

from apps.core.exceptions import Finding, InvalidInput

# What pydantic puts before the words of a validator of ours.
OWN_WORDS = "Value error, "


def refused_fields(error: ValidationError, remedy: str) -> InvalidInput:
    """InvalidInput with a finding for each refused field; the first is its sentence. `remedy` serves them all."""
    findings = tuple(
        Finding(
            "invalid_value",
            "error",
            f"{problem['msg'].removeprefix(OWN_WORDS)}.".replace("..", "."),
            ".".join(map(str, problem["loc"])),
            remedy,
        )
        for problem in error.errors(include_url=False)
    )
    first = findings[0]
    return InvalidInput(first.id, first.message, field=first.where, remedy=first.remedy, findings=findings)
