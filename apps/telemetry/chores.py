"""Small regular work of apps above telemetry, done by the telemetry process because it always runs.

chores.register("interrupted turns", 5.0, turn_runner.settle_dead_turns)   # in AppConfig.ready
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

_chores: dict[str, Chore] = {}


@dataclass(frozen=True, slots=True)
class Chore:
    """A synchronous function that is called every `seconds` and takes well under one."""

    name: str
    seconds: float
    function: Callable[[], object]


def register(name: str, seconds: float, function: Callable[[], object]) -> None:
    """Have `function` called regularly; the same name again replaces it."""
    _chores[name] = Chore(name, seconds, function)


def registered() -> list[Chore]:
    """All chores."""
    return list(_chores.values())
