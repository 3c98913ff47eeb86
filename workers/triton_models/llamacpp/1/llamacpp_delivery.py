"""Between the engine and Triton's response senders: answers out, cancellations in.

`Ticket` is one caller. The engine's thread only queues what is to be sent; `Writer` builds the responses and waits
for the server to take them. `CancelWatcher` asks the server whether a caller is gone, as it tells nobody by itself.
"""

from __future__ import annotations

import json
import math
import queue
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from llamacpp_contract import TOKENIZED
from llamacpp_errors import ModelError
from llamacpp_sequence import Delta, Finished, Job, TokenLogProb

# A caller is asked for at least this often. Asking is a round trip of some 70 microseconds to the server, so many
# callers are asked less often, a running one still once in the time of a token under such a load.
ASK_SECONDS = 0.01
ASK_SECONDS_EACH = 0.0025
ASK_SECONDS_MOST = 0.04

Outputs = dict[str, Any]


class Ticket:
    """One caller: where its response goes. `sender` is Triton's; `lock` keeps it from being asked once closed."""

    def __init__(self, sender: Any, stream: bool, writer: Writer) -> None:
        self.sender = sender
        self.stream = stream
        self.job: Job | None = None
        self.closed = False
        self.lock = threading.Lock()
        self._writer = writer
        self._texts: list[str] = []
        self._tokens = 0
        self._log_probs: list[TokenLogProb] = []

    def delta(self, delta: Delta) -> None:
        """Send it, or keep it for the single response."""
        if self.stream:
            self._writer.put(self, delta)
        else:
            self._gather(delta)

    def finished(self, finished: Finished) -> None:
        """Send the end, with all the text where no stream was asked for."""
        whole = finished.delta
        if not self.stream:
            self._gather(finished.delta)
            whole = Delta("".join(self._texts), self._tokens, tuple(self._log_probs))
        self._writer.put(self, (whole, finished))

    def failed(self, error: ModelError) -> None:
        """Send the error."""
        self._writer.put(self, error)

    def is_cancelled(self) -> bool:
        """Whether the caller is gone. The server must not be asked once the last response is out."""
        with self.lock:
            return not self.closed and bool(self.sender.is_cancelled())

    def _gather(self, delta: Delta) -> None:
        self._texts.append(delta.text)
        self._tokens += delta.tokens
        self._log_probs.extend(delta.log_probs)


Message = Delta | tuple[Delta, Finished] | ModelError


class Writer:
    """The thread that sends. `respond(outputs)` and `refuse(error)` build a response, `final` is Triton's flag."""

    def __init__(
        self,
        respond: Callable[[Outputs], Any],
        refuse: Callable[[ModelError], Any],
        final: int,
        log: Callable[[str], None],
    ) -> None:
        self._respond = respond
        self._refuse = refuse
        self._final = final
        self._log = log
        self._messages: queue.SimpleQueue[list[tuple[Ticket, Message]] | None] = queue.SimpleQueue()
        self._kept: list[tuple[Ticket, Message]] = []
        self._keeping = False
        # Callers are the engine's thread and, for cancelled requests, the watcher's: the order must hold.
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="llamacpp-writer", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def keep_until_released(self) -> None:
        """Keep text back until `release`, which the engine calls as it begins a step.

        Sending takes Python's lock from the thread that chooses the tokens of the other sequences, and the cores
        idle meanwhile; during a step it costs nothing.
        """
        self._keeping = True

    def put(self, ticket: Ticket, message: Message) -> None:
        """Queue a message; never blocks for long."""
        with self._lock:
            self._kept.append((ticket, message))
            if not (self._keeping and isinstance(message, Delta)):
                self._hand_over()

    def release(self) -> None:
        """Hand over what was kept back."""
        with self._lock:
            self._hand_over()

    def _hand_over(self) -> None:
        kept, self._kept = self._kept, []
        if kept:
            self._messages.put(kept)

    def stop(self) -> None:
        """Send what is queued and join."""
        self.release()
        self._messages.put(None)
        if self._thread.ident is not None:
            self._thread.join(10.0)

    def _run(self) -> None:
        while (batch := self._messages.get()) is not None:
            for ticket, message in batch:
                try:
                    self.send(ticket, message)
                except Exception as error:
                    self._log(f"a response could not be sent: {error!r}")

    def send(self, ticket: Ticket, message: Message) -> None:
        """Send one message now; nothing follows the last one of a ticket."""
        if ticket.closed:
            return
        if isinstance(message, Delta):
            ticket.sender.send(self._respond(delta_outputs(message)))
            return
        response = (
            self._refuse(message)
            if isinstance(message, ModelError)
            else self._respond(final_outputs(*message))
        )
        with ticket.lock:
            ticket.closed = True
            ticket.sender.send(response, flags=self._final)


