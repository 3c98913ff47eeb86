"""A closed loop of clients against one model: each sends its next request when its last answer is complete.

Talks HTTP generate_stream and reads no more of an event than it must: the clients share the machine with the server.
"""

from __future__ import annotations

import asyncio
import random
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import aiohttp

TOKEN_COUNT = re.compile(rb'"token_count":(\d+)')
SYSTEM = (
    "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
)
THINGS = (
    "river",
    "mountain",
    "garden",
    "engine",
    "market",
    "winter",
    "teacher",
    "bridge",
    "island",
    "forest",
    "window",
    "letter",
    "doctor",
    "kitchen",
    "planet",
    "violin",
    "harbour",
    "desert",
    "library",
    "candle",
)


@dataclass(frozen=True, slots=True)
class Ask:
    """One request of the workload: the prompt, and how many tokens come back, no more and no fewer."""

    prompt: str
    tokens: int


@dataclass(slots=True)
class Window:
    """What happened between `begin` and `end` (seconds of time.perf_counter)."""

    begin: float
    end: float
    tokens: int = 0
    latencies: list[float] = field(default_factory=list)
    first_tokens: list[float] = field(default_factory=list)
    gaps: list[float] = field(default_factory=list)

    def holds(self, at: float) -> bool:
        """Whether a moment lies in it."""
        return self.begin <= at < self.end


@dataclass(frozen=True, slots=True)
class Span:
    """One answered request: sent, first token, last token (seconds of time.perf_counter), number of tokens."""

    sent: float
    first: float
    done: float
    tokens: int


def workload(seed: int, least: int, most: int) -> Iterator[Ask]:
    """Endless requests: short questions behind the model's own system prompt, answers of mixed lengths."""
    chosen = random.Random(seed)
    while True:
        one, other = chosen.sample(THINGS, 2)
        question = f"Tell me about a {one} and a {other}."
        prompt = f"{SYSTEM}<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"
        yield Ask(prompt, chosen.randint(least, most))


async def run(url: str, asks: Iterator[Ask], clients: int, warm_up: float, seconds: float) -> Window:
    """Drive `clients` until each has had an answer (at most `warm_up` seconds), then measure for `seconds`."""
    loop = Loop(f"{url}/generate_stream", asks, clients)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        tasks = [asyncio.create_task(loop.client(session)) for _ in range(clients)]
        warm = asyncio.create_task(loop.warm.wait())
        try:
            await _until_failure_or([*tasks, warm], warm_up, asyncio.FIRST_COMPLETED)
            now = time.perf_counter()
            loop.window = Window(now, now + seconds)
            await _until_failure_or(tasks, seconds, asyncio.FIRST_EXCEPTION)
        finally:
            for task in (*tasks, warm):
                task.cancel()
            await asyncio.gather(*tasks, warm, return_exceptions=True)
    return loop.window


async def finish(url: str, asks: Iterator[Ask], clients: int, answers: int) -> tuple[Window, list[Span]]:
    """Let each client have so many answers, all of them complete: what happened from the first to the last."""
    loop = Loop(f"{url}/generate_stream", asks, clients)
    loop.window = Window(time.perf_counter(), float("inf"))

    async def client(session: aiohttp.ClientSession) -> None:
        for _answer in range(answers):
            await loop.one(session, next(asks))

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        await asyncio.gather(*(client(session) for _ in range(clients)))
    loop.window.end = time.perf_counter()
    return loop.window, loop.spans


async def _until_failure_or(tasks: list[asyncio.Task[Any]], seconds: float, when: str) -> None:
    """Wait, and raise what a task raised."""
    done, _ = await asyncio.wait(tasks, timeout=seconds, return_when=when)
    for task in done:
        task.result()


class Loop:
    """Clients of one model, and what they saw in `window`."""

    def __init__(self, url: str, asks: Iterator[Ask], clients: int) -> None:
        self._url = url
        self._asks = asks
        self._answers_left = clients
        self.warm = asyncio.Event()
        self.window = Window(float("inf"), float("inf"))
        self.spans: list[Span] = []

    async def client(self, session: aiohttp.ClientSession) -> None:
        """Ask without end."""
        while True:
            await self.one(session, next(self._asks))
            self._answers_left -= 1
            if self._answers_left <= 0:
                self.warm.set()

    async def one(self, session: aiohttp.ClientSession, ask: Ask) -> Span:
        """One request and its whole answer."""
        # Exactly `tokens` come: the end token is not allowed before.
        body = {
            "text_input": ask.prompt,
            "max_tokens": ask.tokens,
            "min_tokens": ask.tokens,
            "top_k": 1,
            "stream": True,
        }
        sent = time.perf_counter()
        first: float | None = None
        last: float | None = None
        got = 0
        async with session.post(self._url, json=body) as response:
            async for line in response.content:
                if not line.startswith(b"data:"):
                    continue
                now = time.perf_counter()
                found = TOKEN_COUNT.search(line)
                if found is None:
                    raise RuntimeError(f"the server says: {line.decode(errors='replace').strip()}")
                tokens = int(found[1])
                got += tokens
                self._note(now, tokens, sent, last)
                first, last = first or now, now
        if got != ask.tokens:
            raise RuntimeError(f"{ask.tokens} tokens were asked for, {got} came")
        done = time.perf_counter()
        span = Span(sent, first or done, last or done, got)
        self.spans.append(span)
        if self.window.holds(done):
            self.window.latencies.append(done - sent)
        return span

    def _note(self, now: float, tokens: int, sent: float, last: float | None) -> None:
        window = self.window
        if not window.holds(now):
            return
        window.tokens += tokens
        if last is None:
            window.first_tokens.append(now - sent)
        else:
            window.gaps.append(now - last)
