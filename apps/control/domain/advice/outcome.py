"""What a rule may say, and what it is asked about."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from apps.control.domain.advice.figures import Figures

Device = Literal["cpu", "gpu"]


@dataclass(frozen=True, slots=True)
class Subject:
    """A deployment as it runs: its batching snapshot and what is known of engine and place.

    `reuse` and `chunked_context` are None where the engine's configuration does not tell.
    """

    batching: Mapping[str, Any]
    builder: str = ""
    device: Device | None = None
    replicas: int = 1
    reuse: bool | None = None
    chunked_context: bool | None = None

    @property
    def strategy(self) -> str:
        """How requests share the engine."""
        return str(self.batching.get("strategy", ""))

    def whole(self, key: str) -> int | None:
        """A whole number of the snapshot; None where it is not told."""
        value = self.batching.get(key)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    @property
    def slots(self) -> int | None:
        """Sequences that may generate at once."""
        return 1 if self.strategy == "none" else self.whole("max_batch_size")


@dataclass(frozen=True, slots=True)
class Evidence:
    """One number behind an advice. `key` is the metric's name in the vocabulary, empty for a setting."""

    label: str
    value: float
    unit: str = ""
    key: str = ""


@dataclass(frozen=True, slots=True)
class Change:
    """A field of the batching profile that a button can change."""

    field: str
    before: Any
    after: Any


@dataclass(frozen=True, slots=True)
class Advice:
    """Something to change. `change` None: no button can do it, `action` says what to do."""

    id: str
    weight: Literal["warning", "info"]
    title: str
    sentence: str
    action: str
    evidence: tuple[Evidence, ...] = ()
    change: Change | None = None

    def as_dict(self) -> dict[str, Any]:
        """JSON form."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Fine:
    """Looked at, nothing to change."""

    id: str
    title: str


@dataclass(frozen=True, slots=True)
class CannotSay:
    """Data is missing or wrong, or the question does not arise here (`applies` False)."""

    id: str
    title: str
    why: str
    applies: bool = True


Outcome = Advice | Fine | CannotSay


@dataclass(frozen=True, slots=True)
class Rule:
    """One question of the checklist. `needs` are metrics without a value of which it cannot say."""

    id: str
    title: str
    ask: Callable[[Rule, Subject, Figures], Outcome]
    needs: tuple[str, ...] = ()

    def fine(self) -> Fine:
        """Nothing to change."""
        return Fine(self.id, self.title)

    def cannot_say(self, why: str) -> CannotSay:
        """Not enough is known."""
        return CannotSay(self.id, self.title, why)

    def not_here(self, why: str) -> CannotSay:
        """The question does not arise."""
        return CannotSay(self.id, self.title, why, applies=False)

    def advise(
        self,
        sentence: str,
        action: str,
        *evidence: Evidence,
        change: Change | None = None,
        weight: Literal["warning", "info"] = "warning",
    ) -> Advice:
        """Something to change."""
        return Advice(self.id, weight, self.title, sentence, action, evidence, change)
