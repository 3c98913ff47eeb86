"""The turns of this process: beginning, following, stopping, and ending those whose process died.

A turn belongs to the process that began it, not to a socket. Followers of the same process read its memory, those of
another one Redis; both get the text from any character on, so a browser that comes back misses nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import logging
import os
import socket
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

from django.utils.translation import gettext as _

from apps.chat import buffer, running, serialize, sources, states
from apps.chat.models import Conversation, Turn
from apps.chat.running import Ending, RunningTurn
from apps.core import clock, ids, transitions
from apps.core.exceptions import InfrastructureError
from apps.realtime import pool
from apps.realtime.redis_clients import REDIS_ERRORS

log = logging.getLogger(__name__)

Result = TypeVar("Result")

# Seconds between two looks at what other processes want of the turns of this one.
KEEP_SECONDS = 0.25
# A turn that nobody follows is stopped after so many seconds.
UNWATCHED_SECONDS = 30.0
# A turn is dead when its beat is missing for so long, found twice: a Redis that came back empty is not a death.
DEAD_SECONDS = 3.0
# What ending all turns in order may take when the process ends.
END_SECONDS = 5.0
# A turn younger than this may not have a beat yet.
YOUNG_SECONDS = 10.0

_turns: dict[str, RunningTurn] = {}
_tasks: set[asyncio.Task[Any]] = set()
_keepers: dict[asyncio.AbstractEventLoop, asyncio.Task[None]] = {}
_process = (0, "")
# Questions begin one after the other, first come, first served: many threads that compete with the loop for the
# interpreter would hold up every answer that runs, and would not begin any sooner.
_beginnings = pool.Threads(1, "turn-begin")


@dataclass(frozen=True, slots=True)
class Begun:
    """A turn that streams here now; `shown` is its row as pages have it, null where it must be read again."""

    turn: Turn
    shown: dict[str, Any] | None


def process_id() -> str:
    """Identity of this process in Turn.owner_process: host, pid and a random word."""
    global _process  # noqa: PLW0603 - one per process, made anew after a fork
    if _process[0] != os.getpid():
        _process = (os.getpid(), f"{socket.gethostname()[:50]}:{os.getpid()}:{ids.short_id(6)}")
    return _process[1]


async def begin(make: Callable[[], Turn]) -> Begun:
    """Make a turn (services.ask or regenerate, called in a thread) and stream it in a task of this process.

    `make` reads the rows that it needs. The task is begun even where the caller is cancelled meanwhile: a row without
    a stream would seem to run.
    """

    def made() -> tuple[Begun, sources.Answering | None, float]:
        turn = make()
        since = time.perf_counter()
        shown, answering = None, None
        # What goes wrong from here on is told as the end of the turn, by the task that streams it.
        with contextlib.suppress(Exception):
            shown = serialize.turn_dict(turn)
            answering = sources.prepare(turn)
        return Begun(turn, shown), answering, since

    async def both() -> Begun:
        with sources.counted():
            begun, answering, since = await _beginnings.run(made)
            start(begun.turn, answering, since)
            return begun

    return await asyncio.shield(_detached(both()))


def start(turn: Turn, answering: sources.Answering | None = None, since: float | None = None) -> RunningTurn:
    """Stream a turn that services.ask or regenerate made in this process. From the loop that shall stream it.

    `answering` is what sources.prepare made of it, where that is done; `since` the second of time.perf_counter from
    which its times count, now by default.
    """
    runner = RunningTurn(turn, answering, since)
    _turns[turn.uid] = runner
    _detached(_run(runner))
    loop = asyncio.get_running_loop()
    keeper = _keepers.get(loop)
    if keeper is None or keeper.done():
        _keepers[loop] = _detached(_keep(loop))
    return runner


def local(uid: str) -> RunningTurn | None:
    """The turn, where this process and loop streams it."""
    runner = _turns.get(uid)
    return runner if runner is not None and runner.loop is asyncio.get_running_loop() else None


def request_stop(uid: str) -> None:
    """Have a turn stopped wherever it runs. From any thread.

    Raises InfrastructureError where it runs in another process and Redis does not answer.
    """
    runner = _turns.get(uid)
    if runner is not None:
        runner.loop.call_soon_threadsafe(runner.stop, running.stopped())
        return
    try:
        buffer.ask_to_stop(uid)
    except REDIS_ERRORS as error:
        raise InfrastructureError(
            "redis_away",
            _("The answer cannot be stopped from here: Redis does not answer."),
            remedy=_(
                "Try again in a moment; an answer that nobody follows stops by itself after 30 seconds."
            ),
        ) from error


async def end_all() -> None:
    """End the turns of this loop as interrupted and wait until their rows are written; the process ends."""
    mine = [runner for runner in _turns.values() if runner.loop is asyncio.get_running_loop()]
    for runner in mine:
        runner.stop(running.interrupted())
    try:
        async with asyncio.timeout(END_SECONDS):
            for runner in mine:
                await runner.ended.wait()
    except TimeoutError:
        log.error("Not every running answer could be ended in order; the sweep will end the others.")


def settle_dead_turns(conversation: Conversation | None = None) -> int:
    """End turns whose process died, with their text kept; returns how many. Reads the database and Redis.

    The telemetry process calls it every few seconds; services call it for a conversation before a new question.
    """
    rows = Turn.objects.filter(state=states.STREAMING).exclude(uid__in=list(_turns))
    if conversation is not None:
        rows = rows.filter(conversation=conversation)
    return sum(settle(row) for row in rows)


def settle(turn: Turn) -> bool:
    """End one turn if its process is dead; whether it was. Never where Redis does not answer: nobody can tell."""
    if turn.state != states.STREAMING or turn.uid in _turns:
        return False
    now = time.time()
    if now - turn.started_at.timestamp() < YOUNG_SECONDS:
        return False
    try:
        if buffer.is_beating(turn.uid):
            buffer.forget_missed(turn.uid)
            return False
        if now - buffer.first_missed(turn.uid, now) < DEAD_SECONDS:
            return False
        found, tokens = buffer.everything(turn.uid)
    except REDIS_ERRORS as error:
        log.warning("Whether turns are alive cannot be told, Redis does not answer: %s", error)
        return False
    ending: Ending = running.interrupted()
    settled = transitions.transition(
        turn,
        ending.state,
        actor="sweep",
        sources=[states.STREAMING],
        reason=ending.reason,
        sentence=ending.sentence,
        remedy=ending.remedy,
        # What the row has may be longer, where Redis lost its memory.
        answer=max(found.whole(), turn.answer, key=len),
        metrics=turn.metrics | {"tokens": tokens or None},
        finished_at=clock.now(),
    )
    if settled:
        running.save_marks(turn, found.marks)
    return settled


def _detached(work: Coroutine[Any, Any, Result]) -> asyncio.Task[Result]:
    """A task of the process: kept until it ends, and outside the socket's context, whose thread ends with it."""
    task = asyncio.get_running_loop().create_task(work, context=contextvars.Context())
    _tasks.add(task)
    task.add_done_callback(_tasks.discard)
    return task


