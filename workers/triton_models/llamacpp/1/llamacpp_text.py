"""From token bytes to text that can be shown: characters are never cut, stop words never seen."""

from __future__ import annotations

import codecs


class TextAssembler:
    """Turns the bytes of one answer's tokens into deltas.

    Bytes of an unfinished character wait for the rest of it. Text that may be the beginning of a stop word waits
    until it is known not to be one. Both come out at `finish`, an unfinished character as one U+FFFD.
    """

    def __init__(self, stop_words: tuple[str, ...] = ()) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._stop_words = stop_words
        self._longest = max(map(len, stop_words), default=0)
        self._held = ""
        self.stopped = False

    def feed(self, piece: bytes) -> str:
        """Add one token's bytes; returns the text that is safe to show, often empty.

        `stopped` is true when a stop word was completed: its text and all that follows it is dropped.
        """
        if self.stopped:
            return ""
        text = self._decoder.decode(piece)
        return self._pass(text) if text else ""

    def finish(self) -> str:
        """The text still held back; call once, after the last token."""
        if self.stopped:
            return ""
        shown = self._pass(self._decoder.decode(b"", final=True))
        if self.stopped:
            return shown
        held, self._held = self._held, ""
        return shown + held

    def _pass(self, text: str) -> str:
        if not self._stop_words:
            return text
        self._held += text
        at = min((place for word in self._stop_words if (place := self._held.find(word)) >= 0), default=-1)
        if at >= 0:
            self.stopped = True
            shown, self._held = self._held[:at], ""
            return shown
        keep = self._possible_stop()
        shown, self._held = self._held[: len(self._held) - keep], self._held[len(self._held) - keep :]
        return shown

    def _possible_stop(self) -> int:
        """Characters at the end that may be the beginning of a stop word."""
        for size in range(min(self._longest - 1, len(self._held)), 0, -1):
            tail = self._held[-size:]
            if any(word.startswith(tail) for word in self._stop_words):
                return size
        return 0
