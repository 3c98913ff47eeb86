"""One running turn in the process that streams it."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from django.db import transaction
from django.utils.translation import gettext as _

from apps.chat import buffer, serialize, sources, states, waking
from apps.chat.models import Timeline, Turn
from apps.chat.textlog import Chance, Mark, Piece, TextLog, mark_json
from apps.core import clock, transitions
from apps.core.exceptions import InflightError
from apps.realtime import pool, tasks
from apps.realtime.redis_clients import REDIS_ERRORS
from apps.streaming.domain.timings import Timings
from apps.streaming.token_source import (
    GenerationRequest,
    PushingSource,
    StreamEnd,
    TokenDelta,
    TokenEvent,
    TokenLogprob,
    TokenSource,
)

log = logging.getLogger(__name__)

# Seconds between two writes of new text to Redis, and of the answer so far to the row.
BUFFER_SECONDS = 0.05
SAVE_SECONDS = 5.0
# With more running answers than this each is written less often, so that all together write no more.
BUFFERED_AT_FULL_PACE = 8
# So many writes share one renewal of the text's time to live.
RENEW_EVERY = 100
# What closing the engine's stream may take.
CLOSE_SECONDS = 2.0
# Attempts to write the end of a turn to a database that is locked or away.
SAVE_ATTEMPTS = 5
# Ends are written one after the other, as questions begin (turn_runner).
_endings = pool.Threads(1, "turn-end")


@dataclass(frozen=True, slots=True)
class Ending:
    """How a turn ended."""

    state: str
    reason: str = ""
    sentence: str = ""
    remedy: str = ""


class RunningTurn:
    """Reads one answer from its source, independent of any socket. `run` is a task of the process.

    Followers read `piece_after`; `listeners` are called at each news, where it arrives. `turn` is the row as a
    dictionary once it has ended, which `ended` tells.
    """

    def __init__(
        self, turn: Turn, answering: sources.Answering | None = None, since: float | None = None
    ) -> None:
        self.uid = turn.uid
        self.turn_id = turn.pk
        self._row = turn
        self.loop = asyncio.get_running_loop()
        self.watchers = 0
        self.unwatched_since = time.monotonic()
        self.listeners: list[Callable[[], None]] = []
        self.turn: dict[str, Any] | None = None
        self.ended = asyncio.Event()
        self.timings = Timings(start=time.perf_counter() if since is None else since)
        self.tokens = 0
        self.first_at: float | None = None
        self.answering = answering
        self.end: StreamEnd | None = None
        self._text = TextLog()
        self._buffered = (0, 0)
        self._writes = 0
        self._dirty = asyncio.Event()
        self._stop = asyncio.Event()
        self._stopped: Ending | None = None

    # ------------------------------------------------------------ for followers

    def has_after(self, seq: int, mark: int) -> bool:
        """Whether anything came after the first `seq` characters and `mark` marks."""
        return self._text.has_after(seq, mark)

    def piece_after(self, seq: int, mark: int) -> Piece | None:
        """All that came after the first `seq` characters and `mark` marks; None where there is no more."""
        return self._text.after(seq, mark, self.tokens)

    def stop(self, ending: Ending) -> None:
        """End the turn; the engine's request is cancelled. From the turn's own loop."""
        if self._stopped is None:
            self._stopped = ending
            self._stop.set()

    # ------------------------------------------------------------ the task

    async def run(self) -> None:
        """Stream, then write the end of the turn to its row and tell the followers."""
        reading = asyncio.create_task(self._read())
        stop = asyncio.create_task(self._stop.wait())
        side = [asyncio.create_task(self._keep_buffered()), asyncio.create_task(self._keep_saved())]
        try:
            await asyncio.wait({reading, stop}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            # Not asked for: the process itself ends.
            self.stop(interrupted())
        await tasks.end([reading, stop, *side])
        ended_by_itself = not reading.cancelled() and (self._stopped is None or self.end is not None)
        await self._finish(reading.result() if ended_by_itself else self._stopped or interrupted())

    async def _read(self) -> Ending:
        with sources.counted():
            return await self._answer()

    async def _answer(self) -> Ending:
        try:
            answering = self.answering = self.answering or await self._prepare()
        except InflightError as error:
            return Ending(states.FAILED, error.code, error.sentence, error.remedy)
        except Exception:
            log.exception("The turn %s could not be begun.", self.uid)
            return _our_fault()
        try:
            await self._take_all(answering.source, answering.request)
        except Exception:
            log.exception("The turn %s failed.", self.uid)
            return _our_fault()
        finally:
            await self._close(answering.source)
        return self._ended(self.end) if self.end is not None else _our_fault()

    async def _take_all(self, source: TokenSource, request: GenerationRequest) -> None:
        if isinstance(source, PushingSource):
            await source.push(request, self._take)
            return
        async with aclosing(source.stream(request)) as events:
            async for event in events:
                self._take(event)

    def _take(self, event: TokenEvent) -> None:
        if isinstance(event, StreamEnd):
            self.end = event
        else:
            self._add(event)

    async def _prepare(self) -> sources.Answering:
        await waking.until_serves(self.turn_id)
        return await pool.run(lambda: sources.prepare(_load(self.turn_id)))

    def _ended(self, end: StreamEnd) -> Ending:
        self.timings.finish(end.at)
        if end.error is not None:
            return Ending(states.FAILED, end.error.reason, end.error.sentence, end.error.remedy)
        if end.reason == "cancelled":
            return self._stopped or cancelled_by_engine()
        return length_reached() if end.reason == "length" else Ending(states.DONE)

    async def _close(self, source: TokenSource) -> None:
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                await source.close()
        except Exception:
            log.exception("The engine's connection of turn %s could not be closed.", self.uid)

    def _add(self, delta: TokenDelta) -> None:
        self.timings.add(delta.at, delta.tokens)
        self.tokens += delta.tokens or 0
        if self.first_at is None and (delta.tokens or delta.text):
            self.first_at = time.time()
        ms = round((delta.at - self.timings.start) * 1000, 2)
        chances = _chances(delta.logprobs) if delta.logprobs else ()
        self._text.append(delta.text)
        self._text.marks.append(Mark(ms, delta.tokens, len(delta.text), chances))
        self._dirty.set()
        self._tell()

    def _tell(self) -> None:
        for listen in tuple(self.listeners):
            listen()

    # ------------------------------------------------------------ Redis and the row

    async def _keep_buffered(self) -> None:
        away = False
        while True:
            await self._dirty.wait()
            self._dirty.clear()
            try:
                await self._buffer()
                away = False
            except REDIS_ERRORS as error:
                if not away:
                    log.warning(
                        "The text of a running turn is not buffered, Redis does not answer: %s", error
                    )
                away = True
                # It may come back empty: write all again.
                self._buffered = (0, 0)
                self._dirty.set()
                await asyncio.sleep(1.0)
            await asyncio.sleep(BUFFER_SECONDS * max(1.0, sources.running() / BUFFERED_AT_FULL_PACE))

    async def _buffer(self) -> None:
        piece = self.piece_after(*self._buffered)
        if piece is not None:
            await buffer.append(self.uid, piece, renew=self._writes % RENEW_EVERY == 0)
            self._writes += 1
            self._buffered = (piece.seq, piece.first_mark + len(piece.marks))

    async def _keep_saved(self) -> None:
        """The answer so far, for the day on which Redis dies with the process."""
        saved = 0
        while True:
            await asyncio.sleep(SAVE_SECONDS)
            if self._text.length > saved:
                saved = self._text.length
                await pool.run(_save_text, self.turn_id, self._text.whole())

    async def _finish(self, ending: Ending) -> None:
        for attempt in range(SAVE_ATTEMPTS):
            try:
                self.turn = await _endings.run(self._save, ending)
                break
            except Turn.DoesNotExist:
                break  # the conversation was deleted meanwhile
            except Exception:
                log.exception("The end of turn %s could not be written (attempt %d).", self.uid, attempt + 1)
                await asyncio.sleep(0.2 * 2**attempt)
        if self.turn is None:
            self.turn = self._unsaved(ending)
        try:
            await self._buffer()
            await buffer.close(self.uid)
        except REDIS_ERRORS as error:
            log.warning("The end of a turn was not buffered, Redis does not answer: %s", error)
        self.ended.set()
        self._tell()

    def _save(self, ending: Ending) -> dict[str, Any]:
        turn = self._row
        answering = self.answering
        with transaction.atomic():
            transitions.transition(
                turn,
                ending.state,
                actor="web",
                sources=[states.STREAMING],
                reason=ending.reason,
                sentence=ending.sentence,
                remedy=ending.remedy,
                answer=self._text.whole(),
                metrics=self._metrics(),
                instance_uid=answering.instance_uid if answering else "",
                revision_number=answering.revision_number if answering else None,
                first_token_at=datetime.fromtimestamp(self.first_at, UTC) if self.first_at else None,
                finished_at=clock.now(),
            )
            save_marks(turn, self._text.marks)
            return serialize.turn_dict(turn)

    def _unsaved(self, ending: Ending) -> dict[str, Any]:
        """The ended turn for its followers, where the database did not take it."""
        row = self._row
        row.state, row.reason, row.sentence, row.remedy = (
            ending.state,
            ending.reason,
            ending.sentence,
            ending.remedy,
        )
        row.answer, row.metrics, row.finished_at = self._text.whole(), self._metrics(), clock.now()
        return serialize.turn_dict(row, siblings=[row.uid])

    def _metrics(self) -> dict[str, Any]:
        measured = self.timings.summary().as_dict()
        found: dict[str, Any] = {
            name: None if (value := measured[name]) is None else round(value, 2)
            for name in ("ttft_ms", "itl_p50_ms", "itl_p99_ms", "tokens_per_second")
        }
        end = self.end
        told = end.completion_tokens if end else None
        found["tokens"] = told if told is not None else self.tokens or None
        found["prompt_tokens"] = end.prompt_tokens if end else None
        found["cached_tokens"] = end.cached_tokens if end else None
        queued = end.queue_seconds if end else None
        found["queue_ms"] = None if queued is None else round(queued * 1000, 2)
        return found


def interrupted() -> Ending:
    """The process that streamed the answer ended."""
    return Ending(
        states.INTERRUPTED,
        "process_ended",
        _("The web process that streamed this answer ended."),
        _("The text so far is kept; ask again to have the whole answer."),
    )


def stopped() -> Ending:
    """A person pressed stop."""
    return Ending(states.STOPPED, "stopped_by_person", _("Stopped."))


def abandoned() -> Ending:
    """Nobody looks at the answer any more."""
    return Ending(
        states.STOPPED,
        "nobody_watching",
        _("Stopped, because no window was open for 30 seconds."),
        _("Ask again to have the whole answer."),
    )


def length_reached() -> Ending:
    """The answer is as long as it was allowed to be."""
    return Ending(
        states.DONE,
        "length",
        _("The answer reached its maximum of tokens."),
        _("Raise max_tokens to have more of it."),
    )


def cancelled_by_engine() -> Ending:
    """The engine ended the request and nobody here asked for that."""
    return Ending(
        states.FAILED,
        "cancelled_by_engine",
        _("The engine cancelled the request."),
        _("Ask again; if it happens again, look at the server's log."),
    )


def _our_fault() -> Ending:
    return Ending(
        states.FAILED,
        "internal_error",
        _("Something failed in Inflight itself."),
        _("Ask again; the log of the web process has the cause."),
    )


def _load(turn_id: int) -> Turn:
    return Turn.objects.select_related("conversation__deployment", "replaces", "parent").get(pk=turn_id)


def save_marks(turn: Turn, marks: list[Mark]) -> None:
    """Keep when each message of the engine came. Without any there is no row."""
    if marks:
        kept = Timeline(turn=turn, marks=[mark_json(mark) for mark in marks])
        # One statement, whether there is a row already (the sweep was here) or not.
        Timeline.objects.bulk_create(
            [kept], update_conflicts=True, unique_fields=["turn"], update_fields=["marks"]
        )


def _chances(found: tuple[TokenLogprob, ...]) -> tuple[Chance, ...]:
    return tuple(
        Chance(one.chosen.token, one.chosen.logprob, tuple((other.token, other.logprob) for other in one.top))
        for one in found
    )


def _save_text(turn_id: int, text: str) -> None:
    Turn.objects.filter(pk=turn_id, state=states.STREAMING).update(answer=text)
