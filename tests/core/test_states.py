"""The state tables are sound, and only transitions write a status."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from apps.chat.states import TURN
from apps.core.states import Move, StateMachine
from apps.engines.states import BUILD, ENGINE
from apps.fleet.states import NODE
from apps.registry.states import CHECKPOINT
from apps.serving.states import DEPLOYMENT, INSTANCE, REVISION

MACHINES = [BUILD, CHECKPOINT, DEPLOYMENT, ENGINE, INSTANCE, NODE, REVISION, TURN]


@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.name)
def test_table_is_sound(machine: StateMachine) -> None:
    assert machine.problems() == []
    assert machine.diagram().count("-->") >= len(machine.moves)


def test_problems_are_found() -> None:
    broken = StateMachine(
        name="broken",
        initial="a",
        moves=(Move("a", "b", "x"), Move("b", "a", "x"), Move("a", "nowhere", "x")),
        terminal=frozenset({"b"}),
        active=frozenset(),
        tones={"a": "idle", "b": "ok", "c": "bad"},
    )
    text = " ".join(broken.problems())
    assert "unknown state" in text
    assert "terminal state b" in text
    assert "state c cannot be reached" in text


def test_only_transitions_write_a_state() -> None:
    root = Path(__file__).resolve().parents[2]
    pattern = re.compile(r"\.update\([^)]*\bstate\s*=|\.state\s*=\s*[^=]")
    offenders = [
        f"{path.relative_to(root)}: {match.group(0)}"
        for folder in ("apps", "workers")
        for path in (root / folder).rglob("*.py")
        if path.name != "transitions.py"
        and "migrations" not in path.parts
        and "triton_models" not in path.parts
        for match in pattern.finditer(path.read_text(encoding="utf-8"))
    ]
    assert offenders == []
