"""The text of a chat completion's chunks as a person may see it: the counterpart of streaming's MessageReader."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import orjson

from apps.gateway.upstreams.openai import Facts
from apps.streaming.domain.end_markers import EndMarkerFilter
from apps.streaming.domain.text_stream import AccumulatedStream, EchoFilter, echo_forms
from apps.streaming.domain.thinking import MARKS
from apps.streaming.token_source import (
    AlternativeToken,
    EndReason,
    StreamEnd,
    StreamError,
    TokenDelta,
    TokenEvent,
    TokenLogprob,
)

# Fields in which servers put what a model thinks; here it stands before the answer, as models themselves write it.
_THOUGHTS = ("reasoning_content", "reasoning")
_OPENING, _CLOSING = f"{MARKS[0][0]}\n", f"\n{MARKS[0][1]}\n\n"
_SPECIAL = ("<|im_start|>", "<|im_end|>")


class ChunkReader:
    """Events out of chunks. A chunk's `delta` is more text; its `message`, as some servers send, the whole so far.

    Only a prompt in ChatML, the format of most such servers' models, is known to be an echo: which template a foreign
    server has, nobody tells.
    """

    def __init__(self, messages: Sequence[Mapping[str, Any]]) -> None:
        self._echo = EchoFilter(echo_forms(chatml(messages), _SPECIAL))
        self._ends = EndMarkerFilter()
        self._whole: AccumulatedStream | None = None
        self._letters = 0
        self._thinks = False
        self._tokens: int | None = None

    @property
    def ended(self) -> bool:
        """Whether the text is over, whatever else comes."""
        return self._ends.ended

    def feed_events(self, data: bytes, at: float) -> list[TokenEvent]:
        """The events of what ExternalAnswer.read gave."""
        return [event for one in data.split(b"\n\n") if one for event in self.feed(one[len(b"data: ") :], at)]

    def feed(self, payload: bytes, at: float) -> list[TokenEvent]:
        """The events of one chunk, or of a whole answer."""
        try:
            said = orjson.loads(payload)
        except ValueError:
            said = json.loads(payload)
        choices = said.get("choices")
        first = choices[0] if isinstance(choices, list) and choices else None
        if not isinstance(first, dict) or self.ended:
            return []
        text = self._shown(self._text_of(first))
        chances = read_logprobs(first.get("logprobs"))
        if not text and not chances:
            return []
        tokens = len(chances) if chances else None
        if tokens is not None:
            self._tokens = (self._tokens or 0) + tokens
        return [TokenDelta(text, tokens, at, chances or None)]

    def finish(self, facts: Facts, rest: str, error: StreamError | None, at: float) -> list[TokenEvent]:
        """What was held back, and the end."""
        if self._whole is not None:
            rest += self._whole.flush()
        if self._thinks:
            rest += _CLOSING.rstrip()
        left = self._ends.feed(self._echo.feed(rest) + self._echo.flush()) + self._ends.flush()
        events: list[TokenEvent] = [TokenDelta(left, None, at)] if left else []
        reason: EndReason = "length" if facts.finish_reason == "length" and not self.ended else "stop"
        told = facts.completion_tokens if facts.completion_tokens is not None else self._tokens
        end = StreamEnd(
            "error" if error is not None else reason,
            at,
            prompt_tokens=facts.prompt_tokens,
            completion_tokens=told,
            cached_tokens=facts.cached_tokens,
            error=error,
        )
        return [*events, end]

    def _text_of(self, choice: Mapping[str, Any]) -> str:
        delta, message = choice.get("delta"), choice.get("message")
        if isinstance(message, dict) and not (isinstance(delta, dict) and delta.get("content")):
            return self._thought(message, whole=True) + self._gain(_string(message.get("content")))
        if not isinstance(delta, dict):
            return ""
        thought = self._thought(delta)
        said = _string(delta.get("content")) or _string(delta.get("refusal"))
        self._letters += len(said)
        return thought + self._closed(said)

    def _gain(self, whole: str) -> str:
        """What is new in the whole text so far; what came as deltas before counts as given."""
        if self._whole is None:
            self._whole = AccumulatedStream()
            return self._closed(self._whole.feed(whole)[self._letters :])
        return self._closed(self._whole.feed(whole))

    def _thought(self, part: Mapping[str, Any], whole: bool = False) -> str:
        said = next((found for name in _THOUGHTS if (found := _string(part.get(name)))), "")
        if not said or (whole and (self._thinks or self._letters or self._whole is not None)):
            return ""
        opening = "" if self._thinks else _OPENING
        self._thinks = True
        return opening + said

    def _closed(self, said: str) -> str:
        if not said or not self._thinks:
            return said
        self._thinks = False
        return _CLOSING + said

    def _shown(self, text: str) -> str:
        return self._ends.feed(self._echo.feed(text)) if text else ""


def chatml(messages: Iterable[Mapping[str, Any]]) -> str:
    """A conversation in ChatML, up to where the assistant answers."""
    turns = [f"<|im_start|>{one['role']}\n{one['content']}<|im_end|>\n" for one in messages]
    return f"{''.join(turns)}<|im_start|>assistant\n"


def read_logprobs(found: Any) -> tuple[TokenLogprob, ...]:
    """`logprobs` of a choice; empty where there are none, or none that can be read."""
    listed = found.get("content") if isinstance(found, dict) else None
    if not isinstance(listed, list):
        return ()
    return tuple(
        TokenLogprob(
            _alternative(one),
            tuple(
                _alternative(other) for other in _listed(one.get("top_logprobs")) if isinstance(other, dict)
            ),
        )
        for one in listed
        if isinstance(one, dict)
    )


def _alternative(value: Mapping[str, Any]) -> AlternativeToken:
    chance = value.get("logprob")
    number = float(chance) if isinstance(chance, int | float) and not isinstance(chance, bool) else None
    raw = tuple(one for one in _listed(value.get("bytes")) if isinstance(one, int))
    return AlternativeToken(_string(value.get("token")), raw, number)


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _string(value: Any) -> str:
    return value if isinstance(value, str) else ""
