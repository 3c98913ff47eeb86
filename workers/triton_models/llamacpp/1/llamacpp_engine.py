"""Continuous batching: one thread that admits, composes steps, decodes them and hands the tokens out.

Each step holds one token of every sequence that generates and, up to a budget, prompt tokens of those that begin.
A request joins as soon as a slot is free and leaves with its last token; nobody waits for a batch to end. Strategy
`none` is the same engine with one request at a time.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from llamacpp_errors import Cancelled, EngineFailure, InvalidRequest, ModelError, ShuttingDown
from llamacpp_measures import Measures
from llamacpp_queue import WaitingQueue
from llamacpp_request import GenerationRequest, TokenizeRequest
from llamacpp_runtime import Entry, Runtime
from llamacpp_sampling import Choice, Sampler
from llamacpp_sequence import Job, Sequence, Sink
from llamacpp_settings import Settings
from llamacpp_slots import SlotTable
from llamacpp_text import TextAssembler

# After so many failed steps in a row the engine is taken for broken and refuses work.
FAILURES_UNTIL_BROKEN = 3


@dataclass(slots=True)
class Step:
    """The tokens of one decode and which sequence each share belongs to, in the order of the entries."""

    entries: list[Entry] = field(default_factory=list)
    shares: list[tuple[Sequence, list[Entry]]] = field(default_factory=list)

    def add(self, sequence: Sequence, entries: list[Entry]) -> None:
        """Append a sequence's share; an empty one is left out."""
        if entries:
            self.entries.extend(entries)
            self.shares.append((sequence, entries))


