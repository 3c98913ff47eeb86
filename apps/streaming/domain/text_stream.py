"""From what an engine sends to text that can be shown, piece by piece.

Engines differ: token bytes, sentencepiece pieces, text deltas, or the whole text so far in each message; some repeat
the prompt, some leave end markers in. Each class here takes care of one of these, `TextStream` puts them together.
They all share two rules: what was given out is never taken back, and `flush` gives out what was still held.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

REPLACEMENT = "\ufffd"
# sentencepiece writes a space as this character, and a byte without a character of its own as <0xNN>.
SPACE_MARK = "\u2581"
SURROGATE = re.compile("[\ud800-\udfff]")
BYTE_PIECE = re.compile(r"<0x([0-9A-Fa-f]{2})>\Z")
# What models of the common families write at the end of an answer. A checkpoint's own eos token is added to these.
END_MARKERS = (
    "<|im_end|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end_of_text|>",
    "<|endoftext|>",
    "<|end|>",
    "<|return|>",
    "<end_of_turn>",
    "<eos>",
    "</s>",
    "<\uff5cend\u2581of\u2581sentence\uff5c>",
    "<|END_OF_TURN_TOKEN|>",
    "<|end_of_sentence|>",
)


class Utf8Stream:
    """Text out of token bytes. A character that is cut over tokens waits for the rest of it.

    Bytes that can never become a character are U+FFFD at once; what is unfinished at `flush` is one U+FFFD.
    """

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, piece: bytes) -> str:
        """The text that is complete now."""
        return self._decoder.decode(piece)

    def flush(self) -> str:
        """What is left."""
        text = self._decoder.decode(b"", final=True)
        self._decoder.reset()
        return text


class HalvesStream:
    """Text in which a character beyond the first plane came as its two halves, as JSON writes it, in two messages.

    A half whose other one never comes is U+FFFD.
    """

    def __init__(self) -> None:
        self._held = ""

    def feed(self, text: str) -> str:
        """The text with its halves put together."""
        text = self._held + text
        self._held = ""
        if text and "\ud800" <= text[-1] <= "\udbff":
            text, self._held = text[:-1], text[-1]
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")

    def flush(self) -> str:
        """What is left."""
        held, self._held = self._held, ""
        return REPLACEMENT if held else ""


class RawTextStream:
    """Text out of what a server sends as an answer's text: letters, bytes cut anywhere, halves of characters.

    `accumulated`: each message has the whole text so far, so nothing is carried from one to the next; what is
    unfinished at its end reads as U+FFFD.
    """

    def __init__(self, accumulated: bool = False) -> None:
        self._accumulated = accumulated
        self._utf8 = Utf8Stream()
        self._halves = HalvesStream()
        self._pending = False

    def feed(self, value: str | bytes) -> str:
        """The text that is complete now."""
        if isinstance(value, str) and not self._pending and not SURROGATE.search(value):
            return value
        if self._accumulated:
            if isinstance(value, bytes):
                return value.decode(errors="replace")
            return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        self._pending = True
        if isinstance(value, bytes):
            return self._halves.flush() + self._utf8.feed(value)
        return self._utf8.flush() + self._halves.feed(value)

    def flush(self) -> str:
        """What is left."""
        return self._utf8.flush() + self._halves.flush()


class PieceStream:
    """Text out of sentencepiece pieces, each read in the context of those before it.

    The mark at the beginning of a piece is a space, but for the first piece of a text; pieces without it go on with
    the word; byte pieces are bytes. `after_text`: the answer continues a text that did not end in a space (a raw
    completion), so that the first piece keeps its space.
    """

    def __init__(self, after_text: bool = False) -> None:
        self._utf8 = Utf8Stream()
        self._at_start = not after_text

    def feed(self, piece: str) -> str:
        """The text that this piece completes."""
        byte = BYTE_PIECE.match(piece)
        data = bytes([int(byte[1], 16)]) if byte else piece.replace(SPACE_MARK, " ").encode()
        if self._at_start and piece:
            self._at_start = False
            data = data.removeprefix(b" ") if piece.startswith(SPACE_MARK) else data
        return self._utf8.feed(data)

    def flush(self) -> str:
        """What is left."""
        return self._utf8.flush()


class AccumulatedStream:
    """Deltas out of messages that each carry the whole text so far.

    U+FFFD at the end is a character whose bytes have not all come yet: it is held back until they have. Where an
    engine changes text that was already given out, only what lies beyond the place is new; nothing comes twice.
    """

    def __init__(self) -> None:
        self._whole = ""
        self._given = 0

    def feed(self, whole: str) -> str:
        """What is new and complete in the text so far."""
        self._whole = whole
        return self._give(len(whole.rstrip(REPLACEMENT)))

    def flush(self) -> str:
        """What is left; several U+FFFD of one cut character come as one."""
        kept = self._whole.rstrip(REPLACEMENT)
        if len(kept) < len(self._whole):
            self._whole = kept + REPLACEMENT
        return self._give(len(self._whole))

    def _give(self, until: int) -> str:
        if until <= self._given:
            return ""
        new, self._given = self._whole[self._given : until], until
        return new


class EchoFilter:
    """Takes the prompt out of the beginning of an answer, where an engine repeats it.

    `echoes` are the forms that the repetition may have: the prompt as it was sent, and as it reads without its
    special tokens. Only a complete one is removed; an answer that merely begins alike is given out whole.
    """

    def __init__(self, echoes: tuple[str, ...]) -> None:
        self._echoes = tuple(sorted({echo for echo in echoes if echo}, key=len, reverse=True))
        self._held = ""
        self._open = bool(self._echoes)

    def feed(self, text: str) -> str:
        """The text behind the echo, or nothing while it may still be one."""
        if not self._open:
            return text
        self._held += text
        if any(len(echo) > len(self._held) and echo.startswith(self._held) for echo in self._echoes):
            return ""
        return self.flush()

    def flush(self) -> str:
        """What is held, without the echo if it is complete."""
        if not self._open:
            return ""
        self._open = False
        held, self._held = self._held, ""
        for echo in self._echoes:
            if held.startswith(echo):
                return held[len(echo) :]
        return held


class StopFilter:
    """Ends a text before the first of `words`, also when it is spread over pieces; no part of it comes through.

    `found` is the word that ended the text, empty while none did. Among words that begin at the same place the
    longest counts as found.
    """

    def __init__(self, words: tuple[str, ...]) -> None:
        self._words = tuple(sorted({word for word in words if word}, key=len, reverse=True))
        self._held = ""
        self.found = ""
        # Nearly every piece of a text holds no letter that a word begins with; only the others are looked at closely.
        self._first = frozenset(word[0] for word in self._words)
        self._starts = re.compile(f"[{re.escape(''.join(sorted(self._first)))}]") if self._words else None

    def feed(self, text: str) -> str:
        """The text that cannot belong to a word any more."""
        if self.found:
            return ""
        if self._starts is None or (not self._held and self._starts.search(text) is None):
            return text
        self._held += text
        places = [(self._held.find(word), word) for word in self._words]
        hits = [(place, word) for place, word in places if place >= 0]
        if hits:
            place, self.found = min(hits, key=lambda hit: hit[0])
            given, self._held = self._held[:place], ""
            return given
        keep = self._possible()
        given = self._held[: len(self._held) - keep]
        self._held = self._held[len(self._held) - keep :]
        return given

    def flush(self) -> str:
        """What was held as the possible beginning of a word and did not become one."""
        held, self._held = self._held, ""
        return "" if self.found else held

    def _possible(self) -> int:
        longest = len(self._words[0]) - 1
        for size in range(min(longest, len(self._held)), 0, -1):
            tail = self._held[-size:]
            if tail[0] in self._first and any(word.startswith(tail) for word in self._words):
                return size
        return 0


class _Source(Protocol):
    def feed(self, text: str, /) -> str: ...
    def flush(self) -> str: ...


class _Plain:
    """Deltas as they come."""

    def feed(self, text: str) -> str:
        return text

    def flush(self) -> str:
        return ""


@dataclass(frozen=True, slots=True)
class StreamRules:
    """What is known of an upstream and asked of its text.

    `accumulated`: each message carries the whole text so far. `echoes`: see EchoFilter, empty where the prompt is
    never repeated. `end_markers` and `stop` end the text; neither is shown.
    """

    accumulated: bool = False
    echoes: tuple[str, ...] = ()
    end_markers: tuple[str, ...] = END_MARKERS
    stop: tuple[str, ...] = ()


class TextStream:
    """Deltas of one answer as a person may see them.

    `ended` is true once an end marker or stop string was met: what follows is not shown and the upstream can be
    closed. `stopped_by` is the stop string that did it, empty for an end marker.
    """

    def __init__(self, rules: StreamRules | None = None) -> None:
        rules = rules or StreamRules()
        self._source: _Source = AccumulatedStream() if rules.accumulated else _Plain()
        self._echo = EchoFilter(rules.echoes)
        self._markers = frozenset(rules.end_markers)
        self._stop = StopFilter((*rules.end_markers, *rules.stop))

    @property
    def ended(self) -> bool:
        """Whether the text is over."""
        return bool(self._stop.found)

    @property
    def stopped_by(self) -> str:
        """The stop string that ended the text."""
        return "" if self._stop.found in self._markers else self._stop.found

    def feed(self, text: str) -> str:
        """Take the text of one message; returns what can be shown now."""
        return self._stop.feed(self._echo.feed(self._source.feed(text)))

    def flush(self) -> str:
        """Call once at the end; returns what was held back."""
        rest = self._echo.feed(self._source.flush()) + self._echo.flush()
        return self._stop.feed(rest) + self._stop.flush()


def echo_forms(prompt: str, special_tokens: Iterable[str] = ()) -> tuple[str, ...]:
    """The forms in which an engine may repeat a prompt: as sent, and without its special tokens."""
    bare = prompt
    for token in set(special_tokens):
        bare = bare.replace(token, "")
    return (prompt, bare, prompt.lstrip(), bare.lstrip())
