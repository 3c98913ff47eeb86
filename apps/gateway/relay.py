"""The hot path of a stream: events of an engine as bytes at the client, where they arrive."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from apps.gateway.http import Exchange
from apps.gateway.running import RunningRequest
from apps.gateway.wire.answers import Writer
from apps.streaming.token_source import StreamEnd, TokenDelta, TokenEvent


class StreamRelay:
    """Makes chunks of events and sends them; an EventSink (apps.streaming.triton_http).

    `take` sends in the very call in which the bytes came off the upstream's socket. Waking a task for them would let
    every stream that is due in the same moment wait until all sockets were read. `out` is what is not sent yet.
    `touched(moment)` is told of each piece sent so. `counts`: whether the engine counts the tokens of its messages.
    """

    __slots__ = ("_exchange", "_running", "_texts", "_touched", "_writer", "counts", "out")

    def __init__(
        self,
        exchange: Exchange,
        writer: Writer,
        running: RunningRequest | None,
        texts: list[str] | None,
        touched: Callable[[float], None],
    ) -> None:
        self._exchange, self._writer, self._running = exchange, writer, running
        self._texts, self._touched = texts, touched
        self.out: list[bytes] = []
        self.counts = False

    def add(self, events: Sequence[TokenEvent]) -> StreamEnd | None:
        """Put events into `out`; the end, if it is among them, is returned and left to the caller."""
        running, out = self._running, self.out
        for event in events:
            if type(event) is TokenDelta:
                out.append(self._writer.delta(event))
                self.counts = event.tokens is not None
                if running is not None:
                    running.tokens += 1 if event.tokens is None else event.tokens
                    running.counted = self.counts
                if self._texts is not None:
                    self._texts.append(event.text)
            elif isinstance(event, StreamEnd):
                return event
        return None

    def taken(self) -> bytes:
        """What is to be sent now, as one piece: what came together goes out together."""
        data = b"".join(self.out)
        self.out.clear()
        return data

    def ready(self) -> bool:
        """See EventSink."""
        return self._exchange.ready()

    def take(self, events: list[TokenEvent]) -> None:
        """See EventSink."""
        self.add(events)
        self._exchange.push(self.taken())
        self._touched(self._exchange.last_write)
