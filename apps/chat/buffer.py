"""What other processes need to know of a running turn, in Redis.

`turn:<uid>` is a stream of text pieces, each with the characters of the answer up to its end; the last entry says
`end`. `turn:<uid>:beat` says that the process which streams it lives, `:watched` that a socket of another process
follows it, `:stop` that somebody wants it stopped. All of them expire.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from redis import asyncio as async_redis

from apps.chat.textlog import Piece, TextLog
from apps.realtime.redis_clients import answer, async_client, sync_client

# A finished turn can be replayed from here for so long; after that the row has it.
KEPT_SECONDS = 900
RUNNING_SECONDS = 7200
BEAT_SECONDS = 10
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


async def append(uid: str, piece: Piece) -> None:
    """Add a piece. Raises a Redis error where it is away."""
    pipeline = async_client().pipeline(transaction=False)
    fields: dict[Any, Any] = {"seq": piece.seq, "text": piece.text, "tokens": piece.tokens, "at": piece.at}
    pipeline.xadd(key(uid), fields)
    pipeline.expire(key(uid), RUNNING_SECONDS)
    async with answer():
        await pipeline.execute()


async def close(uid: str) -> None:
    """Say that the turn has ended and its row is written."""
    pipeline = async_client().pipeline(transaction=False)
    pipeline.xadd(key(uid), {"end": "1"})
    pipeline.expire(key(uid), KEPT_SECONDS)
    pipeline.delete(f"{key(uid)}:beat", f"{key(uid)}:stop")
    async with answer():
        await pipeline.execute()


async def beat(uids: list[str]) -> dict[str, Flags]:
    """Say that these turns are alive, and learn what other processes say of them."""
    pipeline = async_client().pipeline(transaction=False)
    for uid in uids:
        pipeline.set(f"{key(uid)}:beat", "1", ex=BEAT_SECONDS)
        pipeline.exists(f"{key(uid)}:stop")
        pipeline.exists(f"{key(uid)}:watched")
    async with answer():
        answers = await pipeline.execute()
    return {
        uid: Flags(stop=bool(answers[3 * index + 1]), watched=bool(answers[3 * index + 2]))
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
    entries: Any = sync_client().xrange(key(uid))
    pieces = [_piece(fields) for _entry, fields in entries if "text" in fields]
    log = TextLog()
    for piece in pieces:
        log.join(piece)
    return log.whole(), pieces[-1].tokens if pieces else 0


def _piece(fields: dict[str, str]) -> Piece:
    return Piece(int(fields["seq"]), fields["text"], int(fields["tokens"]), float(fields["at"]))


def _entries(found: Any) -> list[tuple[str, dict[str, str]]]:
    """Entries of the one stream in an answer of XREAD: [[name, [(id, fields), ...]]], empty after a wait in vain."""
    return list(found[0][1]) if found else []
