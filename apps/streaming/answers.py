"""One whole answer from a token source: shown as it comes, measured, and told at the end."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass

from apps.streaming.domain.timings import Timings, TimingSummary
from apps.streaming.token_source import GenerationRequest, StreamEnd, TokenDelta, TokenSource


@dataclass(frozen=True, slots=True)
class Answer:
    """A complete answer; `end` says how it ended and what the engine counted."""

    text: str
    end: StreamEnd
    timings: TimingSummary


async def answer(
    source: TokenSource, request: GenerationRequest, show: Callable[[str], None] | None = None
) -> Answer:
    """Read a source to its end, giving each piece of text to `show`. Cancelling it cancels the request upstream.

    The source is closed at the end.
    """
    timings = Timings(time.perf_counter())
    pieces: list[str] = []
    end: StreamEnd | None = None
    try:
        async with contextlib.aclosing(source.stream(request)) as events:
            async for event in events:
                if isinstance(event, TokenDelta):
                    timings.add(event.at, event.tokens)
                    pieces.append(event.text)
                    if show is not None and event.text:
                        show(event.text)
                else:
                    end = event
    finally:
        await source.close()
    if end is None:
        raise RuntimeError("a token source ended without an end")
    timings.finish(end.at)
    return Answer("".join(pieces), end, timings.summary())
