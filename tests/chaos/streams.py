"""Streams through the gateway that never stop coming, and what became of each."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import httpx

PROMPT = "Tell the story of sailor number {number}, slowly and in every detail."


@dataclass(slots=True)
class Answer:
    """One stream of `asked` tokens.

    `outcome`: running, ok, refused (no token came), truncated (it ended before its end).
    """

    number: int
    began: float
    asked: int = 0
    ended: float | None = None
    pieces: int = 0
    tokens: int | None = None
    outcome: str = "running"
    detail: str = ""

    def was_open_across(self, moment: float) -> bool:
        """Whether it gave tokens before and after."""
        return self.began < moment and (self.ended is None or self.ended > moment)

    @property
    def seconds(self) -> float:
        """How long it was open, until now where it still is."""
        return (self.ended or time.monotonic()) - self.began


@dataclass(slots=True)
class Streams:
    """`count` clients; each begins its next stream when its last one ended. All answers are kept.

    `tokens` is what each asks for at least and at most, so that one that ends early is seen; the first `brief`
    clients ask for `brief_tokens`. `slow` seconds are slept between two reads, out of a buffer of `receive_bytes`: a
    slow consumer.
    """

    url: str
    key: str
    model: str = "demo"
    count: int = 8
    tokens: int = 64
    slow: float = 0.0
    receive_bytes: int = 0
    brief: int = 0
    brief_tokens: int = 8
    answers: list[Answer] = field(default_factory=list)
    _stopping: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> Streams:
        """Begin; returns itself."""
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), name="streams", daemon=True)
        self._thread.start()
        return self

    def stop(self, seconds: float = 60.0) -> None:
        """Begin no more, and wait until those that run have ended."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(seconds)
            assert not self._thread.is_alive(), "streams did not end"

    def wait_open(self, count: int, seconds: float = 60.0) -> None:
        """Until so many streams have given a token and run."""
        self.until(
            lambda: sum(each.outcome == "running" and each.pieces > 0 for each in self.answers) >= count,
            seconds,
        )

    def until(self, holds: Callable[[], bool], seconds: float) -> None:
        """Look until it holds, bounded."""
        deadline = time.monotonic() + seconds
        while not holds():
            assert time.monotonic() < deadline, f"not within {seconds} s: {self.summary()} {self.why()}"
            time.sleep(0.02)

    def lost(self, since: float = 0.0) -> list[Answer]:
        """Answers that failed or were cut off, of those that ended after a moment."""
        return [
            each
            for each in self.answers
            if each.outcome in ("refused", "truncated") and (each.ended or 0.0) >= since
        ]

    def duplicates(self, since: float = 0.0) -> int:
        """Answers with more tokens than were asked for, of those that ended after a moment: something came twice."""
        ended = (each for each in self.answers if each.outcome == "ok" and (each.ended or 0.0) >= since)
        return sum((each.tokens or each.pieces) > each.asked for each in ended)

    def summary(self) -> dict[str, int]:
        """Number of answers by outcome."""
        found: dict[str, int] = {}
        for each in self.answers:
            found[each.outcome] = found.get(each.outcome, 0) + 1
        return found

    def why(self) -> list[str]:
        """What the last streams that were lost said."""
        return [f"{each.outcome}: {each.detail}" for each in self.lost()[-3:]]

    async def _run(self) -> None:
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
        timeout = httpx.Timeout(120.0, connect=10.0)
        small = [(socket.SOL_SOCKET, socket.SO_RCVBUF, self.receive_bytes)] if self.receive_bytes else None
        transport = httpx.AsyncHTTPTransport(limits=limits, socket_options=small)
        async with httpx.AsyncClient(transport=transport, timeout=timeout) as client:
            await asyncio.gather(*(self._client(client, index) for index in range(self.count)))

    async def _client(self, client: httpx.AsyncClient, index: int) -> None:
        number = index
        while not self._stopping.is_set():
            asked = self.brief_tokens if index < self.brief else self.tokens
            answer = Answer(number, time.monotonic(), asked)
            self.answers.append(answer)
            try:
                await self._stream(client, answer)
            except (httpx.HTTPError, OSError) as error:
                since = time.monotonic() - answer.began
                answer.detail = f"{type(error).__name__} after {since:.1f} s, {answer.pieces} tokens: {error}"
            answer.ended = time.monotonic()
            if answer.outcome == "running":
                answer.outcome = "truncated" if answer.pieces else "refused"
                # One that is refused at once is asked again like a client would, not in a tight loop.
                await asyncio.sleep(0.2)
            number += self.count

    async def _stream(self, client: httpx.AsyncClient, answer: Answer) -> None:
        body = {
            "model": self.model,
            "messages": [{"role": "user", "content": PROMPT.format(number=answer.number)}],
            "max_tokens": answer.asked,
            "min_tokens": answer.asked,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        headers = {"Authorization": f"Bearer {self.key}"}
        finish = ""
        async with client.stream(
            "POST", f"{self.url}/chat/completions", json=body, headers=headers
        ) as response:
            if response.status_code != 200:
                answer.detail = f"{response.status_code} {(await response.aread())[:300]!r}"
                return
            async for line in response.aiter_lines():
                if not line.startswith("data:"):
                    continue
                text = line[5:].strip()
                if text == "[DONE]":
                    whole = finish in ("length", "stop") and (answer.tokens or 0) >= answer.asked
                    answer.outcome = "ok" if whole else "truncated"
                    if not whole and not answer.detail:
                        answer.detail = f"finish {finish!r}, {answer.tokens} tokens"
                    return
                finish = self._event(json.loads(text), answer) or finish
                if self.slow:
                    await asyncio.sleep(self.slow)

    @staticmethod
    def _event(event: dict[str, object], answer: Answer) -> str:
        if "error" in event:
            answer.detail = str(event["error"])[:300]
            return ""
        usage = event.get("usage")
        if isinstance(usage, dict):
            answer.tokens = int(usage["completion_tokens"])
        finish = ""
        choices = event.get("choices")
        for choice in choices if isinstance(choices, list) else []:
            if choice.get("delta", {}).get("content"):
                answer.pieces += 1
            finish = choice.get("finish_reason") or finish
        return finish
