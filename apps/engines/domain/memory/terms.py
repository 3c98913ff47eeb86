"""One line of a plan: what takes memory, how much, by which formula, and how we know."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

Group = Literal["weights", "activations", "overhead", "kv", "host"]

# Where formulas come from, in the words of a plan; docs/memory-plan.md has the details.
BUILDER = "TensorRT-LLM's model definitions"
KV_MANAGER = "TensorRT-LLM's kvCacheManager"
LOGS = "logs of public reports"


@dataclass(frozen=True, slots=True)
class Term:
    """`low`, `likely` and `high` are whole bytes of one rank; `formula` has the figures in it.

    `source` says where the formula comes from; `exact` terms have no range.
    """

    name: str
    title: str
    group: Group
    low: int
    likely: int
    high: int
    formula: str
    source: str

    @property
    def exact(self) -> bool:
        """Whether it is arithmetic and no estimate."""
        return self.low == self.likely == self.high

    def as_dict(self) -> dict[str, Any]:
        """JSON form."""
        return asdict(self)


def exact(name: str, title: str, group: Group, amount: int, formula: str, source: str) -> Term:
    """A term without a range."""
    return Term(name, title, group, amount, amount, amount, formula, source)


def multiple(
    name: str, title: str, group: Group, parts: tuple[int, int, int], each: int, formula: str, source: str
) -> Term:
    """A term of so many (low, likely, high) times `each` bytes."""
    low, likely, high = (count * each for count in parts)
    return Term(name, title, group, low, likely, high, formula, source)
