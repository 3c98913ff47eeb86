"""Answers as OpenAI's API has them: chunks of a stream, and whole ones. What a token costs is written once a request.

A writer belongs to one answer. Everything around a piece of text is bytes made beforehand, so that a token costs one
JSON string and one concatenation.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from typing import Any, Protocol

import orjson

from apps.streaming.token_source import AlternativeToken, StreamEnd, TokenDelta, TokenLogprob

DONE = b"data: [DONE]\n\n"
JSON = b"application/json"


class Writer(Protocol):
    """Events of a stream as bytes, or one whole answer."""

    answer_id: str

    def opening(self) -> bytes:
        """What stands before the first text."""

    def delta(self, delta: TokenDelta) -> bytes:
        """One piece of text."""

    def ending(self, end: StreamEnd) -> bytes:
        """The reason it ended, its counts where they were asked for, and the end mark."""

    def whole(self, text: str, logprobs: Sequence[TokenLogprob], end: StreamEnd) -> bytes:
        """The answer as one JSON object."""


class ChatWriter:
    """chat.completion and chat.completion.chunk."""

    def __init__(self, model: str, include_usage: bool) -> None:
        self.answer_id = f"chatcmpl-{secrets.token_hex(12)}"
        self._model, self._created, self._include_usage = model, int(time.time()), include_usage
        head = orjson.dumps(
            {
                "id": self.answer_id,
                "object": "chat.completion.chunk",
                "created": self._created,
                "model": model,
                "system_fingerprint": None,
            }
        )
        self._before = b"data: " + head[:-1] + b',"choices":['
        self._after = b'],"usage":null}\n\n' if include_usage else b"]}\n\n"
        self._text_before = self._before + b'{"index":0,"delta":{"content":'
        self._text_after = b'},"logprobs":null,"finish_reason":null}' + self._after

    def opening(self) -> bytes:
        """The role."""
        role = b'{"index":0,"delta":{"role":"assistant","content":"","refusal":null},"logprobs":null,'
        return self._before + role + b'"finish_reason":null}' + self._after

    def delta(self, delta: TokenDelta) -> bytes:
        """One piece of text, with its log-probabilities if there are any."""
        text = orjson.dumps(delta.text)
        if delta.logprobs is None:
            return self._text_before + text + self._text_after
        told = orjson.dumps(chat_logprobs(delta.logprobs))
        return b'%b%b},"logprobs":%b,"finish_reason":null}%b' % (
            self._text_before,
            text,
            told,
            self._after,
        )

    def ending(self, end: StreamEnd) -> bytes:
        """Finish reason, usage where it was asked for, [DONE]."""
        reason = b'{"index":0,"delta":{},"logprobs":null,"finish_reason":"%b"}' % finish_reason(end).encode()
        usage = b""
        if self._include_usage:
            usage = self._before + b'],"usage":' + orjson.dumps(usage_of(end)) + b"}\n\n"
        return self._before + reason + self._after + usage + DONE

    def whole(self, text: str, logprobs: Sequence[TokenLogprob], end: StreamEnd) -> bytes:
        """A chat.completion."""
        message = {"role": "assistant", "content": text, "refusal": None}
        choice = {
            "index": 0,
            "message": message,
            "logprobs": chat_logprobs(logprobs) if logprobs else None,
            "finish_reason": finish_reason(end),
        }
        return orjson.dumps(
            {
                "id": self.answer_id,
                "object": "chat.completion",
                "created": self._created,
                "model": self._model,
                "system_fingerprint": None,
                "choices": [choice],
                "usage": usage_of(end),
            }
        )


class CompletionWriter:
    """text_completion, streamed and whole."""

    def __init__(self, model: str, include_usage: bool) -> None:
        self.answer_id = f"cmpl-{secrets.token_hex(12)}"
        self._model, self._created, self._include_usage = model, int(time.time()), include_usage
        self._letters = 0
        head = orjson.dumps(
            {
                "id": self.answer_id,
                "object": "text_completion",
                "created": self._created,
                "model": model,
                "system_fingerprint": None,
            }
        )
        self._before = b"data: " + head[:-1] + b',"choices":['
        self._after = b'],"usage":null}\n\n' if include_usage else b"]}\n\n"
        self._text_before = self._before + b'{"index":0,"text":'
        self._text_after = b',"logprobs":null,"finish_reason":null}' + self._after

    def opening(self) -> bytes:
        """Completions begin with their text."""
        return b""

    def delta(self, delta: TokenDelta) -> bytes:
        """One piece of text, with its log-probabilities if there are any."""
        text = orjson.dumps(delta.text)
        if delta.logprobs is None:
            return self._text_before + text + self._text_after
        told = orjson.dumps(completion_logprobs(delta.logprobs, self._letters))
        self._letters += sum(len(one.chosen.token) for one in delta.logprobs)
        return b'%b%b,"logprobs":%b,"finish_reason":null}%b' % (
            self._text_before,
            text,
            told,
            self._after,
        )

    def ending(self, end: StreamEnd) -> bytes:
        """Finish reason, usage where it was asked for, [DONE]."""
        reason = b'{"index":0,"text":"","logprobs":null,"finish_reason":"%b"}' % finish_reason(end).encode()
        usage = b""
        if self._include_usage:
            usage = self._before + b'],"usage":' + orjson.dumps(usage_of(end)) + b"}\n\n"
        return self._before + reason + self._after + usage + DONE

    def whole(self, text: str, logprobs: Sequence[TokenLogprob], end: StreamEnd) -> bytes:
        """A text_completion."""
        choice = {
            "index": 0,
            "text": text,
            "logprobs": completion_logprobs(logprobs, 0) if logprobs else None,
            "finish_reason": finish_reason(end),
        }
        return orjson.dumps(
            {
                "id": self.answer_id,
                "object": "text_completion",
                "created": self._created,
                "model": self._model,
                "system_fingerprint": None,
                "choices": [choice],
                "usage": usage_of(end),
            }
        )


def finish_reason(end: StreamEnd) -> str:
    """OpenAI's word: length where the bound on tokens ended the text, stop otherwise."""
    return "length" if end.reason == "length" else "stop"


