"""Following a turn from any character on, wherever it runs."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any

from apps.chat import buffer, serialize, states, turn_runner
from apps.chat.models import Timeline, Turn
from apps.chat.running import RunningTurn
from apps.chat.textlog import Mark, Piece, TextLog, read_mark
from apps.realtime import pool
from apps.realtime.redis_clients import REDIS_ERRORS

log = logging.getLogger(__name__)

# How long one read waits for text of another process.
BLOCK_MS = 1000


class Follower:
    """One reader of one turn. `wait` until there is something, `take` what is newest, until `turn` is set.

    `turn` is the ended row as a dictionary. Text piles up in the turn, not here, so a slow reader costs nothing and
    holds nobody up.
    """

    def __init__(self, turn_id: int, uid: str, from_seq: int, from_mark: int = 0) -> None:
        self._turn_id = turn_id
        self._uid = uid
        self._seq = from_seq
        self._mark = from_mark
        self._runner: RunningTurn | None = turn_runner.local(uid)
        self._text = TextLog()
        self._tokens = 0
        self._after = "0"
        self._ended: dict[str, Any] | None = None
        self._watched_at = 0.0
        if self._runner is not None:
            self._runner.watchers += 1

    def close(self) -> None:
        """Stop following."""
        if self._runner is not None:
            self._runner.watchers -= 1
            self._runner.unwatched_since = time.monotonic()
            self._runner = None

    @property
    def turn(self) -> dict[str, Any] | None:
        """The ended turn, once all of it was taken; None before."""
        ended = self._runner.turn if self._runner is not None else self._ended
        return ended if ended is not None and not self._more() else None

    def take(self) -> Piece | None:
        """All that came since the last take, None where nothing did."""
        piece = self._peek()
        if piece is not None:
            self._seq = piece.seq
            self._mark = piece.first_mark + len(piece.marks)
        return piece

    async def wait(self, at_once: Callable[[], bool] | None = None) -> None:
        """Return when there is text to take or the turn has ended.

        `at_once` may take it first, while this waits: it is called where the engine's message arrives, and returns
        whether it took what there is.
        """
        while not self._more() and self.turn is None:
            if self._runner is not None:
                await self._hear(self._runner, at_once)
            else:
                await self._read_elsewhere()

    async def _hear(self, runner: RunningTurn, at_once: Callable[[], bool] | None) -> None:
        woken: asyncio.Future[None] = runner.loop.create_future()

        def news() -> None:
            if woken.done():
                return
            try:
                if at_once is None or not self._more() or not at_once() or self.turn is not None:
                    woken.set_result(None)
            except Exception as error:
                # It is this follower's own trouble, not the turn's.
                woken.set_exception(error)

        runner.listeners.append(news)
        try:
            await woken
        finally:
            runner.listeners.remove(news)

    def _more(self) -> bool:
        if self._runner is not None:
            return self._runner.has_after(self._seq, self._mark)
        return self._text.has_after(self._seq, self._mark)

    def _peek(self) -> Piece | None:
        if self._runner is not None:
            return self._runner.piece_after(self._seq, self._mark)
        return self._text.after(self._seq, self._mark, self._tokens)

    async def _read_elsewhere(self) -> None:
        ended = await pool.run(_ended, self._turn_id)
        if ended is not None:
            self._end(*ended)
            return
        try:
            if await self._read_buffer():
                ended = await pool.run(_ended, self._turn_id)
                if ended is not None:
                    self._end(*ended)
        except REDIS_ERRORS as error:
            log.warning("A turn of another process cannot be followed, Redis does not answer: %s", error)
            await asyncio.sleep(BLOCK_MS / 1000)

    async def _read_buffer(self) -> bool:
        """Take what is new in Redis; whether the turn has ended."""
        if time.monotonic() - self._watched_at > buffer.WATCHED_SECONDS / 3:
            self._watched_at = time.monotonic()
            await buffer.watch(self._uid)
        self._after, pieces, ended = await buffer.read(self._uid, self._after, BLOCK_MS)
        for piece in pieces:
            self._text.join(piece)
            self._tokens = piece.tokens
        return ended

    def _end(self, turn: dict[str, Any], marks: list[Mark]) -> None:
        # The rows have the whole answer, whatever Redis lost.
        self._text.append(turn["answer"][self._text.length :])
        self._text.marks.extend(marks[len(self._text.marks) :])
        self._tokens = turn["metrics"].get("tokens") or self._tokens
        self._ended = turn


def _ended(turn_id: int) -> tuple[dict[str, Any], list[Mark]] | None:
    """The turn and its marks once it has ended, here too where its process died; None while it runs."""
    row = Turn.objects.select_related("conversation", "replaces", "parent").get(pk=turn_id)
    turn_runner.settle(row)
    if row.state == states.STREAMING:
        return None
    kept = Timeline.objects.filter(turn=row).first()
    return serialize.turn_dict(row), [read_mark(told) for told in kept.marks] if kept is not None else []


async def whole(turn: Turn) -> dict[str, Any]:
    """Wait for the end of a turn; the ended row as a dictionary."""
    follower = Follower(turn.pk, turn.uid, 0)
    try:
        while follower.turn is None:
            await follower.wait()
            follower.take()
        return follower.turn
    finally:
        follower.close()
