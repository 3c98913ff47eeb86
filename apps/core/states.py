"""What a state machine is: its values, its allowed moves and who owns each move."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Tone = Literal["ok", "busy", "warn", "bad", "idle"]


@dataclass(frozen=True, slots=True)
class Move:
    """One allowed arrow: from `source` to `target`, made by `owner` (web, ctl, gpu, sweep...)."""

    source: str
    target: str
    owner: str


@dataclass(frozen=True, slots=True)
class StateMachine:
    """Values, moves, terminal and active sets of one status column.

    `tones` gives each state the colour family of its chip; `labels` the word a person reads.
    """

    name: str
    initial: str
    moves: tuple[Move, ...]
    terminal: frozenset[str]
    active: frozenset[str]
    tones: dict[str, Tone]

    @property
    def values(self) -> tuple[str, ...]:
        """Every state, in the order in which the tones name them."""
        return tuple(self.tones)

    def sources_of(self, target: str) -> frozenset[str]:
        """States from which `target` may be reached in one move."""
        return frozenset(move.source for move in self.moves if move.target == target)

    def allows(self, source: str, target: str) -> bool:
        """Whether one move leads from `source` to `target`."""
        return source in self.sources_of(target)

    def diagram(self) -> str:
        """Mermaid state diagram, as docs/architecture.md shows it."""
        lines = ["stateDiagram-v2", f"    [*] --> {self.initial}"]
        lines += [f"    {move.source} --> {move.target}: {move.owner}" for move in self.moves]
        lines += [f"    {state} --> [*]" for state in self.values if state in self.terminal]
        return "\n".join(lines)

    def problems(self) -> list[str]:
        """What is wrong with the table itself; the tests expect none."""
        known = set(self.tones)
        found = [f"unknown state in move {move}" for move in self.moves if {move.source, move.target} - known]
        found += [f"terminal state {state} has a way out" for state in self.terminal if self._leaves(state)]
        reached, edge = {self.initial}, {self.initial}
        while edge:
            edge = {move.target for move in self.moves if move.source in edge} - reached
            reached |= edge
        found += [f"state {state} cannot be reached" for state in sorted(known - reached)]
        return found

    def _leaves(self, state: str) -> bool:
        return any(move.source == state for move in self.moves)


def moves(owner: str, sources: Iterable[str], targets: Iterable[str]) -> tuple[Move, ...]:
    """Every move from each of `sources` to each of `targets`, owned by `owner`."""
    return tuple(Move(source, target, owner) for source in sources for target in targets if source != target)
