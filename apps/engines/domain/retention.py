"""What a clean-up removes and why it keeps the rest. Pure: rows and folders come in as items, decisions go out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

Kind = Literal["engine", "stage", "log"]
KINDS: tuple[Kind, ...] = ("engine", "stage", "log")


@dataclass(frozen=True, slots=True)
class Item:
    """Something on the disk. `key` is unique within its kind, `used_by` names what refers to it (empty: nothing).

    `group` is what its newest are kept of: the profile of an engine. `last_used_at` is its last use, or when it was
    made where it was never used.
    """

    kind: Kind
    key: str
    title: str
    path: str
    size_bytes: int
    last_used_at: datetime
    used_by: tuple[str, ...] = ()
    pinned: bool = False
    group: str = ""
    url: str = ""


@dataclass(frozen=True, slots=True)
class Policy:
    """Days without use after which each kind goes; null: never. Of each group the newest `keep_newest` stay."""

    engines_days: int | None = 30
    stages_days: int | None = 7
    logs_days: int | None = 90
    keep_newest: int = 1

    def days(self, kind: Kind) -> int | None:
        """Days of a kind."""
        return {"engine": self.engines_days, "stage": self.stages_days, "log": self.logs_days}[kind]


@dataclass(frozen=True, slots=True)
class Decision:
    """An item with what becomes of it. `why` is a stable word: used, pinned, newest, recent, never, unused."""

    item: Item
    remove: bool
    why: str
    told: str

    @property
    def id(self) -> str:
        """What a person confirms: kind and key."""
        return f"{self.item.kind}:{self.item.key}"

    def as_dict(self) -> dict[str, Any]:
        """JSON form."""
        item = self.item
        return {
            "id": self.id,
            "kind": item.kind,
            "title": item.title,
            "path": item.path,
            "size_bytes": item.size_bytes,
            "last_used_at": item.last_used_at.isoformat(),
            "pinned": item.pinned,
            "used_by": list(item.used_by),
            "remove": self.remove,
            "why": self.why,
            "told": self.told,
        }


def decide(items: Iterable[Item], policy: Policy, now: datetime) -> list[Decision]:
    """A decision for every item; what is used or pinned is kept whatever the policy says. Largest first."""
    every = list(items)
    newest = _newest(every, policy.keep_newest)
    found = [_decide(item, policy, now, item.key in newest) for item in every]
    return sorted(found, key=lambda each: (not each.remove, -each.item.size_bytes, each.id))


def _decide(item: Item, policy: Policy, now: datetime, newest: bool) -> Decision:
    if item.used_by:
        users = ", ".join(item.used_by[:3])
        more = f" and {len(item.used_by) - 3} more" if len(item.used_by) > 3 else ""
        return Decision(item, False, "used", f"Used by {users}{more}.")
    if item.pinned:
        return Decision(item, False, "pinned", "Pinned.")
    days = policy.days(item.kind)
    if days is None:
        return Decision(item, False, "never", "The policy keeps all of its kind.")
    if newest:
        return Decision(item, False, "newest", f"Among the newest of {item.group}.")
    unused = now - item.last_used_at
    if unused < timedelta(days=days):
        ago = "today" if unused.days < 1 else f"{unused.days} days ago"
        return Decision(item, False, "recent", f"Used {ago}, kept for {days} days.")
    return Decision(item, True, "unused", f"Not used for {unused.days} days.")


def _newest(items: Iterable[Item], keep: int) -> set[str]:
    """Keys of the engines that are kept as the newest of their group, unused ones without a group not among them."""
    groups: dict[str, list[Item]] = {}
    for item in items:
        if item.kind == "engine" and item.group:
            groups.setdefault(item.group, []).append(item)
    found: set[str] = set()
    for members in groups.values():
        ordered = sorted(members, key=lambda item: item.last_used_at, reverse=True)
        found |= {item.key for item in ordered[:keep]}
    return found
