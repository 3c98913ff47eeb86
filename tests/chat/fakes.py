"""A token source of the tests: says what a script tells it, counts how it was treated."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field

from apps.chat.sources import Answering
from apps.streaming.token_source import (
    GenerationRequest,
    StreamEnd,
    StreamError,
    TokenDelta,
    TokenEvent,
    TokenLogprob,
    TokenSource,
)


@dataclass
class Script(TokenSource):
    """Gives the words one after the other, each `pause` seconds apart; goes on for ever where `endless`.

    `gate`, where there is one, must be set before each word. `cancelled` tells that the stream was closed early.
    """

    words: tuple[str, ...] = ("Paris", " is", " the", " capital", ".")
    pause: float = 0.0
    endless: bool = False
    gate: asyncio.Semaphore | None = None
    end: StreamEnd | None = None
    error: StreamError | None = None
    # Of the first word.
    chances: tuple[TokenLogprob, ...] | None = None
    crash: Exception | None = None
    cancelled: bool = False
    closed: bool = False
    given: int = 0
    requests: list[GenerationRequest] = field(default_factory=list)

    async def stream(self, request: GenerationRequest) -> AsyncGenerator[TokenEvent, None]:
        self.requests.append(request)
        finished = False
        try:
            words = itertools.cycle(self.words) if self.endless else iter(self.words)
            for word in words:
                if self.gate is not None:
                    await self.gate.acquire()
                await asyncio.sleep(self.pause)
                self.given += 1
                yield TokenDelta(word, 1, time.perf_counter(), self.chances if self.given == 1 else None)
            if self.crash:
                raise self.crash
            finished = True
            now = time.perf_counter()
            if self.error:
                yield StreamEnd("error", now, error=self.error)
            else:
                yield self.end or StreamEnd("stop", now, 7, len(self.words), 3, 0.004)
        finally:
            self.cancelled = not finished and self.crash is None

    async def close(self) -> None:
        self.closed = True

    def answering(self) -> Answering:
        """What sources.prepare returns for this source."""
        return Answering(self, GenerationRequest("prompt"), "i-test", 3)
