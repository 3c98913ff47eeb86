"""An answer as it grew: its text from any character on, and each of the engine's messages with its time."""

from __future__ import annotations

import bisect
from dataclasses import dataclass
from typing import Any, NamedTuple


class Chance(NamedTuple):
    """A token with its natural log-probability, null where it is impossible, and the likeliest ones instead of it."""

    token: str
    logprob: float | None
    top: tuple[tuple[str, float | None], ...] = ()


class Mark(NamedTuple):
    """One message of the engine. It came `ms` milliseconds after the question was sent to it.

    `tokens` ids came with it, null where the engine does not count them; `characters` of the answer were complete
    with it, 0 where it carried only a part of one. `chances` has one entry a token where they were asked for.
    """

    ms: float
    tokens: int | None
    characters: int
    chances: tuple[Chance, ...] = ()


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of an answer: `seq` characters of it end with `text`, `tokens` ids were generated so far.

    `marks` are those from number `first_mark` on; a piece may have marks and no text.
    """

    seq: int
    text: str
    tokens: int
    first_mark: int = 0
    marks: tuple[Mark, ...] = ()

    @property
    def start(self) -> int:
        """Characters before this piece."""
        return self.seq - len(self.text)


class TextLog:
    """Grows at its end and is read from any character and mark on."""

    def __init__(self) -> None:
        self.length = 0
        self.marks: list[Mark] = []
        self._starts: list[int] = []
        self._parts: list[str] = []

    def append(self, text: str) -> None:
        """More text."""
        if text:
            self._starts.append(self.length)
            self._parts.append(text)
            self.length += len(text)

    def join(self, piece: Piece) -> None:
        """Append what a piece adds. Pieces may overlap; one that would leave a hole adds nothing."""
        if piece.start <= self.length < piece.seq:
            self.append(piece.text[self.length - piece.start :])
        have = len(self.marks) - piece.first_mark
        if 0 <= have < len(piece.marks):
            self.marks.extend(piece.marks[have:])

    def has_after(self, seq: int, mark: int) -> bool:
        """Whether anything came after the first `seq` characters and `mark` marks."""
        return seq < self.length or mark < len(self.marks)

    def after(self, seq: int, mark: int, tokens: int) -> Piece | None:
        """All that came after the first `seq` characters and `mark` marks; None where there is no more."""
        if not self.has_after(seq, mark):
            return None
        return Piece(max(seq, self.length), self._text_after(seq), tokens, mark, tuple(self.marks[mark:]))

    def whole(self) -> str:
        """All of the text."""
        return "".join(self._parts)

    def _text_after(self, seq: int) -> str:
        if seq >= self.length:
            return ""
        last = len(self._parts) - 1
        if self._starts[last] == seq:
            # What nearly every read asks for: the newest part alone.
            return self._parts[last]
        index = max(0, bisect.bisect_right(self._starts, seq) - 1)
        return "".join(self._parts[index:])[seq - self._starts[index] :]


def mark_json(mark: Mark) -> list[Any]:
    """[ms, tokens, characters], and the chances as a fourth where there are some."""
    told: list[Any] = [mark.ms, mark.tokens, mark.characters]
    if mark.chances:
        told.append(
            [
                {"token": one.token, "logprob": one.logprob, "top": [list(other) for other in one.top]}
                for one in mark.chances
            ]
        )
    return told


def read_mark(told: list[Any]) -> Mark:
    """The inverse of mark_json."""
    chances = tuple(
        Chance(one["token"], one["logprob"], tuple((token, value) for token, value in one["top"]))
        for one in (told[3] if len(told) > 3 else ())
    )
    return Mark(told[0], told[1], told[2], chances)
