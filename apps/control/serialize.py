"""The advisor's opinion as plain JSON values."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from apps.control.selectors import Report


def report_dict(report: Report) -> dict[str, Any]:
    """What the advisor says, with its range of time and evidence."""
    opinion = report.opinion
    return {
        "deployment": report.deployment.name,
        "revision": report.revision.number,
        "since": _moment(opinion.since),
        "until": _moment(opinion.until),
        "coverage": round(opinion.coverage, 4),
        "blocked": report.blocked or None,
        "advice": [each.as_dict() for each in opinion.advice],
        "fine": [{"id": each.id, "title": each.title} for each in opinion.fine],
        "cannot_say": [{"id": each.id, "title": each.title, "why": each.why} for each in opinion.unknown],
        "not_here": [{"id": each.id, "title": each.title, "why": each.why} for each in opinion.not_here],
    }


def _moment(at: float) -> str:
    return datetime.fromtimestamp(at, tz=UTC).isoformat()
