"""What a fault is, what came of it, and what is asked of that."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from tests.chaos.installation import Installation

# What is asked (docs/reliability.md): seconds until a dead server and a silent host are noticed, and until running
# servers are looked after again.
DEAD_SERVER_SECONDS = 2.0
LOST_NODE_SECONDS = 15.0
ADOPTED_SECONDS = 10.0

Needs = Literal["", "clock", "postgres"]


class CannotBeShown(Exception):
    """This machine does not let the fault be made; the text says why."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Seconds until the fault was noticed and until all was as before; None: there was nothing to notice.

    `adopted`: until the control worker looked after running servers again, where it was hit. `streams` and `lost`
    are those of the fault itself, beside the ones that run all the while.
    """

    detected: float | None
    recovered: float
    adopted: float | None = None
    streams: int = 0
    lost: int = 0


@dataclass(frozen=True, slots=True)
class Fault:
    """`strikes` does it and waits for the recovery; `prepares` runs before, without being timed.

    `loses`: streams may be lost, those of the server that was ended. `noticed_within`: seconds in which it must be
    noticed. `short`: part of `make test`. `needs`: a clock that can be moved, or PostgreSQL.
    """

    name: str
    strikes: Callable[[Installation], Outcome]
    loses: bool = False
    noticed_within: float | None = None
    short: bool = False
    needs: Needs = ""
    prepares: Callable[[Installation], None] | None = None


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the table.

    `streams` were open at the fault or began before all was well again; `lost` of them failed or were cut off;
    `duplicates`: servers or tokens twice. `outcome` is None where it never became well again, or could not be shown:
    `why` says so.
    """

    fault: Fault
    outcome: Outcome | None
    streams: int = 0
    lost: int = 0
    duplicates: int = 0
    why: str = ""
    skipped: bool = False

    def text(self) -> str:
        """As a row of the table."""
        if self.skipped:
            return f"| {self.fault.name} | not shown: {self.why} | | | | |"
        if self.outcome is None:
            return (
                f"| {self.fault.name} | - | - | never | {self.lost} of {self.streams} | {self.duplicates} |"
            )
        seen, adopted, recovered = (
            "-" if seconds is None else f"{seconds:.1f} s"
            for seconds in (self.outcome.detected, self.outcome.adopted, self.outcome.recovered)
        )
        lost = f"{self.lost} of {self.streams}"
        return f"| {self.fault.name} | {seen} | {adopted} | {recovered} | {lost} | {self.duplicates} |"

    def broken(self) -> list[str]:
        """What went wrong, however long it took, in words."""
        if self.skipped:
            return []
        if self.outcome is None:
            return [f"it did not become well again: {self.why}"]
        found = []
        if self.lost and not self.fault.loses:
            found.append(f"{self.lost} streams were lost: {self.why}")
        if self.duplicates:
            found.append(f"{self.duplicates} servers or answers were doubled")
        return found

    def missed(self) -> list[str]:
        """What was asked and did not hold, times too, in words."""
        found = self.broken()
        if self.outcome is None:
            return found
        bound, seen = self.fault.noticed_within, self.outcome.detected
        if bound is not None and (seen is None or seen > bound):
            found.append(f"noticed after {'-' if seen is None else f'{seen:.1f}'} s, {bound:.0f} asked")
        if self.outcome.adopted is not None and self.outcome.adopted > ADOPTED_SECONDS:
            found.append(f"servers adopted after {self.outcome.adopted:.1f} s, {ADOPTED_SECONDS:.0f} asked")
        return found


HEADER = (
    "| fault | detected after | servers adopted after | recovered after | streams lost | duplicates |\n"
    "|---|---|---|---|---|---|"
)
