"""What a check of a repository says: one finding, and small helpers to write it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from apps.core.exceptions import Finding, Severity


@dataclass(frozen=True, slots=True)
class Remark:
    """One thing found in a repository. `model` is the folder's name (empty: the repository), `where` file and place.

    `facts` holds the values for machines: names, lines, the right form.
    """

    id: str
    severity: Severity
    model: str
    where: str
    message: str
    remedy: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """JSON form; `facts` only where there are any."""
        plain: dict[str, Any] = {
            "id": self.id,
            "severity": self.severity,
            "model": self.model,
            "where": self.where,
            "message": self.message,
            "remedy": self.remedy,
        }
        return plain | ({"facts": dict(self.facts)} if self.facts else {})


def from_finding(finding: Finding, model: str, file: str) -> Remark:
    """A finding about one configuration as a remark about its file."""
    where = f"{file}: {finding.where}" if finding.where else file
    return Remark(finding.id, finding.severity, model, where, finding.message, finding.remedy)


def at(file: str, line: int, name: str = "") -> str:
    """How a place in a file is written."""
    return f"{file}:{line}" + (f": {name}" if name else "")
