"""ASGI middleware: a bound for the body of a request. Django reads it whole before any view can refuse it."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Any, Any, Any], Awaitable[None]]


class BodyLimit:
    """Answers 413 to a body beyond `most` bytes; `larger` gives other bounds for whole paths."""

    def __init__(self, app: Application, most: int, larger: dict[str, int]) -> None:
        self.app, self.most, self.larger = app, most, larger

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on what is within the bound; what says no length is counted as it comes."""
        most = self.larger.get(scope.get("path", ""), self.most)
        announced = _announced(scope)
        if announced is not None and announced > most:
            return await _refuse(send, most)
        came, answered, over = 0, False, False

        async def counted() -> Message:
            nonlocal came, over
            message = await receive()
            came += len(message.get("body", b""))
            if came > most:
                over = True
                # To the application this is a client that went away: it keeps nothing.
                return {"type": "http.disconnect"}
            return message

        async def told(message: Message) -> None:
            nonlocal answered
            answered = True
            await send(message)

        await self.app(scope, counted, told)
        if over and not answered:
            await _refuse(send, most)
        return None


def _announced(scope: Scope) -> int | None:
    for name, value in scope.get("headers", ()):
        if name == b"content-length" and value.isdigit():
            return int(value)
    return None


async def _refuse(send: Send, most: int) -> None:
    # The error's shape of the REST API; a browser shows it as it is, because it has not sent the whole form.
    error = {
        "code": "body_too_large",
        "message": f"The request is larger than {most / 1e6:,.0f} MB.",
        "field": "",
        "remedy": "Copy the file to the node and name its path.",
        "facts": {"most_bytes": most},
        "findings": [],
    }
    body = json.dumps(error).encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"connection", b"close"),
    ]
    await send({"type": "http.response.start", "status": 413, "headers": headers})
    await send({"type": "http.response.body", "body": body})
