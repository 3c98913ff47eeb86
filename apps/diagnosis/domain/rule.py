"""What a log rule is."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

Kind = Literal["build", "server", "request"]


@dataclass(frozen=True, slots=True)
class Rule:
    """One cause and how it shows. Named groups of the patterns become facts; digits become numbers.

    `unless` is a pattern that, in the same line, means another cause. `exits` are exit codes (negative: signal) that
    show the cause without any line.
    """

    id: str
    title: str
    patterns: tuple[re.Pattern[str], ...]
    remedies: tuple[str, ...]
    kinds: frozenset[Kind] = frozenset({"build", "server"})
    unless: re.Pattern[str] | None = None
    exits: frozenset[int] = frozenset()


def rule(
    id: str,
    title: str,
    patterns: list[str],
    remedies: list[str],
    *,
    kinds: tuple[Kind, ...] = ("build", "server"),
    unless: str | None = None,
    exits: tuple[int, ...] = (),
) -> Rule:
    """Compile a rule; patterns are searched in each line, without regard to case."""
    return Rule(
        id=id,
        title=title,
        patterns=tuple(re.compile(pattern, re.IGNORECASE) for pattern in patterns),
        remedies=tuple(remedies),
        kinds=frozenset(kinds),
        unless=re.compile(unless, re.IGNORECASE) if unless else None,
        exits=frozenset(exits),
    )