def usage_of(end: StreamEnd) -> dict[str, Any] | None:
    """Token counts; null where the engine does not tell both, as a guess would be billed."""
    if end.prompt_tokens is None or end.completion_tokens is None:
        return None
    usage: dict[str, Any] = {
        "prompt_tokens": end.prompt_tokens,
        "completion_tokens": end.completion_tokens,
        "total_tokens": end.prompt_tokens + end.completion_tokens,
    }
    if end.cached_tokens is not None:
        usage["prompt_tokens_details"] = {"cached_tokens": end.cached_tokens}
    return usage


def chat_logprobs(logprobs: Sequence[TokenLogprob]) -> dict[str, Any]:
    """The chat API's form: one entry a token, with its alternatives."""
    content = [
        {**_token(one.chosen), "top_logprobs": [_token(other) for other in one.top]} for one in logprobs
    ]
    return {"content": content, "refusal": None}


def completion_logprobs(logprobs: Sequence[TokenLogprob], letters: int) -> dict[str, Any]:
    """The completions API's form: parallel lists; `letters` came before."""
    offsets: list[int] = []
    for one in logprobs:
        offsets.append(letters)
        letters += len(one.chosen.token)
    return {
        "tokens": [one.chosen.token for one in logprobs],
        "token_logprobs": [one.chosen.logprob for one in logprobs],
        "top_logprobs": [{other.token: other.logprob for other in one.top} for one in logprobs],
        "text_offset": offsets,
    }


def _token(token: AlternativeToken) -> dict[str, Any]:
    # Clients expect a number; an impossible token has none.
    logprob = -9999.0 if token.logprob is None else token.logprob
    return {"token": token.token, "logprob": logprob, "bytes": list(token.bytes)}
