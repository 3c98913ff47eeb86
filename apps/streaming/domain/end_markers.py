"""End markers at the end of a text whose writer is not known: an OpenAI-style server that should have cut them off.

Unlike StopFilter this lets a marker stand where text follows it: `</s>` ends the answers of some models, and is HTML
in those of others.
"""

from __future__ import annotations

import re

from apps.streaming.domain.text_stream import END_MARKERS

# What a model writes behind an end marker when nobody stops it: the next turn of the conversation.
TURNS = ("<|im_start|>", "<|start_header_id|>", "<start_of_turn>", "<|begin_of_text|>", "<|start|>")
_MARKER = re.compile("|".join(map(re.escape, END_MARKERS)))
_RUN = re.compile(rf"(?:\s|{_MARKER.pattern})*")
_FIRST = frozenset(marker[0] for marker in END_MARKERS)


class EndMarkerFilter:
    """Ends a text before markers that close it, also when they are spread over pieces. `ended` says that one did."""

    def __init__(self) -> None:
        self._held = ""
        self.ended = False

    def feed(self, text: str) -> str:
        """The text that cannot belong to an end any more."""
        if self.ended or (not self._held and _FIRST.isdisjoint(text)):
            return "" if self.ended else text
        rest, given = self._held + text, ""
        self._held = ""
        while (found := _MARKER.search(rest)) is not None:
            behind = rest[_run_end(rest, found.end()) :]
            if not behind or any(word.startswith(behind) for word in (*TURNS, *END_MARKERS)):
                self._held = rest[found.start() :]
                return given + rest[: found.start()]
            if behind.startswith(TURNS):
                self.ended = True
                return given + rest[: found.start()]
            given, rest = given + rest[: found.end()], rest[found.end() :]
        keep = _possible(rest)
        self._held = rest[len(rest) - keep :]
        return given + rest[: len(rest) - keep]

    def flush(self) -> str:
        """What was held and is no end."""
        held, self._held = self._held, ""
        if _MARKER.match(held):
            self.ended = True
            return ""
        return held


def _run_end(text: str, start: int) -> int:
    found = _RUN.match(text, start)
    return found.end() if found else start


def _possible(text: str) -> int:
    """Letters at the end of a text with which a marker may begin."""
    for size in range(min(max(map(len, END_MARKERS)) - 1, len(text)), 0, -1):
        if any(marker.startswith(text[-size:]) for marker in END_MARKERS):
            return size
    return 0
