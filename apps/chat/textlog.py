"""The text of an answer as it grew: any part of it, and when that part came."""

from __future__ import annotations

import bisect
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Piece:
    """Text of an answer; `seq` characters of it end with this piece, `tokens` ids were generated so far.

    `at` is the epoch second at which its first characters came.
    """

    seq: int
    text: str
    tokens: int
    at: float

    @property
    def start(self) -> int:
        """Characters before this piece."""
        return self.seq - len(self.text)


class TextLog:
    """Grows at its end and is read from any character on."""

    def __init__(self) -> None:
        self.length = 0
        self._starts: list[int] = []
        self._parts: list[str] = []
        self._times: list[float] = []

    def append(self, text: str, at: float) -> None:
        """More text, which came at epoch second `at`."""
        if text:
            self._starts.append(self.length)
            self._parts.append(text)
            self._times.append(at)
            self.length += len(text)

    def join(self, piece: Piece) -> None:
        """Append what a piece adds. Pieces may overlap; one that would leave a hole adds nothing."""
        if piece.start <= self.length < piece.seq:
            self.append(piece.text[self.length - piece.start :], piece.at)

    def after(self, seq: int, tokens: int) -> Piece | None:
        """All text after the first `seq` characters; None where there is no more."""
        if seq >= self.length:
            return None
        index = max(0, bisect.bisect_right(self._starts, seq) - 1)
        text = "".join(self._parts[index:])[max(0, seq - self._starts[index]) :]
        return Piece(self.length, text, tokens, self._times[index])

    def whole(self) -> str:
        """All of it."""
        return "".join(self._parts)