class CancelWatcher:
    """The thread that asks for each open ticket whether its caller is gone and tells `cancel`."""

    def __init__(self, cancel: Callable[[Job], None], log: Callable[[str], None]) -> None:
        self._cancel = cancel
        self._log = log
        self._open: dict[int, Ticket] = {}
        self._wake = threading.Event()
        self._stop = False
        self._thread = threading.Thread(target=self._run, name="llamacpp-cancel", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def watch(self, ticket: Ticket) -> None:
        """Watch a ticket until it closes."""
        self._open[id(ticket)] = ticket
        self._wake.set()

    def stop(self) -> None:
        """Join."""
        self._stop = True
        self._wake.set()
        if self._thread.ident is not None:
            self._thread.join(5.0)

    def _run(self) -> None:
        while not self._stop:
            if not self._open:
                self._wake.wait()
                self._wake.clear()
                continue
            began = time.perf_counter()
            self.ask()
            pause = min(max(ASK_SECONDS, ASK_SECONDS_EACH * len(self._open)), ASK_SECONDS_MOST)
            time.sleep(max(pause - (time.perf_counter() - began), 0.001))

    def ask(self) -> None:
        """One round over the open tickets."""
        for key, ticket in list(self._open.items()):
            if ticket.closed:
                self._open.pop(key, None)
                continue
            try:
                gone = ticket.is_cancelled()
            except Exception as error:
                self._log(f"a caller could not be asked for: {error!r}")
                gone = True
            if gone and ticket.job is not None:
                self._open.pop(key, None)
                self._cancel(ticket.job)


def delta_outputs(delta: Delta) -> Outputs:
    """Output values of a message that is not the last; arrays carry the batch dimension of one."""
    outputs: Outputs = {
        "text_output": np.array([[delta.text.encode()]], dtype=object),
        "token_count": np.array([[delta.tokens]], dtype=np.int32),
    }
    if delta.log_probs:
        outputs["output_log_probs"] = np.array(
            [[[one.log_prob for one in delta.log_probs]]], dtype=np.float32
        )
        outputs["top_log_probs"] = np.array([[json_log_probs(delta.log_probs)]], dtype=object)
    return outputs


def final_outputs(delta: Delta, finished: Finished) -> Outputs:
    """Output values of the last message: its text and the totals."""
    outputs = delta_outputs(delta)
    outputs["finish_reason"] = np.array([[finished.reason.encode()]], dtype=object)
    outputs["prompt_tokens"] = np.array([[finished.prompt_tokens]], dtype=np.int32)
    outputs["completion_tokens"] = np.array([[finished.completion_tokens]], dtype=np.int32)
    outputs["cached_tokens"] = np.array([[finished.cached_tokens]], dtype=np.int32)
    outputs["queue_seconds"] = np.array([[finished.queue_seconds]], dtype=np.float32)
    if finished.cumulative_log_prob is not None:
        outputs["cum_log_probs"] = np.array([[finished.cumulative_log_prob]], dtype=np.float32)
    return outputs


def token_outputs(tokens: list[int]) -> Outputs:
    """Output values of a request for tokens alone: their ids as JSON, and how many."""
    empty = Finished(Delta(json.dumps(tokens), 0), "stop", len(tokens), 0, 0, 0.0)
    return final_outputs(empty.delta, empty) | {
        "finish_reason": np.array([[TOKENIZED.encode()]], dtype=object)
    }


def json_log_probs(log_probs: tuple[TokenLogProb, ...]) -> bytes:
    """`[{id, token, bytes, logprob, top_logprobs: [{id, token, bytes, logprob}]}]`, one for each token."""
    return json.dumps(
        [
            _json_token(one.token, one.piece, one.log_prob)
            | {"top_logprobs": [_json_token(*other) for other in one.top]}
            for one in log_probs
        ]
    ).encode()


def _json_token(token: int, piece: bytes, log_prob: float) -> dict[str, Any]:
    """JSON knows no infinity: a banned token's log-probability is null."""
    value = log_prob if math.isfinite(log_prob) else None
    return {"id": token, "token": piece.decode(errors="replace"), "bytes": list(piece), "logprob": value}
