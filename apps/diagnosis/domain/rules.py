"""Text in, verdict out: what the log of a failed build or server says about the cause."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from typing import Any, Literal

from apps.diagnosis.domain.rule import Kind, Rule
from apps.diagnosis.domain.table import RULES

Status = Literal["succeeded", "failed", "unknown"]
# Lines beyond this are not looked at from the front; a log's cause stands near its end.
MAX_LINES = 50_000
MAX_EVIDENCE = 5
MAX_TEXT = 500
# Of a longer line only the beginning is searched.
MAX_LINE = 8_000


@dataclass(frozen=True, slots=True)
class Evidence:
    """A line of the log, counted from 1."""

    line: int
    text: str


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """A cause. `facts` holds what the lines name (bytes as numbers)."""

    id: str
    title: str
    fatal: bool
    evidence: tuple[Evidence, ...]
    facts: dict[str, str | int]
    remedies: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """JSON form: id, title, fatal, evidence [{line, text}], facts, remedies."""
        return {
            **asdict(self),
            "evidence": [asdict(item) for item in self.evidence],
            "remedies": list(self.remedies),
        }


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether the run succeeded, and the cause where it did not and one is known."""

    status: Status
    diagnosis: Diagnosis | None

    def as_dict(self) -> dict[str, Any]:
        """JSON form: status, diagnosis (or null)."""
        return {"status": self.status, "diagnosis": self.diagnosis.as_dict() if self.diagnosis else None}


def diagnose(text: str, kind: Kind = "build", exit_code: int | None = None) -> Verdict:
    """Say what a log shows. `exit_code` 0 is a success whatever the log says; negative is a signal's number.

    Without an exit code a known cause counts as a failure and anything else as unknown.
    """
    if exit_code == 0:
        return Verdict("succeeded", None)
    lines = text.splitlines()
    skipped = max(0, len(lines) - MAX_LINES)
    found = _first(lines[skipped:], skipped, kind, exit_code)
    if found is not None:
        return Verdict("failed", found)
    return Verdict("unknown" if exit_code is None else "failed", None)


def _first(lines: list[str], skipped: int, kind: Kind, exit_code: int | None) -> Diagnosis | None:
    for rule in RULES:
        if kind not in rule.kinds:
            continue
        matches = [
            (Evidence(number, line.strip()[:MAX_TEXT]), match)
            for number, line in enumerate(lines, start=skipped + 1)
            if (match := _match(rule, line[:MAX_LINE]))
        ]
        if matches or exit_code in rule.exits:
            return _diagnosis(rule, matches)
    return None


def _match(rule: Rule, line: str) -> re.Match[str] | None:
    if rule.unless is not None and rule.unless.search(line):
        return None
    return next((match for pattern in rule.patterns if (match := pattern.search(line))), None)


def _diagnosis(rule: Rule, matches: list[tuple[Evidence, re.Match[str]]]) -> Diagnosis:
    facts: dict[str, str | int] = {}
    for _evidence, match in matches:
        for name, value in match.groupdict().items():
            if value:
                facts.setdefault(name, int(value) if value.isdecimal() else value)
    return Diagnosis(
        id=rule.id,
        title=rule.title,
        fatal=True,
        evidence=tuple(evidence for evidence, _match in matches[:MAX_EVIDENCE]),
        facts=facts,
        remedies=rule.remedies,
    )
