"""Limits shared over processes: one small script in Redis per admission, local counters where Redis is away.

Requests of one turn of the event loop travel in one pipeline, from a task of their own: a client that goes away
meanwhile neither breaks the connection nor loses what was counted.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from django.conf import settings
from redis import asyncio as async_redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import NoScriptError

from apps.gateway.domain.windows import (
    CONCURRENCY_WAIT,
    LEASE_SECONDS,
    WINDOW_SECONDS,
    Admitted,
    Ask,
    Denied,
    LimitWord,
    LocalLimits,
    Scope,
    reserved,
)
from apps.realtime.redis_clients import REDIS_ERRORS

log = logging.getLogger(__name__)

# What an admission waits for Redis at most, and how long local counters then serve before Redis is asked again.
ANSWER_SECONDS = 0.25
AWAY_SECONDS = 1.0
# Running requests say so this often; a killed process gives its count back after LEASE_SECONDS.
RENEW_SECONDS = LEASE_SECONDS / 3
BATCH = 128
_LEASE_MS, _NO_ROOM_MS = int(LEASE_SECONDS * 1000), int(CONCURRENCY_WAIT * 1000)
_WORDS: tuple[LimitWord, ...] = ("requests_per_minute", "tokens_per_minute", "concurrent_requests")


class _Script:
    """A Lua script that is sent by its hash."""

    def __init__(self, name: str) -> None:
        self.text = (Path(__file__).parent / name).read_text(encoding="utf-8")
        self.sha = ""

    def queue(self, pipeline: Any, keys: Sequence[str], arguments: Sequence[str | int | float]) -> None:
        pipeline.evalsha(self.sha, len(keys), *keys, *arguments)


@dataclass(slots=True)
class _Call:
    script: _Script
    keys: list[str]
    arguments: list[str | int | float]
    answer: asyncio.Future[Any] | None = None


@dataclass(slots=True)
class Taken:
    """What an admitted request holds. `local`: counted in this process, because Redis was away."""

    ask: Ask
    admitted: Admitted
    local: bool


class SharedLimits:
    """Counts requests over all processes of an installation. Belongs to one event loop; `close` ends its tasks.

    `processes` is among how many the limits are divided while Redis is away.
    """

    def __init__(
        self, processes: int = 1, now: Callable[[], float] = time.monotonic, url: str | None = None
    ) -> None:
        self._processes = processes
        self._now = now
        self._url = url
        self._local = LocalLimits(now)
        self._client: async_redis.Redis | None = None
        self._admit = _Script("limits.lua")
        self._release = _Script("release.lua")
        self._calls: list[_Call] = []
        self._news = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._away_until = 0.0
        self._away = False
        self._running: dict[str, Taken] = {}

    @property
    def away(self) -> bool:
        """Whether local counters serve because Redis does not answer."""
        return self._away

    async def take(self, ask: Ask) -> Taken | Denied:
        """Count a request in all its scopes, or in none and say why. Takes ANSWER_SECONDS at most."""
        answer = None
        if self._now() >= self._away_until:
            answer = await self._ask_redis(ask)
        if answer is None:
            shared = Ask(ask.member, ask.tokens, tuple(scope.share(self._processes) for scope in ask.scopes))
            found = self._local.admit(shared)
            if isinstance(found, Denied):
                return found
            return self._keep(Taken(shared, found, local=True))
        return answer if isinstance(answer, Denied) else self._keep(Taken(ask, answer, local=False))

    def give_back(self, taken: Taken, tokens: int, counts: bool = True) -> None:
        """End a request that used `tokens`; `counts` False takes it back as if it had never been. Never waits."""
        self._running.pop(taken.ask.member, None)
        if taken.local:
            self._local.release(taken.ask, taken.admitted, tokens, counts)
            return
        changes = [tokens - reserved(taken.ask.tokens, scope) for scope in taken.ask.scopes]
        self._put(
            _Call(
                self._release,
                _keys(taken.ask),
                [taken.ask.member, "release", taken.admitted.second, int(not counts), *changes],
            )
        )

    async def close(self) -> None:
        """Send what is due, then end the tasks and the connection."""
        if self._calls and not self._away:
            await self._flush()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()
        if self._client is not None:
            await self._client.aclose()
            self._client = None

    # ------------------------------------------------------------ inside

    def _keep(self, taken: Taken) -> Taken:
        self._running[taken.ask.member] = taken
        return taken

    async def _ask_redis(self, ask: Ask) -> Admitted | Denied | None:
        arguments: list[str | int | float] = [
            ask.member,
            ask.tokens,
            WINDOW_SECONDS,
            _LEASE_MS,
            _NO_ROOM_MS,
        ]
        for scope in ask.scopes:
            arguments += [_text(scope.requests), _text(scope.tokens), _text(scope.concurrent)]
        call = _Call(self._admit, _keys(ask), arguments, asyncio.get_running_loop().create_future())
        self._put(call)
        assert call.answer is not None  # noqa: S101 - made above
        try:
            return _read(await asyncio.shield(call.answer))
        except REDIS_ERRORS:
            return None
        except asyncio.CancelledError:
            # The client is gone; what Redis counts for it all the same is taken back as soon as that is known.
            call.answer.add_done_callback(lambda done: self._take_back(ask, done))
            raise

    def _take_back(self, ask: Ask, done: asyncio.Future[Any]) -> None:
        if done.cancelled() or done.exception() is not None:
            return
        found = _read(done.result())
        if isinstance(found, Admitted):
            self.give_back(Taken(ask, found, local=False), 0, counts=False)

    def _put(self, call: _Call) -> None:
        self._calls.append(call)
        if not self._tasks:
            self._tasks = [asyncio.create_task(self._send()), asyncio.create_task(self._renew())]
        self._news.set()

    async def _send(self) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            while self._calls:
                await self._flush()

    async def _flush(self) -> None:
        calls, self._calls = self._calls[:BATCH], self._calls[BATCH:]
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                answers = await self._run(calls)
        except REDIS_ERRORS as error:
            self._fail(calls, error)
            return
        if self._away:
            log.warning("Redis answers again; limits are counted over all processes.")
        self._away = False
        for call, answer in zip(calls, answers, strict=True):
            if isinstance(answer, Exception):
                log.error("A script of the limits failed: %s", answer)
            if call.answer is not None and not call.answer.done():
                if isinstance(answer, Exception):
                    call.answer.set_exception(answer)
                else:
                    call.answer.set_result(answer)

    def _fail(self, calls: list[_Call], error: Exception) -> None:
        if not self._away:
            log.warning("Redis does not answer; each process counts limits by itself: %r", error)
        self._away = True
        self._away_until = self._now() + AWAY_SECONDS
        for call in calls:
            if call.answer is not None and not call.answer.done():
                call.answer.set_exception(error)

    async def _run(self, calls: list[_Call]) -> list[Any]:
        client = self._connection()
        if not self._admit.sha:
            await self._load(client)
        answers = await self._pipeline(client, calls)
        if any(isinstance(answer, NoScriptError) for answer in answers):
            # Redis was started anew: nothing of this pipeline was run.
            await self._load(client)
            answers = await self._pipeline(client, calls)
        return answers

    @staticmethod
    async def _pipeline(client: async_redis.Redis, calls: list[_Call]) -> list[Any]:
        pipeline = client.pipeline(transaction=False)
        for call in calls:
            call.script.queue(pipeline, call.keys, call.arguments)
        return await pipeline.execute(raise_on_error=False)

    async def _load(self, client: async_redis.Redis) -> None:
        for script in (self._admit, self._release):
            script.sha = str(await client.script_load(script.text))

    def _connection(self) -> async_redis.Redis:
        if self._client is None:
            self._client = async_redis.Redis.from_url(
                self._url or settings.REDIS_URL,
                decode_responses=True,
                socket_connect_timeout=ANSWER_SECONDS,
                # asyncio.timeout around each use instead: redis-py's own loses cancels on Python 3.11.
                socket_timeout=None,
                retry=Retry(NoBackoff(), 1),
            )
        return self._client

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(RENEW_SECONDS)
            for taken in list(self._running.values()):
                if taken.local:
                    self._local.renew(taken.ask)
                    continue
                keys = [_key("c", scope) for scope in taken.ask.scopes if scope.concurrent is not None]
                if keys and self._now() >= self._away_until:
                    self._put(_Call(self._release, keys, [taken.ask.member, "renew", _LEASE_MS]))


def _key(kind: str, scope: Scope) -> str:
    return f"gw:{kind}:{scope.name}"


def _keys(ask: Ask) -> list[str]:
    return [_key(kind, scope) for scope in ask.scopes for kind in ("r", "t", "c")]


def _text(limit: int | None) -> str | int:
    return "" if limit is None else limit


def _read(answer: Any) -> Admitted | Denied:
    if answer[0] == 1:
        return Admitted(int(answer[1]), _left(answer[2]), _left(answer[3]))
    return Denied(int(answer[1]), _WORDS[int(answer[2]) - 1], int(answer[3]), int(answer[4]) / 1000)


def _left(value: Any) -> int | None:
    return None if int(value) < 0 else int(value)
