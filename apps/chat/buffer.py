"""What other processes need to know of a running turn, in Redis.

`turn:<uid>` is a stream of pieces of the answer, each with the characters of it up to its end and the engine's
messages (marks) that made it; the last entry says `end`. `turn:<uid>:beat` says that the process which streams it
lives, `:watched` that a socket of another process follows it, `:stop` that somebody wants it stopped. All of them
expire.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import orjson
from redis import asyncio as async_redis

from apps.chat.textlog import Piece, TextLog, mark_json, read_mark
from apps.realtime.redis_clients import answer, async_client, sync_client

# A finished turn can be replayed from here for so long; after that the row has it.
KEPT_SECONDS = 900
RUNNING_SECONDS = 7200
BEAT_SECONDS = 10
# How often a beat is renewed; all running turns together, so it is a burst of work for the loop.
RENEW_SECONDS = 2.0
WATCHED_SECONDS = 5
STOP_SECONDS = 120


@dataclass(frozen=True, slots=True)
class Flags:
    """What other processes say about a running turn."""

    stop: bool
    watched: bool


def key(uid: str) -> str:
    """Stream of a turn's text."""
    return f"turn:{uid}"


async def append(uid: str, piece: Piece, renew: bool = True) -> None:
    """Add a piece; `renew` its time to live, too. Raises a Redis error where it is away."""
    fields: dict[Any, Any] = {
        "seq": piece.seq,
        "text": piece.text,
        "tokens": piece.tokens,
        "first_mark": piece.first_mark,
        "marks": orjson.dumps([mark_json(mark) for mark in piece.marks]),
    }
    async with answer():
        await async_client().xadd(key(uid), fields)
        if renew:
            await async_client().expire(key(uid), RUNNING_SECONDS)


async def close(uid: str) -> None:
    """Say that the turn has ended and its row is written."""
    pipeline = async_client().pipeline(transaction=False)
    pipeline.xadd(key(uid), {"end": "1"})
    pipeline.expire(key(uid), KEPT_SECONDS)
    pipeline.delete(f"{key(uid)}:beat", f"{key(uid)}:stop")
    async with answer():
        await pipeline.execute()


async def beat(uids: Iterable[str]) -> None:
    """Say that these turns are alive. Each on its own: one long command would hold up everybody's tokens."""
    for uid in uids:
        async with answer():
            await async_client().set(f"{key(uid)}:beat", "1", ex=BEAT_SECONDS)


async def flags(uids: list[str]) -> dict[str, Flags]:
    """What other processes say of these turns."""
    async with answer():
        found = await async_client().mget(
            [f"{key(uid)}:{word}" for uid in uids for word in ("stop", "watched")]
        )
    return {
        uid: Flags(stop=found[2 * index] is not None, watched=found[2 * index + 1] is not None)
        for index, uid in enumerate(uids)
    }


async def watch(uid: str) -> None:
    """Say that a socket of this process follows a turn of another one."""
    async with answer():
        await async_client().set(f"{key(uid)}:watched", "1", ex=WATCHED_SECONDS)


async def read(uid: str, after: str, block_ms: int) -> tuple[str, list[Piece], bool]:
    """Entries after stream id `after`, waiting at most `block_ms`: (new id, pieces, whether the turn has ended)."""
    client: async_redis.Redis = async_client()
    async with answer(more=block_ms / 1000):
        found: Any = await client.xread({key(uid): after}, block=block_ms)
    entries = _entries(found)
    pieces = [_piece(fields) for _entry, fields in entries if "text" in fields]
    ended = any("end" in fields for _entry, fields in entries)
    return (entries[-1][0] if entries else after), pieces, ended


def ask_to_stop(uid: str) -> None:
    """Ask the process that streams a turn to stop it. Raises a Redis error where it is away."""
    sync_client().set(f"{key(uid)}:stop", "1", ex=STOP_SECONDS)


def is_beating(uid: str) -> bool:
    """Whether the process that streams the turn gave a sign of life. Raises a Redis error where Redis is away."""
    return bool(sync_client().exists(f"{key(uid)}:beat"))


def first_missed(uid: str, now: float) -> float:
    """Epoch second at which the beat of this turn was first found missing; `now` where this is the first time."""
    client = sync_client()
    name = f"{key(uid)}:missed"
    client.set(name, repr(now), nx=True, ex=60)
    found = client.get(name)
    return float(str(found)) if found else now


def forget_missed(uid: str) -> None:
    """The beat is there again."""
    sync_client().delete(f"{key(uid)}:missed")


def whole(uid: str) -> tuple[str, int]:
    """(text, tokens) of all that was buffered of a turn. Raises a Redis error where Redis is away."""
    found, tokens = everything(uid)
    return found.whole(), tokens


def everything(uid: str) -> tuple[TextLog, int]:
    """The same with the engine's messages."""
    entries: Any = sync_client().xrange(key(uid))
    pieces = [_piece(fields) for _entry, fields in entries if "text" in fields]
    log = TextLog()
    for piece in pieces:
        log.join(piece)
    return log, pieces[-1].tokens if pieces else 0


def _piece(fields: dict[str, str]) -> Piece:
    # An entry of a release before this one has no marks.
    marks = tuple(read_mark(told) for told in orjson.loads(fields.get("marks", "[]")))
    first = int(fields.get("first_mark", 0))
    return Piece(int(fields["seq"]), fields["text"], int(fields["tokens"]), first, marks)


def _entries(found: Any) -> list[tuple[str, dict[str, str]]]:
    """Entries of the one stream in an answer of XREAD: [[name, [(id, fields), ...]]], empty after a wait in vain."""
    return list(found[0][1]) if found else []
