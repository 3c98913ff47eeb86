"""What a pasted command became, and several of them as one."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from apps.core.exceptions import Finding


@dataclass(frozen=True, slots=True)
class Change:
    """One thing that was not taken over as written: `was` and `now` as text, `why` in a sentence."""

    was: str
    now: str
    why: str

    def as_dict(self) -> dict[str, str]:
        """JSON form."""
        return {"was": self.was, "now": self.now, "why": self.why}


@dataclass(slots=True)
class Translated:
    """`profile` holds the fields of a BuildProfile document (without its checkpoint), with the quantization written
    out in it; `model` is the source's folder, `program` build, convert, quantize, legacy or several with a plus."""

    program: str
    profile: dict[str, Any] = field(default_factory=dict)
    model: str = ""
    changes: list[Change] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """JSON form: program, model, profile, changes, findings."""
        return {
            "program": self.program,
            "model": self.model,
            "profile": self.profile,
            "changes": [change.as_dict() for change in self.changes],
            "findings": [found.as_dict() for found in self.findings],
        }


def merge(parts: list[Translated]) -> Translated:
    """A conversion and a build that were pasted together are one profile; a later one wins where both speak."""
    if len(parts) == 1:
        return parts[0]
    found = Translated("+".join(part.program for part in parts))
    for part in parts:
        found.changes += part.changes
        found.findings += part.findings
        found.model = found.model or part.model
        for key, value in part.profile.items():
            before = found.profile.get(key)
            both = isinstance(before, dict) and isinstance(value, dict)
            found.profile[key] = {**before, **value} if both else value  # type: ignore[dict-item]
    return found