class Engine:
    """Runs requests on a runtime. `submit` and `cancel` may be called from any thread."""

    def __init__(
        self,
        runtime: Runtime,
        settings: Settings,
        measures: Measures,
        release: Callable[[], None] = lambda: None,
    ) -> None:
        """`release` is called when what the sinks were given may go out: as a step begins, and before idling."""
        self._runtime = runtime
        self._release = release
        self._settings = settings
        self._measures = measures
        self._waiting: WaitingQueue[Job] = WaitingQueue(settings.max_queue_size)
        self._slots = SlotTable(settings.slots, settings.prefix_cache)
        self._running: list[Sequence] = []
        self._numbers = itertools.count(1)
        self._wake = threading.Condition()
        self._stopping = False
        self._failures = 0
        self._broken: EngineFailure | None = None
        self._thread = threading.Thread(target=self._run, name="llamacpp-engine", daemon=True)

    def start(self) -> None:
        """Start the engine's thread."""
        self._thread.start()

    def submit(self, request: GenerationRequest, sink: Sink) -> Job:
        """Check the length, queue the request and return its job, for `cancel`.

        Raises InvalidRequest, QueueFull, EngineFailure or ShuttingDown; then the sink hears nothing.
        """
        arrived = time.perf_counter()
        if self._broken:
            raise self._broken
        prompt = self._runtime.tokenize(request.text_input)
        if not prompt:
            raise InvalidRequest("text_input", "it holds no token; send a prompt.")
        if request.end_id is not None and request.end_id >= self._runtime.vocabulary_size:
            raise InvalidRequest(
                "end_id", f"{request.end_id} is no token; there are {self._runtime.vocabulary_size}."
            )
        max_tokens = allowed_tokens(request, len(prompt), self._settings.context_per_slot)
        job = Job(next(self._numbers), request, prompt, max_tokens, sink, arrived)
        with self._wake:
            if self._stopping:
                raise ShuttingDown
            places = max(self._settings.max_running - len(self._running), 0)
            self._waiting.put(job.number, job, places, request.priority)
            self._measures.waiting = len(self._waiting)
            self._wake.notify()
        return job

    def tokens(self, request: TokenizeRequest) -> list[int]:
        """Ids of a prompt; nothing is computed. Raises EngineFailure."""
        return self._runtime.tokenize(request.text_input, request.special)

    def cancel(self, job: Job) -> None:
        """End a request: a waiting one at once, a running one before its next token."""
        job.cancelled = True
        if self._waiting.remove(job.number) is not None:
            self._measures.waiting = len(self._waiting)
            self._fail(job, Cancelled())

    def stop(self, patience: float = 30.0) -> None:
        """End every request and join the thread; frees the runtime once the thread is gone."""
        with self._wake:
            self._stopping = True
            self._wake.notify()
        if self._thread.ident is not None:
            self._thread.join(patience)
        if not self._thread.is_alive():
            self._runtime.close()

    def _run(self) -> None:
        while True:
            with self._wake:
                while not (self._stopping or self._running or len(self._waiting)):
                    self._release()
                    self._wake.wait()
                if self._stopping:
                    break
            self.turn()
        self._fail_all(ShuttingDown())

    def turn(self) -> None:
        """One round: drop the cancelled, admit, decode one step, hand out its tokens."""
        try:
            self._drop_cancelled()
            self._admit()
            self._close_gaps()
            step = self._compose()
            if step.entries:
                self._execute(step)
            self._failures = 0
        except Exception as error:
            self._recover(error)
        self._publish()

    def _drop_cancelled(self) -> None:
        for sequence in [one for one in self._running if one.job.cancelled]:
            self._leave(sequence)
            self._fail(sequence.job, Cancelled())

    def _admit(self) -> None:
        while len(self._running) < self._settings.max_running and (job := self._waiting.take()):
            if job.cancelled:
                self._fail(job, Cancelled())
                continue
            self._running.append(self._place(job))

    def _place(self, job: Job) -> Sequence:
        placement = self._slots.place(job.prompt)
        assert placement is not None  # noqa: S101 - max_running never exceeds the slots
        slot, kept = placement.slot, placement.kept
        if placement.donor is not None:
            self._runtime.copy(placement.donor.number, slot.number)
        kept = self._runtime.forget(slot.number, kept)
        slot.tokens = job.prompt[:kept]
        now = time.perf_counter()
        self._measures.admitted(len(job.prompt), kept, now - job.arrived)
        request = job.request
        end_ids = self._runtime.end_ids | ({request.end_id} if request.end_id is not None else frozenset())
        sampler = Sampler(
            sampling=request.sampling,
            piece=self._runtime.piece,
            end_ids=end_ids,
            min_tokens=request.min_tokens,
            banned_words=tuple(word.encode() for word in request.bad_words),
            log_probs=request.return_log_probs,
            alternatives=request.num_log_probs,
        )
        sampler.see_prompt(job.prompt)
        return Sequence(
            job=job,
            slot=slot,
            sampler=sampler,
            assembler=TextAssembler(request.stop_words),
            end_ids=end_ids,
            cached=kept,
            admitted=now,
            computed=kept,
        )

    def _close_gaps(self) -> None:
        """Move sequences so that the busy slots are neighbours.

        llama.cpp computes the sequences of a step together only where their numbers follow each other; each gap
        makes it read all the weights once more, which costs more than copying one slot's cache.
        """
        while (move := self._slots.gap()) is not None:
            source, target = move
            self._runtime.copy(source.number, target.number)
            (sequence,) = (one for one in self._running if one.slot is source)
            sequence.slot = target
            self._slots.move(source, target)

    def _compose(self) -> Step:
        shares: dict[int, tuple[Sequence, list[Entry]]] = {}
        room = self._settings.prefill_tokens_per_step
        for sequence in self._running:
            if sequence.prefilling:
                entries = sequence.prompt_entries(room)
                room -= len(entries)
            else:
                entries = [sequence.decode_entry()]
            shares[sequence.slot.number] = sequence, entries
        step = Step()
        # In the order of their numbers, see _close_gaps.
        for number in sorted(shares):
            step.add(*shares[number])
        return step

    def _execute(self, step: Step) -> None:
        self._release()
        rows = iter(self._runtime.decode(step.entries))
        now = time.perf_counter()
        self._measures.stepped(len(step.shares))
        for sequence, entries in step.shares:
            sequence.decoded(entries)
            if entries[-1].wants_logits:
                self._advance(sequence, sequence.sampler.choose(next(rows)), now)

    def _advance(self, sequence: Sequence, choice: Choice, now: float) -> None:
        if sequence.last_token is not None:
            self._measures.gap(now - sequence.last_token)
        else:
            self._measures.first_token(now - sequence.job.arrived)
        self._measures.generated += 1
        finished = sequence.accept(choice, self._runtime, now)
        if finished is not None:
            self._leave(sequence)
            self._measures.finished(finished.reason, now - sequence.job.arrived)
            sequence.job.sink.finished(finished)

    def _leave(self, sequence: Sequence) -> None:
        self._running.remove(sequence)
        self._slots.release(sequence.slot)

    def _fail(self, job: Job, error: ModelError) -> None:
        reason = "cancelled" if isinstance(error, Cancelled) else "error"
        self._measures.finished(reason, time.perf_counter() - job.arrived)
        job.sink.failed(error)

    def _fail_all(self, error: ModelError) -> None:
        for sequence in list(self._running):
            self._leave(sequence)
            self._fail(sequence.job, error)
        for job in self._waiting.drain():
            self._fail(job, error)
        self._publish()

    def _recover(self, error: Exception) -> None:
        """A step failed: end what ran in it, forget its caches; after some in a row take no more work."""
        self._failures += 1
        failure = error if isinstance(error, ModelError) else EngineFailure(f"The engine failed: {error!r}.")
        sequences = list(self._running)
        for sequence in sequences:
            self._leave(sequence)
            sequence.slot.tokens = []
            self._fail(sequence.job, failure)
        for sequence in sequences:
            self._runtime.forget(sequence.slot.number, 0)
        if self._failures >= FAILURES_UNTIL_BROKEN:
            self._broken = EngineFailure(f"The engine is broken and must be started again. {failure}")
            self._fail_all(self._broken)

    def _publish(self) -> None:
        self._measures.waiting = len(self._waiting)
        self._measures.running = len(self._running)
        self._measures.slots_busy = self._slots.busy
        self._measures.kv_tokens_used = sum(sequence.cache_tokens for sequence in self._running)


def allowed_tokens(request: GenerationRequest, prompt_tokens: int, context: int) -> int:
    """New tokens that the request may have. Raises InvalidRequest with the numbers when it asks for too many.

    A request that names no number gets the default, or what is left of the slot where that is less.
    """
    room = context - prompt_tokens
    if room < 1:
        raise InvalidRequest(
            "text_input",
            f"the prompt has {prompt_tokens} tokens; a slot holds {context} tokens of prompt and answer together, "
            "so no new token is possible. Shorten the prompt, or deploy with a longer max_seq_len.",
        )
    if not request.max_tokens_given:
        return min(request.max_tokens, room)
    if request.max_tokens > room:
        raise InvalidRequest(
            "max_tokens",
            f"the prompt has {prompt_tokens} tokens and {request.max_tokens} new ones are asked for, together "
            f"{prompt_tokens + request.max_tokens}; a slot holds {context}. At most {room} new tokens are possible: "
            "lower max_tokens, shorten the prompt, or deploy with a longer max_seq_len.",
        )
    return request.max_tokens
