"""A runtime without an engine, and a sink that keeps what it is told."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from llamacpp_engine import Engine
from llamacpp_errors import EngineFailure, ModelError
from llamacpp_measures import Measures
from llamacpp_request import GenerationRequest
from llamacpp_runtime import Entry
from llamacpp_sequence import Delta, Finished, Job, Sink
from llamacpp_settings import Settings

END = 256
VOCABULARY = 260


class FakeRuntime:
    """Tokens are bytes, 256 ends an answer. Its cache must be addressed exactly right, or it fails the test.

    `answers` maps a prompt to the bytes that follow it; unknown prompts count upwards from "a". `steps` keeps the
    sequences, `sizes` the number of tokens of each step, `order` the sequence of each token of the last one; `before`
    runs before each.
    """

    vocabulary_size = VOCABULARY
    end_ids = frozenset({END})

    def __init__(self, answers: dict[str, bytes] | None = None, can_cut: bool = True) -> None:
        self.answers = {prompt.encode(): answer for prompt, answer in (answers or {}).items()}
        self.cache: dict[int, list[int]] = {}
        self.steps: list[list[int]] = []
        self.sizes: list[int] = []
        self.order: list[int] = []
        self.copies: list[tuple[int, int]] = []
        self.failures: list[Exception] = []
        self.before: Callable[[], None] = lambda: None
        self.closed = False
        self.adds_bos = False
        self._can_cut = can_cut

    def tokenize(self, text: str, special: bool = True) -> list[int]:
        return [*([1] if special and self.adds_bos else []), *text.encode()]

    def piece(self, token: int) -> bytes:
        return bytes([token]) if token < END else b""

    def decode(self, entries: Sequence[Entry]) -> list[Any]:
        assert entries
        assert not self.closed
        self.before()
        if self.failures:
            raise self.failures.pop(0)
        rows = []
        for entry in entries:
            held = self.cache.setdefault(entry.sequence, [])
            assert entry.position == len(held), "a token at a wrong position"
            held.append(entry.token)
            if entry.wants_logits:
                rows.append(self._logits(held))
        self.steps.append(sorted({entry.sequence for entry in entries}))
        self.sizes.append(len(entries))
        self.order = [entry.sequence for entry in entries]
        return rows

    def forget(self, sequence: int, start: int) -> int:
        if start and not self._can_cut:
            start = 0
        self.cache[sequence] = self.cache.get(sequence, [])[:start]
        return start

    def copy(self, source: int, target: int) -> None:
        self.copies.append((source, target))
        self.cache[target] = list(self.cache.get(source, []))

    def close(self) -> None:
        self.closed = True

    def _logits(self, held: list[int]) -> Any:
        text = bytes(token for token in held if token < END)
        row = np.full(VOCABULARY, -10.0, dtype=np.float32)
        for prompt, answer in self.answers.items():
            if text.startswith(prompt) and answer.startswith(text[len(prompt) :]):
                done = len(text) - len(prompt)
                row[answer[done] if done < len(answer) else END] = 10.0
                return row
        row[97 + (len(held) % 26)] = 10.0
        return row


@dataclass
class KeptAnswer:
    """What a sink was told, and an event for its end."""

    deltas: list[Delta] = field(default_factory=list)
    end: Finished | None = None
    error: ModelError | None = None
    over: threading.Event = field(default_factory=threading.Event)
    on_delta: Callable[[], None] = lambda: None

    def delta(self, delta: Delta) -> None:
        assert not self.over.is_set()
        self.deltas.append(delta)
        self.on_delta()

    def finished(self, finished: Finished) -> None:
        assert not self.over.is_set()
        self.end = finished
        self.deltas.append(finished.delta)
        self.over.set()

    def failed(self, error: ModelError) -> None:
        assert not self.over.is_set()
        self.error = error
        self.over.set()

    @property
    def text(self) -> str:
        return "".join(delta.text for delta in self.deltas)

    @property
    def tokens(self) -> int:
        return sum(delta.tokens for delta in self.deltas)


@dataclass
class Bench:
    """An engine over a fake runtime. Without `start` a test drives `engine.turn` by hand."""

    runtime: FakeRuntime
    settings: Settings
    measures: Measures
    engine: Engine

    def ask(self, prompt: str, **more: Any) -> tuple[KeptAnswer, Job]:
        """Submit a request."""
        kept = KeptAnswer()
        more.setdefault("max_tokens", 8)
        return kept, self.submit(kept, prompt, **more)

    def submit(self, sink: Sink, prompt: str, **more: Any) -> Job:
        """Submit a request for a sink of the test's own."""
        return self.engine.submit(GenerationRequest(text_input=prompt, **more), sink)

    def turns(self, count: int) -> None:
        """So many rounds of the engine, in this thread."""
        for _ in range(count):
            self.engine.turn()

    def until_over(self, *answers: KeptAnswer, most: int = 500) -> None:
        """Rounds until these answers are over."""
        for _ in range(most):
            if all(answer.over.is_set() for answer in answers):
                return
            self.engine.turn()
        raise AssertionError("the answers do not end")


def make_bench(runtime: FakeRuntime | None = None, **settings: Any) -> Bench:
    """A bench of 4 slots of 64 tokens unless told otherwise."""
    values: dict[str, Any] = {"gguf_path": "none", "slots": 4, "context_per_slot": 64, "threads": 1}
    chosen = Settings(**(values | settings))
    runtime = runtime or FakeRuntime()
    measures = Measures(chosen.max_running, chosen.kv_capacity_tokens)
    return Bench(runtime, chosen, measures, Engine(runtime, chosen, measures))


def wait_for(condition: Callable[[], Any], seconds: float = 5.0) -> None:
    """Wait until it holds, or fail."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError("it did not come to hold in time")
        time.sleep(0.005)


__all__ = ["END", "Bench", "EngineFailure", "FakeRuntime", "KeptAnswer", "make_bench", "wait_for"]
