"""What came back for one request, and how the bytes of an answer become arrivals."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

import orjson

from apps.loadtests.domain.records import ERROR, OK, REJECTED
from apps.streaming import triton_errors

# Codes of triton_errors that mean "not now", and HTTP statuses of a gateway or Triton that do.
REFUSALS = frozenset({"overloaded", "rate_limited", "queue_full"})
BUSY_STATUSES = frozenset({429, 503})


@dataclass(slots=True)
class Meter:
    """What arrived since the last look: tokens (messages, where nobody counts them)."""

    tokens: int = 0


@dataclass(slots=True)
class Answer:
    """An answer as it comes. Times are seconds of time.perf_counter; `counts` None: nobody counted."""

    meter: Meter = field(default_factory=Meter)
    sent: float = 0.0
    arrivals: list[float] = field(default_factory=list)
    counts: list[int] | None = field(default_factory=list)
    text: list[str] = field(default_factory=list)
    ended: float = 0.0
    tokens: int | None = None
    prompt_tokens: int | None = None
    result: str = OK
    code: str = ""

    def arrived(self, at: float, tokens: int | None) -> None:
        """A message with content came. One with no token is no arrival."""
        if tokens == 0:
            return
        self.arrivals.append(at)
        self.meter.tokens += 1 if tokens is None else tokens
        if tokens is None:
            self.counts = None
        elif self.counts is not None:
            self.counts.append(tokens)

    def fail(self, code: str, *, busy: bool = False) -> None:
        """The answer is an error; a refusal where the server was only busy. The first reason stays."""
        if self.result == OK:
            self.result = REJECTED if busy or code in REFUSALS else ERROR
            self.code = code[:60]

    @property
    def total(self) -> int | None:
        """Tokens as the server told them, else the sum of what was counted."""
        if self.tokens is not None:
            return self.tokens
        return sum(self.counts) if self.counts is not None else None


class Dialect(Protocol):
    """Reads the events of one kind of server into an answer."""

    def event(self, answer: Answer, data: bytes, at: float) -> None:
        """One `data:` line's content."""
        ...

    def failed(self, answer: Answer, status: int, body: bytes) -> None:
        """A status other than 200 with its body."""
        ...


class TritonEvents:
    """generate_stream. Our model counts its tokens; others carry text alone."""

    def __init__(self, keep_text: bool) -> None:
        self._keep = keep_text

    def event(self, answer: Answer, data: bytes, at: float) -> None:
        """See Dialect."""
        try:
            said: dict[str, Any] = orjson.loads(data)
        except ValueError:
            answer.fail("unreadable")
            return
        error = said.get("error")
        if error is not None:
            answer.fail(triton_errors.explain("", str(error)).code)
            return
        read_outputs(answer, said, at, self._keep)

    def failed(self, answer: Answer, status: int, body: bytes) -> None:
        """See Dialect."""
        try:
            text = str(orjson.loads(body.strip().removeprefix(b"data:").strip()).get("error", ""))
        except (ValueError, AttributeError):
            text = body.decode(errors="replace")
        code = triton_errors.explain("", text).code
        answer.fail(
            code or f"http_{status}",
            busy=status in BUSY_STATUSES and code not in ("not_ready", "engine_died"),
        )


def read_outputs(answer: Answer, said: dict[str, Any], at: float, keep_text: bool) -> None:
    """The outputs of one message of Triton, whatever carried them."""
    text = said.get("text_output")
    count = said.get("token_count")
    if count is not None:
        answer.arrived(at, int(count))
    elif text:
        answer.arrived(at, None)
    if keep_text and text:
        answer.text.append(str(text))
    if said.get("completion_tokens") is not None:
        answer.tokens = int(said["completion_tokens"])
    if said.get("prompt_tokens") is not None:
        answer.prompt_tokens = int(said["prompt_tokens"])


class OpenAIEvents:
    """chat/completions with stream_options.include_usage: tokens are the usage's, messages carry text."""

    def __init__(self, keep_text: bool) -> None:
        self._keep = keep_text

    def event(self, answer: Answer, data: bytes, at: float) -> None:
        """See Dialect."""
        if data == b"[DONE]":
            return
        try:
            said: dict[str, Any] = orjson.loads(data)
        except ValueError:
            answer.fail("unreadable")
            return
        error = said.get("error")
        if error is not None:
            answer.fail(
                str(error.get("code") or error.get("type") or "error") if isinstance(error, dict) else "error"
            )
            return
        for choice in said.get("choices") or ():
            text = (choice.get("delta") or {}).get("content") or choice.get("text")
            if text:
                answer.arrived(at, None)
                if self._keep:
                    answer.text.append(text)
        usage = said.get("usage")
        if usage:
            answer.tokens = usage.get("completion_tokens")
            answer.prompt_tokens = usage.get("prompt_tokens")

    def failed(self, answer: Answer, status: int, body: bytes) -> None:
        """See Dialect."""
        try:
            error = orjson.loads(body).get("error") or {}
            code = str(error.get("code") or error.get("type") or f"http_{status}")
        except (ValueError, AttributeError):
            code = f"http_{status}"
        answer.fail(code, busy=status in BUSY_STATUSES)