async def _run(runner: RunningTurn) -> None:
    try:
        await runner.run()
    finally:
        _turns.pop(runner.uid, None)


async def _keep(loop: asyncio.AbstractEventLoop) -> None:
    """Beats of this loop's turns, and what other processes and the absence of followers ask for."""
    away = False
    beaten: dict[str, float] = {}
    while mine := [runner for runner in _turns.values() if runner.loop is loop]:
        try:
            late = time.monotonic() - buffer.RENEW_SECONDS
            due = [runner.uid for runner in mine if beaten.get(runner.uid, late) <= late]
            await buffer.beat(due)
            beaten = {runner.uid: beaten.get(runner.uid, 0.0) for runner in mine}
            beaten |= dict.fromkeys(due, time.monotonic())
            flags = await buffer.flags([runner.uid for runner in mine])
            away = False
        except REDIS_ERRORS as error:
            flags, beaten = {}, {}
            if not away:
                log.warning("Running turns give no sign of life, Redis does not answer: %s", error)
            away = True
        for runner in mine:
            _judge(runner, flags.get(runner.uid))
        await asyncio.sleep(KEEP_SECONDS)


def _judge(runner: RunningTurn, flags: buffer.Flags | None) -> None:
    now = time.monotonic()
    if flags is not None and flags.stop:
        runner.stop(running.stopped())
    if runner.watchers or (flags is not None and flags.watched):
        runner.unwatched_since = now
    elif now - runner.unwatched_since > UNWATCHED_SECONDS:
        runner.stop(running.abandoned())
