"""Following a turn from any character on, wherever it runs."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any

from apps.chat import buffer, serialize, states, turn_runner
from apps.chat.models import Turn
from apps.chat.running import RunningTurn
from apps.chat.textlog import Piece, TextLog
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

    def __init__(self, turn_id: int, uid: str, from_seq: int) -> None:
        self._turn_id = turn_id
        self._uid = uid
        self._seq = from_seq
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
        """The ended turn, once all its text was taken; None before."""
        ended = self._runner.turn if self._runner is not None else self._ended
        return ended if ended is not None and self._peek() is None else None

    def take(self) -> Piece | None:
        """All text since the last take, None where there is none."""
        piece = self._peek()
        if piece is not None:
            self._seq = piece.seq
        return piece

    async def wait(self) -> None:
        """Return when there is text to take or the turn has ended."""
        while self._peek() is None and self.turn is None:
            if self._runner is not None:
                await self._runner.news.wait()
            else:
                await self._read_elsewhere()

    def _peek(self) -> Piece | None:
        if self._runner is not None:
            return self._runner.piece_after(self._seq)
        return self._text.after(self._seq, self._tokens)

    async def _read_elsewhere(self) -> None:
        row = await pool.run(_settled, self._turn_id)
        if row.state != states.STREAMING:
            self._end(row)
            return
        try:
            if await self._read_buffer():
                self._end(await pool.run(_settled, self._turn_id))
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

    def _end(self, row: Turn) -> None:
        # The row has the whole answer, whatever Redis lost.
        self._text.append(row.answer[self._text.length :], time.time())
        self._tokens = row.metrics.get("tokens") or self._tokens
        self._ended = serialize.turn_dict(row)


def _settled(turn_id: int) -> Turn:
    """The row; ended here where its process died."""
    row = Turn.objects.select_related("conversation", "replaces").get(pk=turn_id)
    turn_runner.settle(row)
    return row


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
