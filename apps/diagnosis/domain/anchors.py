"""Texts without which a pattern cannot fit: a fast look that spares most lines the patterns themselves."""

from __future__ import annotations

import re

# The standard library's own parser of patterns; it has had this name since 3.11.
from re import _constants as constants  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any


def anchors(pattern: re.Pattern[str]) -> frozenset[str]:
    """Lower-case texts of which a line that fits contains at least one; empty where the pattern implies none."""
    return frozenset(_of_sequence(parser.parse(pattern.pattern, pattern.flags)) or ())


def _of_sequence(items: Any) -> set[str] | None:
    """The best choice among what the parts of a sequence imply: the one whose shortest text is the longest."""
    best: set[str] | None = None
    run = ""
    for kind, value in [*items, (None, None)]:
        if kind is constants.LITERAL:
            run += chr(value).lower()
            continue
        for found in ({run} if run else None, _of_part(kind, value)):
            if found and (best is None or _weight(found) > _weight(best)):
                best = found
        run = ""
    return best


def _of_part(kind: Any, value: Any) -> set[str] | None:
    if kind is constants.SUBPATTERN:
        return _of_sequence(value[3])
    if kind in (constants.MAX_REPEAT, constants.MIN_REPEAT):
        return _of_sequence(value[2]) if value[0] > 0 else None
    if kind is constants.BRANCH:
        found = [_of_sequence(branch) for branch in value[1]]
        return set().union(*(each for each in found if each)) if all(found) else None
    return None


def _weight(texts: set[str]) -> int:
    return min(map(len, texts))
