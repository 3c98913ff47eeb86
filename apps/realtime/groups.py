"""Topic -> group name, and which topics a changed row belongs to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from apps.core.models import StatusModel


def group_of(topic: str) -> str:
    """Group of the channel layer for a topic: `:` written as `.` (layers allow letters, digits, - _ .)."""
    return topic.replace(":", ".")


def user_group(user_id: int) -> str:
    """Group of all sockets of one person; they look again at what the person may see."""
    return f"user.{user_id}"


@dataclass(frozen=True, slots=True)
class RowRef:
    """What a change names: kind and number of the row, and the state it is in now."""

    kind: str
    key: int
    state: str

    def as_dict(self) -> dict[str, Any]:
        """JSON form."""
        return {"kind": self.kind, "key": self.key, "state": self.state}


TopicsOfRow = Callable[[Any], list[str]]

# By StatusModel.kind. Attributes only: realtime imports no model of the apps above it.
_topics_of: dict[str, TopicsOfRow] = {
    "build": lambda row: [f"build:{row.number}", "builds", "overview"],
    "engine": lambda row: ["builds"],
    "checkpoint": lambda row: ["checkpoints"],
    "deployment": lambda row: [f"deployment:{row.pk}", "deployments", "overview"],
    "revision": lambda row: [f"deployment:{row.deployment_id}", "deployments", "overview"],
    "instance": lambda row: [f"deployment:{row.deployment_id}", "deployments", "overview"],
    "node": lambda row: ["overview"],
}


def route(kind: str, topics: TopicsOfRow) -> None:
    """Say which topics a row of `kind` belongs to, for kinds that are not in the table above."""
    _topics_of[kind] = topics


def topics_of(row: StatusModel) -> list[str]:
    """Names of the topics that change when `row` changes; empty for a kind without topics."""
    topics = _topics_of.get(row.kind)
    return topics(row) if topics else []


def ref_of(row: StatusModel) -> RowRef:
    """The reference to a row; a build is named by its number, every other row by its id."""
    key = getattr(row, "number", None) if row.kind == "build" else row.pk
    return RowRef(kind=row.kind, key=int(key or 0), state=row.state)
