"""One running request: what of its prompt is computed, what it has generated, what its caller has not seen yet."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, Protocol

from llamacpp_errors import ModelError
from llamacpp_request import GenerationRequest
from llamacpp_runtime import Entry, Runtime
from llamacpp_sampling import Choice, Sampler
from llamacpp_slots import Slot
from llamacpp_text import TextAssembler

FinishReason = Literal["stop", "length"]


@dataclass(frozen=True, slots=True)
class TokenLogProb:
    """A chosen token, its log-probability and the alternatives: (token id, bytes, log-probability), best first."""

    token: int
    piece: bytes
    log_prob: float
    top: tuple[tuple[int, bytes, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Delta:
    """New text and the number of tokens behind it since the last delta; `log_probs` of them when asked for."""

    text: str
    tokens: int
    log_probs: tuple[TokenLogProb, ...] = ()


@dataclass(frozen=True, slots=True)
class Finished:
    """The end of an answer: the last delta and the totals. `queue_seconds` is from arrival to a slot."""

    delta: Delta
    reason: FinishReason
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    queue_seconds: float
    cumulative_log_prob: float | None = None


class Sink(Protocol):
    """Where one answer goes. Called from the engine's thread (or, before it runs, the caller's); must not block."""

    def delta(self, delta: Delta) -> None:
        """More text."""

    def finished(self, finished: Finished) -> None:
        """The end; nothing follows."""

    def failed(self, error: ModelError) -> None:
        """It ends with an error; nothing follows."""


@dataclass(slots=True)
class Job:
    """A request as it waits: its prompt is tokenised and its length checked. Times are of time.perf_counter."""

    number: int
    request: GenerationRequest
    prompt: list[int]
    max_tokens: int
    sink: Sink
    arrived: float
    cancelled: bool = False


@dataclass(slots=True)
class Sequence:
    """A job in a slot. `computed` prompt tokens are in the cache; `next_token` is chosen and not decoded yet."""

    job: Job
    slot: Slot
    sampler: Sampler
    assembler: TextAssembler
    end_ids: frozenset[int]
    cached: int
    admitted: float
    computed: int = 0
    generated: int = 0
    next_token: int | None = None
    first_token: float | None = None
    last_token: float | None = None
    _unseen: int = 0
    _log_probs: list[TokenLogProb] = field(default_factory=list)
    _log_prob_total: float = 0.0

    @property
    def prefilling(self) -> bool:
        """Whether prompt tokens are still to be computed."""
        return self.computed < len(self.job.prompt)

    @property
    def cache_tokens(self) -> int:
        """Tokens of this request that the cache holds now."""
        return len(self.slot.tokens)

    def prompt_entries(self, room: int) -> list[Entry]:
        """The next prompt tokens, at most `room`; the last of all wants logits.

        One lone token is never left over: a step of one token runs through another kernel (see SlotTable.place).
        """
        prompt = self.job.prompt
        left = len(prompt) - self.computed
        count = min(left, room)
        if left - count == 1 and count > 1:
            count -= 1
        last = len(prompt) - 1
        number = self.slot.number
        span = range(self.computed, self.computed + count)
        return [Entry(prompt[position], position, number, position == last) for position in span]

    def decode_entry(self) -> Entry:
        """The chosen token, to be computed in the next step."""
        assert self.next_token is not None  # noqa: S101 - the scheduler's invariant, not input
        return Entry(self.next_token, self.cache_tokens, self.slot.number, True)

    def decoded(self, entries: list[Entry]) -> None:
        """The cache now holds these."""
        self.slot.tokens.extend(entry.token for entry in entries)
        if self.prefilling:
            self.computed += len(entries)

    def accept(self, choice: Choice, runtime: Runtime, now: float) -> Finished | None:
        """Take a chosen token; sends a delta, or returns the end that it brings."""
        self.generated += 1
        self._unseen += 1
        self.first_token = self.first_token or now
        self.last_token = now
        if self.job.request.return_log_probs:
            self._note_log_prob(choice, runtime)
        if choice.token in self.end_ids:
            return self._finish("stop", self.assembler.finish())
        text = self.assembler.feed(runtime.piece(choice.token))
        if self.assembler.stopped:
            return self._finish("stop", text)
        if self.generated >= self.job.max_tokens:
            rest = self.assembler.finish()
            return self._finish("stop" if self.assembler.stopped else "length", text + rest)
        self.next_token = choice.token
        if text:
            self.job.sink.delta(self._delta(text))
        return None

    def _note_log_prob(self, choice: Choice, runtime: Runtime) -> None:
        log_prob = choice.log_prob or 0.0
        self._log_prob_total += log_prob
        top = tuple((token, runtime.piece(token), value) for token, value in choice.top)
        self._log_probs.append(TokenLogProb(choice.token, runtime.piece(choice.token), log_prob, top))

    def _delta(self, text: str) -> Delta:
        delta = Delta(text, self._unseen, tuple(self._log_probs))
        self._unseen = 0
        self._log_probs.clear()
        return delta

    def _finish(self, reason: FinishReason, text: str) -> Finished:
        return Finished(
            delta=self._delta(text),
            reason=reason,
            prompt_tokens=len(self.job.prompt),
            completion_tokens=self.generated,
            cached_tokens=self.cached,
            queue_seconds=self.admitted - self.job.arrived,
            cumulative_log_prob=self._log_prob_total if self.job.request.return_log_probs else None,
        )
