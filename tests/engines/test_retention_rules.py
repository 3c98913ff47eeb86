"""What a clean-up removes, and why it keeps the rest."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from apps.engines.domain.retention import Item, Policy, decide

NOW = datetime(2026, 11, 30, tzinfo=UTC)
OLD = Item("engine", "a", "llama FP8", "/e/a", 100, NOW - timedelta(days=40))


def told(item: Item, policy: Policy | None = None) -> tuple[bool, str]:
    found = decide([item], policy or Policy(), NOW)[0]
    return found.remove, found.why


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, (True, "unused")),
        ({"used_by": ("demo",)}, (False, "used")),
        ({"pinned": True}, (False, "pinned")),
        ({"last_used_at": NOW - timedelta(days=3)}, (False, "recent")),
        ({"last_used_at": NOW - timedelta(days=30)}, (True, "unused")),
        ({"group": "f16"}, (False, "newest")),
        ({"kind": "stage"}, (True, "unused")),
        ({"kind": "log"}, (False, "recent")),
        ({"kind": "log", "last_used_at": NOW - timedelta(days=91)}, (True, "unused")),
        # A clock that was set back makes nothing older than it is.
        ({"last_used_at": NOW + timedelta(days=5)}, (False, "recent")),
    ],
)
def test_decisions(change: dict[str, Any], expected: tuple[bool, str]) -> None:
    assert told(replace(OLD, **change)) == expected


def test_a_policy_without_days_keeps_everything() -> None:
    never = Policy(engines_days=None, stages_days=None, logs_days=None)
    for kind in ("engine", "stage", "log"):
        assert told(replace(OLD, kind=kind), never) == (False, "never")


def test_the_newest_of_each_profile_stay_and_the_largest_come_first() -> None:
    items = [
        replace(OLD, key=f"{group}{n}", group=group, size_bytes=n, last_used_at=NOW - timedelta(days=50 + n))
        for group in ("x", "y")
        for n in range(3)
    ]
    found = decide(items, Policy(keep_newest=2), NOW)
    assert [each.id for each in found if each.remove] == ["engine:x2", "engine:y2"]
    assert found[0].remove
    assert decide(items, Policy(keep_newest=0), NOW)[-1].remove


def test_what_is_used_says_by_whom() -> None:
    users = ("a", "b", "c", "d", "e")
    found = decide([replace(OLD, used_by=users, pinned=True)], Policy(), NOW)[0]
    assert found.told == "Used by a, b, c and 2 more."
    assert found.as_dict()["last_used_at"].startswith("2026-10-21")
