"""A batch that Triton formed: its requests begin together and their answers end together.

Strategies static and dynamic are the engine of strategy inflight, fed batch by batch: text is streamed as it is
generated, but no answer is closed, and no other request begins, before the longest of them is done.
"""

from __future__ import annotations

import threading
from dataclasses import replace

from llamacpp_errors import ModelError
from llamacpp_sequence import Delta, Finished, Sink


class Batch:
    """Counts its members. `wait` returns when every one has ended; what had ended earlier is handed on then."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running = 0
        self._sealed = False
        self._held: list[tuple[Sink, Finished]] = []
        self._over = threading.Event()

    def member(self, sink: Sink) -> Member:
        """A request's sink as part of the batch; to be called before it is submitted."""
        with self._lock:
            self._running += 1
        return Member(sink, self)

    def withdraw(self) -> None:
        """A member was refused at submission; its sink heard nothing."""
        self.ended(None)

    def seal(self) -> None:
        """No member follows. An empty batch is over at once."""
        with self._lock:
            self._sealed = True
            over = self._running == 0
        if over:
            self._finish()

    def ended(self, held: tuple[Sink, Finished] | None) -> None:
        """One member has ended; `held` is what its caller gets when all have."""
        with self._lock:
            if held is not None:
                self._held.append(held)
            self._running -= 1
            over = self._sealed and self._running == 0
        if over:
            self._finish()

    def wait(self) -> None:
        """Until every member has ended."""
        self._over.wait()

    def _finish(self) -> None:
        for sink, finished in self._held:
            sink.finished(finished)
        self._over.set()


class Member:
    """A sink that keeps its end back until the batch is over. Errors and cancellations pass at once."""

    def __init__(self, sink: Sink, batch: Batch) -> None:
        self._sink = sink
        self._batch = batch

    def delta(self, delta: Delta) -> None:
        """Text is not kept back."""
        self._sink.delta(delta)

    def finished(self, finished: Finished) -> None:
        """The last text goes out; the answer's end waits for the others."""
        self._sink.delta(finished.delta)
        self._batch.ended((self._sink, replace(finished, delta=Delta("", 0))))

    def failed(self, error: ModelError) -> None:
        """An error waits for nobody."""
        self._sink.failed(error)
        self._batch.ended(None)
