"""What two texts share, word by word. Plain Python, no row is touched."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from typing import Literal

# A word with the spaces behind it, or a single other character: a changed comma is no changed word.
_PIECES = re.compile(r"\s+|\w+|[^\w\s]", re.UNICODE)
# Beyond this many pieces the exact comparison, quadratic at worst, is done by lines first.
EXACT_PIECES = 6_000
Kind = Literal["same", "added", "removed"]


@dataclass(frozen=True, slots=True)
class Segment:
    """A run of text that is the same in both, only in the other one (`added`), or only in the first (`removed`)."""

    kind: Kind
    text: str


def segments(first: str, other: str) -> list[Segment]:
    """How `other` differs from `first`: same and added joined are `other`, same and removed are `first`."""
    if first == other:
        return [Segment("same", first)] if first else []
    before, after = _PIECES.findall(first), _PIECES.findall(other)
    if max(len(before), len(after)) > EXACT_PIECES:
        before, after = first.splitlines(keepends=True), other.splitlines(keepends=True)
    found: list[Segment] = []
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
    for operation, i1, i2, j1, j2 in matcher.get_opcodes():
        if operation == "equal":
            found.append(Segment("same", "".join(before[i1:i2])))
            continue
        if i2 > i1:
            found.append(Segment("removed", "".join(before[i1:i2])))
        if j2 > j1:
            found.append(Segment("added", "".join(after[j1:j2])))
    return _joined(found)


def likeness(found: list[Segment]) -> float:
    """Share of the text that both have, 0 to 1; two empty texts are the same. By characters."""
    whole = sum(len(segment.text) * (2 if segment.kind == "same" else 1) for segment in found)
    same = 2 * sum(len(segment.text) for segment in found if segment.kind == "same")
    return same / whole if whole else 1.0


def _joined(found: list[Segment]) -> list[Segment]:
    """Single spaces between two changes go with them: a sentence that was written anew is one change, not ten."""
    result: list[Segment] = []
    removed, added = "", ""

    def flush() -> None:
        nonlocal removed, added
        if removed:
            result.append(Segment("removed", removed))
        if added:
            result.append(Segment("added", added))
        removed, added = "", ""

    for index, segment in enumerate(found):
        if segment.kind == "removed":
            removed += segment.text
        elif segment.kind == "added":
            added += segment.text
        elif segment.text.isspace() and (removed or added) and index + 1 < len(found):
            removed += segment.text
            added += segment.text
        else:
            flush()
            result.append(segment)
    flush()
    return result
