"""What a log rule is."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["build", "server", "request"]
Fact = str | int | bool | dict[str, int]
# A cause; what only hints at one (said where no cause stands in the log); what one of a job's processes does when
# another has failed is no rule at all.
Strength = Literal["cause", "hint"]


@dataclass(frozen=True, slots=True)
class Rule:
    """One cause and how it shows. Named groups of the patterns become facts; digits become numbers.

    `unless` is a pattern that, in the same line, means another cause; `unless_before` one that means so in an earlier
    line. `levels`: "errors" passes over lines that call themselves a warning or a note, "any" looks at them too.
    `recoverable`: the program goes on after such a line, so it counts only where the run failed after it (by a later
    line, or by the exit code), and not where one of `undone` follows closely. `exits` are exit codes (negative:
    signal) that show the cause without any line. `states` are facts that hold always, `context` patterns of facts
    in other lines.
    """

    id: str
    title: str
    patterns: tuple[re.Pattern[str], ...]
    remedies: tuple[str, ...]
    kinds: frozenset[Kind] = frozenset({"build", "server"})
    strength: Strength = "cause"
    fatal: bool = True
    levels: Literal["errors", "any"] = "errors"
    recoverable: bool = False
    unless: re.Pattern[str] | None = None
    unless_before: re.Pattern[str] | None = None
    undone: re.Pattern[str] | None = None
    exits: frozenset[int] = frozenset()
    states: Mapping[str, Fact] = field(default_factory=dict)
    context: tuple[re.Pattern[str], ...] = ()


def rule(
    id: str,
    title: str,
    patterns: list[str],
    remedies: list[str],
    *,
    kinds: tuple[Kind, ...] = ("build", "server"),
    strength: Strength = "cause",
    fatal: bool = True,
    levels: Literal["errors", "any"] = "errors",
    recoverable: bool = False,
    unless: str | None = None,
    unless_before: str | None = None,
    undone: str | None = None,
    exits: tuple[int, ...] = (),
    states: Mapping[str, Fact] | None = None,
    context: tuple[str, ...] = (),
) -> Rule:
    """Compile a rule; patterns are searched in each line, without regard to case."""
    return Rule(
        id=id,
        title=title,
        patterns=tuple(map(_compiled, patterns)),
        remedies=tuple(remedies),
        kinds=frozenset(kinds),
        strength=strength,
        fatal=fatal,
        levels=levels,
        recoverable=recoverable,
        unless=_compiled(unless) if unless else None,
        unless_before=_compiled(unless_before) if unless_before else None,
        undone=_compiled(undone) if undone else None,
        exits=frozenset(exits),
        states=dict(states or {}),
        context=tuple(map(_compiled, context)),
    )


def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE)
