"""The socket of one conversation. Tokens go from the turn straight to it, never through the channel layer."""

from __future__ import annotations

import asyncio
import functools
import logging
import time
from typing import Any, cast

import orjson
from django.contrib.auth.models import User
from django.utils.translation import gettext as _

from apps.chat import selectors, serialize, services, tokens, turn_runner
from apps.chat.follow import Follower
from apps.chat.models import Conversation, Turn
from apps.chat.pace import Pace
from apps.chat.textlog import Piece, mark_json
from apps.core.exceptions import InflightError, NotFound
from apps.realtime import tasks
from apps.realtime.base import BaseConsumer
from apps.realtime.layer import channel_layer
from apps.realtime.redis_clients import REDIS_ERRORS
from apps.realtime.schema import (
    CLOSE_NOT_ALLOWED,
    CLOSE_RESTART,
    Ask,
    Branch,
    Count,
    Counted,
    Ping,
    Pong,
    Resume,
    Show,
    Stop,
    TurnFinished,
    TurnStarted,
    chat_command,
)

log = logging.getLogger(__name__)


class ChatConsumer(BaseConsumer):
    """Asks, stops and resumes turns; follows every turn of its conversation that runs."""

    permission = "chat"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.conversation: Conversation | None = None
        # Turn id -> the task that follows it.
        self._following: dict[str, asyncio.Task[None]] = {}
        # Turns that this socket began to follow at any time; news of their beginning comes late or again.
        self._known: set[str] = set()

    # ------------------------------------------------------------ commands

    async def on_open(self) -> None:
        """Find the conversation; somebody else's is as good as none."""
        conversation_id = int(self.scope["url_route"]["kwargs"]["conversation_id"])
        try:
            self.conversation = await self.db(selectors.conversation, self.user, conversation_id)
        except InflightError as error:
            self.refuse(error)
            self.end(CLOSE_NOT_ALLOWED)
            return
        await self._join()

    async def on_command(self, text: str) -> None:
        """Begin what the browser asks for; nothing waits here, so stop works while an answer streams."""
        command = chat_command.validate_json(text)
        if self.conversation is None:
            return
        match command:
            case Ask():
                self.spawn(self._ask(command))
            case Stop():
                self.spawn(self._for_turn(command.turn, self._stop(command.turn)))
            case Resume():
                self.spawn(self._for_turn(command.turn, self._resume(command)))
            case Count():
                self.spawn(self._count(command))
            case Show():
                self.spawn(self._for_turn(command.turn, self._show(command)))
            case Ping():
                self.tell(Pong(at=command.at))

    async def on_layer(self, back: bool) -> None:
        """Join the conversation's group again. Answers do not depend on the layer."""
        if back and self.conversation is not None:
            await self._join()

    async def on_close(self, code: int) -> None:
        """Leave the conversation; its turn runs on, unless the whole process ends.

        uvicorn ends by its signal as soon as the sockets are closed: nothing is told to tasks that run without one.
        """
        if code == CLOSE_RESTART:
            await turn_runner.end_all()
        if self.conversation is not None:
            await self.channel_layer.group_discard(self._group(), self.channel_name)

    async def turn_begun(self, message: dict[str, Any]) -> None:
        """Another window, the API or the command line asked in this conversation."""
        if message["uid"] not in self._known:
            self.spawn(self._join_turn(message["uid"]))

    # ------------------------------------------------------------ work

    async def _ask(self, command: Ask) -> None:
        assert self.conversation is not None  # noqa: S101 - on_command looked
        begun = await turn_runner.begin(
            functools.partial(_make_turn, self.user, self.conversation.pk, command)
        )
        await self._begin(begun.turn, begun.shown)
        try:
            message = {"type": "turn.begun", "uid": begun.turn.uid}
            await channel_layer().group_send(self._group(), message)
        except REDIS_ERRORS as error:
            log.warning("Other windows do not learn of a turn, Redis does not answer: %s", error)

    async def _stop(self, uid: str) -> None:
        turn = await self.db(self._find, uid)
        if not await self.db(services.stop_turn, cast("User", self.user), turn):
            self.tell(TurnFinished(turn=await self.db(serialize.turn_dict, turn)))

    async def _resume(self, command: Resume) -> None:
        turn = await self.db(self._find, command.turn)
        self._follow(turn, command.from_seq, command.from_mark)

    async def _count(self, command: Count) -> None:
        assert self.conversation is not None  # noqa: S101 - on_command looked
        after = await self.db(self._find, command.after) if command.after else None
        found = await tokens.count(self.conversation, command.system_prompt, after, command.prompt)
        self.tell(
            Counted(
                number=command.number,
                tokens=found.tokens,
                context_tokens=found.context_tokens,
                text=found.prompt if command.with_text else None,
                problem=found.problem,
            )
        )

    async def _show(self, command: Show) -> None:
        def shown() -> list[dict[str, Any]]:
            row = services.show_branch(cast("User", self.user), self._find(command.turn), here=command.here)
            return [serialize.turn_dict(one.turn, one.siblings) for one in selectors.branch(row)]

        self.tell(Branch(turns=await self.db(shown)))

    async def _join_turn(self, uid: str) -> None:
        await self._begin(await self.db(self._find, uid))

    async def _begin(self, turn: Turn, shown: dict[str, Any] | None = None) -> None:
        """Tell of a turn that began, and follow it. `shown` is its row as pages have it, read where it is null."""
        self._known.add(turn.uid)
        self.tell(TurnStarted(turn=shown or await self.db(serialize.turn_dict, turn)))
        self._follow(turn, 0, 0)

    def _follow(self, turn: Turn, from_seq: int, from_mark: int) -> None:
        """Follow a turn from a character and a mark on, instead of what followed it before."""
        self._known.add(turn.uid)
        before = self._following.pop(turn.uid, None)
        work = self._stream(turn, from_seq, from_mark, before)
        self._following[turn.uid] = self.spawn(self._for_turn(turn.uid, work))

    async def _stream(
        self, turn: Turn, from_seq: int, from_mark: int, before: asyncio.Task[None] | None
    ) -> None:
        if before is not None:
            await tasks.end([before])
        follower = Follower(turn.pk, turn.uid, from_seq, from_mark)
        pace = Pace()
        begun = turn.started_at.timestamp()

        def at_once() -> bool:
            if not self.outbox.free or not pace.free():
                return False
            if (piece := follower.take()) is not None:
                self.write_now(_delta(turn.uid, piece, begun))
            return True

        try:
            while True:
                await follower.wait(at_once)
                if follower.turn is None:
                    await pace.wait()
                await self.outbox.room()
                piece = follower.take()
                if piece is not None:
                    self.tell_text(_delta(turn.uid, piece, begun))
                if follower.turn is not None:
                    self.tell(TurnFinished(turn=follower.turn))
                    return
        finally:
            follower.close()
            if self._following.get(turn.uid) is asyncio.current_task():
                del self._following[turn.uid]

    async def _for_turn(self, uid: str, work: Any) -> None:
        """Do work for a turn; what goes wrong is told under its id."""
        try:
            await work
        except InflightError as error:
            self.refuse(error, turn=uid)

    def _find(self, uid: str) -> Turn:
        turn = selectors.turn(self.user, uid)
        if self.conversation is None or turn.conversation_id != self.conversation.pk:
            raise NotFound(
                "unknown_turn",
                _("There is no such turn in this conversation."),
                remedy=_("Reload the page."),
                field="turn",
            )
        return turn

    async def _join(self) -> None:
        await self.channel_layer.group_add(self._group(), self.channel_name)

    def _group(self) -> str:
        assert self.conversation is not None  # noqa: S101 - callers looked
        return f"conversation.{self.conversation.pk}"


