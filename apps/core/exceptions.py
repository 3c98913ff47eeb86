"""Errors that a person reads: what happened, in which field, and what to do about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Literal

Severity = Literal["error", "warning", "info"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing found wrong or worth knowing in an input.

    `id` is a stable snake_case word, `where` the field or file it is about (empty: the whole input).
    """

    id: str
    severity: Severity
    message: str
    where: str = ""
    remedy: str = ""

    def as_dict(self) -> dict[str, str]:
        """JSON form, as the command line and the API print it."""
        return asdict(self)


class InflightError(Exception):
    """Base of every error that is meant for a person.

    `code` is stable and machine-readable, `sentence` says what happened, `remedy` what to press or change,
    `field` which input is to blame (empty: none), `status` is the HTTP status that fits.
    """

    status = 400

    def __init__(
        self,
        code: str,
        sentence: str,
        *,
        remedy: str = "",
        field: str = "",
        facts: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__(sentence)
        self.code = code
        self.sentence = sentence
        self.remedy = remedy
        self.field = field
        self.facts = dict(facts or {})

    def as_dict(self) -> dict[str, object]:
        """JSON form: code, message, field, remedy, facts."""
        return {
            "code": self.code,
            "message": self.sentence,
            "field": self.field,
            "remedy": self.remedy,
            "facts": self.facts,
        }


class InvalidInput(InflightError):
    """The input is refused; nothing was changed. `findings` lists every reason, not only the first."""

    status = 422

    def __init__(
        self,
        code: str,
        sentence: str,
        *,
        remedy: str = "",
        field: str = "",
        facts: Mapping[str, object] | None = None,
        findings: tuple[Finding, ...] = (),
    ) -> None:
        super().__init__(code, sentence, remedy=remedy, field=field, facts=facts)
        self.findings = findings


class NotPossibleNow(InflightError):
    """The object is in a state in which this cannot be done."""

    status = 409


class NotAllowed(InflightError):
    """The person's role does not include this action."""

    status = 403


class NotFound(InflightError):
    """No such object, or none that this person may see."""

    status = 404


class InfrastructureError(InflightError):
    """Something of ours or of the machine failed (Redis gone, disk full, a program missing); may be retried."""

    status = 503
