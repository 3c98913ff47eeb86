"""What every socket of Inflight does: hello, one thread of its own for the database, bounded sending, and looking
again and again at whether the person may still be here."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from importlib import import_module
from typing import Any, ParamSpec, TypeVar, cast

from asgiref.sync import ThreadSensitiveContext
from channels.auth import get_user
from channels.consumer import get_handler_name
from channels.db import database_sync_to_async
from channels.exceptions import StopConsumer
from channels.generic.websocket import AsyncWebsocketConsumer
from django.conf import settings
from django.contrib.auth import get_user_model
from django.contrib.auth.models import AnonymousUser, User
from django.utils.translation import gettext as _
from pydantic import ValidationError

from apps.core.exceptions import InflightError
from apps.realtime import canary, tasks, topics
from apps.realtime.groups import user_group
from apps.realtime.layer import require_redis
from apps.realtime.outbox import Outbox, TooSlow
from apps.realtime.redis_clients import REDIS_ERRORS
from apps.realtime.schema import (
    CLOSE_NOT_ALLOWED,
    CLOSE_SIGNED_OUT,
    CLOSE_TOO_SLOW,
    CLOSE_TRY_LATER,
    Hello,
    Message,
    Problem,
)

log = logging.getLogger(__name__)
# Sockets that this process serves now, by the kind of consumer; the event loop is the only writer.
open_sockets: Counter[str] = Counter()

Given = ParamSpec("Given")
Result = TypeVar("Result")

# Seconds between two looks at session and roles, beside those that a signal asks for (access.py).
RECHECK_SECONDS = 15.0


class BaseConsumer(AsyncWebsocketConsumer):
    """Base of the live and the chat socket.

    Handlers of messages return at once; anything that waits is a task (`spawn`). All tasks end before the socket's
    thread does. Subclasses implement `on_command` and may extend `on_open`, `on_access`, `on_layer` and `on_close`.
    """

    # What a person must be allowed to do to have this socket at all.
    permission: str = "view"

    user: User | AnonymousUser

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve one socket on a database thread of its own, so that a slow query delays nobody else."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._recheck_now = asyncio.Event()
        self._closing = False
        self.outbox = Outbox(self._send_text)
        kind = type(self).__name__
        open_sockets[kind] += 1
        async with ThreadSensitiveContext():
            try:
                await require_redis()
                await super().__call__(scope, receive, send)
            except REDIS_ERRORS as error:
                log.warning("A socket was turned away, Redis does not answer: %s", error)
                await _turn_away(receive, send)
            finally:
                open_sockets[kind] -= 1
                canary.canary().forget(self._layer_changed)
                await self._end_tasks()

    # ------------------------------------------------------------ for subclasses

    async def on_open(self) -> None:
        """The person may be here and hello is sent."""

    async def on_command(self, text: str) -> None:
        """Parse and begin one command. A ValidationError or InflightError becomes a message of type error."""
        raise InflightError("unknown_command", text)

    async def on_access(self) -> None:
        """Session and roles were looked at again and still allow this socket."""

    async def on_layer(self, back: bool) -> None:
        """The channel layer went away, or is `back` and may have lost messages."""

    async def on_close(self, code: int) -> None:
        """The socket is closed with `code`; leave groups. Tasks are ended afterwards."""

    async def db(
        self, function: Callable[Given, Result], *args: Given.args, **kwargs: Given.kwargs
    ) -> Result:
        """Result of a synchronous function that uses the database, from this socket's own thread."""
        # It also closes connections that are too old or broken, before and after.
        return await database_sync_to_async(function)(*args, **kwargs)

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run something that waits. Its errors are told to the browser and logged; the socket goes on."""
        task = asyncio.create_task(self._guard(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def tell(self, message: Message) -> None:
        """Queue a message. A browser that lets too many wait is disconnected."""
        self.tell_text(message.model_dump_json())

    def tell_text(self, text: str) -> None:
        """The same with a message that is JSON already, for those that come too often to be checked each time."""
        try:
            self.outbox.push(text)
        except TooSlow:
            self.end(CLOSE_TOO_SLOW)

    def write_now(self, text: str) -> None:
        """As tell_text; where nothing else waits it is written before this returns."""
        try:
            self.outbox.write_now(text)
        except TooSlow:
            self.end(CLOSE_TOO_SLOW)
        except (OSError, RuntimeError) as error:
            # The browser is gone; the server says so by a disconnect of its own.
            log.debug("A socket ended while it was written to: %s", error)

    def refuse(self, error: InflightError, topic: str | None = None, turn: str | None = None) -> None:
        """Tell why something was refused; the socket stays open."""
        self.tell(
            Problem(
                code=error.code,
                message=error.sentence,
                remedy=error.remedy,
                field=error.field,
                topic=topic,
                turn=turn,
            )
        )

    def failed(self, error: Exception, topic: str | None = None) -> None:
        """Log what went wrong in this socket's work, and tell it."""
        if isinstance(error, InflightError):
            self.refuse(error, topic)
        elif isinstance(error, REDIS_ERRORS):
            log.warning("A socket could not do its work, Redis does not answer: %s", error)
            self.refuse(live_unavailable(), topic)
        else:
            log.error("A socket could not do its work.", exc_info=error)
            self.refuse(_our_fault(), topic)

    def end(self, code: int) -> None:
        """Close the socket with a code that the browser can read."""
        if not self._closing:
            self._closing = True
            self.spawn(self.close(code=code))

    # ------------------------------------------------------------ events of the server and the layer

    async def dispatch(self, message: dict[str, Any]) -> None:
        """Hand a message to its handler. An exception there is logged and told, and ends nothing else."""
        handler = getattr(self, get_handler_name(message), None)
        if handler is None:
            log.error("A socket got a message that it has no handler for: %s", message["type"])
            return
        try:
            await handler(message)
        except StopConsumer:
            raise
        except Exception as error:
            self.failed(error)

    async def connect(self) -> None:
        """Accept first: a browser can read the code of a close only after that."""
        self.user = cast("User | AnonymousUser", self.scope.get("user") or AnonymousUser())
        await self.accept()
        self.spawn(self._send_waiting())
        code = await self.db(self._why_not)
        if code is not None:
            self.end(code)
            return
        await self._join_user_group()
        canary.canary().listen(self._layer_changed)
        self.tell(Hello(user=self.user.get_username(), server_time=time.time()))
        await self.on_open()
        self.spawn(self._recheck())

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        """Begin what the browser asks for, or say why not."""
        if self._closing:
            return
        try:
            if text_data is None:
                raise _not_understood("")
            await self.on_command(text_data)
        except ValidationError as error:
            self.refuse(_refused_message(error))
        except InflightError as error:
            self.refuse(error)

    async def disconnect(self, code: int) -> None:
        """Leave all groups."""
        self._closing = True
        try:
            await self.on_close(code)
            if self.user.pk is not None:
                await self.channel_layer.group_discard(user_group(self.user.pk), self.channel_name)
        except REDIS_ERRORS as error:
            log.warning("A socket could not leave its groups: %s", error)

    async def access_changed(self, message: dict[str, Any]) -> None:
        """Session or roles of this person changed: look now."""
        self._recheck_now.set()

    # ------------------------------------------------------------ inside

    async def _send_text(self, text: str) -> None:
        await self.send(text_data=text)

    async def _send_waiting(self) -> None:
        try:
            await self.outbox.run()
        except (OSError, RuntimeError) as error:
            # The browser is gone; the server says so by a disconnect of its own.
            log.debug("A socket ended while it was written to: %s", error)

    async def _recheck(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(RECHECK_SECONDS):
                    await self._recheck_now.wait()
            self._recheck_now.clear()
            await self._reload_user()
            code = await self.db(self._why_not)
            if code is not None:
                self.end(code)
                return
            await self.on_access()

    async def _reload_user(self) -> None:
        """The person as session and database say now; anonymous where the session ended."""
        session = self.scope.get("session")
        if session is not None:
            store = import_module(settings.SESSION_ENGINE).SessionStore(session.session_key)
            self.user = cast("User", await get_user(cast("Any", {"session": store})))
        elif self.user.pk is not None:
            self.user = await self.db(_user_by_id, self.user.pk)

    def _why_not(self) -> int | None:
        """Close code where the person may not have this socket, else None."""
        if not self.user.is_authenticated or not self.user.is_active:
            return CLOSE_SIGNED_OUT
        return None if topics.may(self.user, self.permission) else CLOSE_NOT_ALLOWED

    async def _join_user_group(self) -> None:
        if self.user.pk is not None:
            await self.channel_layer.group_add(user_group(self.user.pk), self.channel_name)

    def _layer_changed(self, back: bool) -> None:
        self.spawn(self._follow_layer(back))

    async def _follow_layer(self, back: bool) -> None:
        if back:
            await self._join_user_group()
            self._recheck_now.set()
        await self.on_layer(back)

    async def _guard(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except Exception as error:
            self.failed(error)

    async def _end_tasks(self) -> None:
        # asgiref refuses database calls of tasks that outlive the socket's thread.
        while self._tasks:
            ended = list(self._tasks)
            await tasks.end(ended)
            self._tasks.difference_update(ended)


def live_unavailable() -> InflightError:
    """What a person reads while Redis is away."""
    return InflightError(
        "live_unavailable",
        _("Live updates are away: Redis does not answer."),
        remedy=_("The page shows what it knew; it catches up by itself when Redis is back."),
    )


def _our_fault() -> InflightError:
    return InflightError(
        "internal_error",
        _("Something failed in Inflight itself."),
        remedy=_("Reload the page; the log of the web process has the cause."),
    )


def _not_understood(field: str, why: str = "") -> InflightError:
    what = " ".join(part for part in (field, why) if part)
    return InflightError(
        "message_refused",
        _("The message was not understood: %(what)s.") % {"what": what or _("it is no JSON text")},
        remedy=_("Reload the page; it may come from an older version."),
        field=field,
    )


def _refused_message(error: ValidationError) -> InflightError:
    first = error.errors(include_url=False, include_input=False)[0]
    return _not_understood(".".join(str(part) for part in first["loc"]), first["msg"])


def _user_by_id(user_id: int) -> User | AnonymousUser:
    return get_user_model()._default_manager.filter(pk=user_id).first() or AnonymousUser()


async def _turn_away(receive: Any, send: Any) -> None:
    """Close a socket that could not be served with "try again later"."""
    try:
        await receive()
        await send({"type": "websocket.accept"})
        await send({"type": "websocket.close", "code": CLOSE_TRY_LATER})
    except (OSError, RuntimeError) as error:
        log.debug("The socket was gone already: %s", error)
