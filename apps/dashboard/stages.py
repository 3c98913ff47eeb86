"""The stage rail: a row's stages as the page shows them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.utils.dateparse import parse_datetime

from apps.core.states import Tone
from apps.dashboard import formats

_TONES: dict[str, Tone] = {
    "waiting": "idle",
    "skipped": "idle",
    "running": "busy",
    "done": "ok",
    "failed": "bad",
    "cancelled": "warn",
}


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage: title, state, how long it took or runs, what it took of the host, and the command that it ran.

    `doing` is what its log says that it does now, `note` what is worth knowing of how it ended.
    """

    name: str
    title: str
    state: str
    tone: Tone
    time: str
    argv: tuple[str, ...]
    memory: str = ""
    disk: str = ""
    doing: str = ""
    note: str = ""


def _moment(value: Any) -> datetime | None:
    return parse_datetime(value) if isinstance(value, str) else None


def of(rows: Iterable[Mapping[str, Any]]) -> list[Stage]:
    """Stages of a build from its JSON column; unknown keys are passed over."""
    found = []
    for row in rows:
        state = str(row.get("state", "waiting"))
        begun, ended = _moment(row.get("started_at")), _moment(row.get("finished_at"))
        found.append(
            Stage(
                name=str(row.get("name", "")),
                title=str(row.get("title") or row.get("name", "")),
                state=state,
                tone=_TONES.get(state, "idle"),
                time=formats.duration(formats.since(begun, ended)) if begun else "",
                argv=tuple(str(part) for part in row.get("argv") or ()),
                memory=_size(row.get("peak_bytes")),
                disk=_size(row.get("disk_bytes")),
                doing=str(row.get("doing") or "") if state == "running" else "",
                note=str(row.get("note") or ""),
            )
        )
    return found


def _size(value: Any) -> str:
    return str(formats.filesize(value)) if isinstance(value, int) and value else ""
