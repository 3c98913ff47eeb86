"""What every upstream of tokens looks like: a request in, deltas and exactly one end out.

Closing the iterator (`aclose`, or cancelling the task that runs it) cancels the request upstream, also while it
still waits. Errors do not escape as exceptions: they are the reason of the end.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

EndReason = Literal["stop", "length", "cancelled", "error"]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a model answers. `http_url` has its scheme, `grpc_url` is host:port."""

    http_url: str
    grpc_url: str
    model_name: str


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How to generate; None leaves the engine's default. All None is greedy and therefore repeatable.

    `top_k` 0 means no limit. `logprobs` is the number of alternatives to report with each token, 0 for the chosen
    token alone, None for no log-probabilities.
    """

    max_tokens: int | None = None
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    seed: int | None = None
    stop: tuple[str, ...] = ()
    bad_words: tuple[str, ...] = ()
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    min_tokens: int | None = None
    logprobs: int | None = None

    @property
    def samples(self) -> bool:
        """Whether any of the values asks for randomness."""
        return self.temperature != 0 and any(
            value is not None for value in (self.temperature, self.top_k, self.top_p, self.seed)
        )


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """A prompt as the engine shall read it (the chat template is rendered already), and how to go on from it.

    `priority` is the class in which it waits where an engine or Triton has a queue by class: 1 (urgent), 2, 3 (low);
    None leaves it to the server.
    """

    prompt: str
    params: SamplingParams = SamplingParams()
    request_id: str = ""
    priority: int | None = None


@dataclass(frozen=True, slots=True)
class AlternativeToken:
    """A token and its natural log-probability; null where it is impossible."""

    token: str
    bytes: tuple[int, ...]
    logprob: float | None
    id: int | None = None


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """The chosen token of one step and the likeliest ones, best first."""

    chosen: AlternativeToken
    top: tuple[AlternativeToken, ...] = ()


@dataclass(frozen=True, slots=True)
class TokenDelta:
    """More text, possibly none. `tokens` counts the ids behind it, null where the engine does not tell.

    `at` is seconds of time.perf_counter.
    """

    text: str
    tokens: int | None
    at: float
    logprobs: tuple[TokenLogprob, ...] | None = None


@dataclass(frozen=True, slots=True)
class StreamError:
    """Why an answer failed. `code` is stable: unreachable, not_ready, overloaded, invalid_request, ...

    `cause` is the id of the diagnosis that the engine's words show, empty where they show none.
    """

    code: str
    sentence: str
    remedy: str = ""
    cause: str = ""

    @property
    def reason(self) -> str:
        """The most precise word for it: the cause where one is known, else the code."""
        return self.cause or self.code


@dataclass(frozen=True, slots=True)
class StreamEnd:
    """The end of an answer, always the last event. Counts are null where the engine does not tell.

    `at` is seconds of time.perf_counter, `error` is set with reason error alone.
    """

    reason: EndReason
    at: float
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    queue_seconds: float | None = None
    error: StreamError | None = None


TokenEvent = TokenDelta | StreamEnd


class TokenSource(Protocol):
    """An upstream."""

    def stream(self, request: GenerationRequest) -> AsyncGenerator[TokenEvent, None]:
        """Deltas, then one StreamEnd. Close it (contextlib.aclosing) to cancel upstream."""

    async def close(self) -> None:
        """Give back the connections."""


@runtime_checkable
class PushingSource(TokenSource, Protocol):
    """An upstream that can also hand over each event where it arrives, without a task of the reader in between."""

    async def push(self, request: GenerationRequest, take: Callable[[TokenEvent], None]) -> None:
        """Give deltas, then one StreamEnd, to `take`. Cancel it to cancel upstream. Raises what `take` raises."""