def _make_turn(user: Any, conversation_id: int, command: Ask) -> Turn:
    """The new turn of an ask command. Reads and writes the database."""
    conversation = selectors.conversation_to_ask(user, conversation_id)

    def named(field: str, uid: str) -> Turn:
        turn = selectors.turn(user, uid)
        if turn.conversation_id != conversation.pk:
            raise NotFound("unknown_turn", _("There is no such turn in this conversation."), field=field)
        return turn

    more: dict[str, Any] = {"system_prompt": command.system_prompt, "params": command.params}
    if command.regenerate is not None:
        return services.regenerate(user, named("regenerate", command.regenerate), **more)
    if command.edit is not None:
        return services.edit(user, named("edit", command.edit), command.prompt or "", **more)
    if command.after is not None:
        more["after"] = named("after", command.after) if command.after else None
    return services.ask(user, conversation, command.prompt or "", **more)


def _delta(uid: str, piece: Piece, begun: float) -> str:
    """schema.Delta as text. Written here and not by its class, because there is one for each token of every chat."""
    at = begun + piece.marks[0].ms / 1000 if piece.marks else time.time()
    return orjson.dumps(
        {
            "type": "delta",
            "turn": uid,
            "seq": piece.seq,
            "text": piece.text,
            "tokens": piece.tokens,
            "at": at,
            "first_mark": piece.first_mark,
            "marks": [mark_json(mark) for mark in piece.marks],
        }
    ).decode()
