"""The server of the browser tests: what comes late of one test does not reach the next."""

from __future__ import annotations

from typing import Any

import pytest

from tests.browser.server import Server

COOKIES = [
    (b"set-cookie", b"sessionid=; expires=Thu, 01 Jan 1970 00:00:00 GMT"),
    (b"x-frame-options", b"DENY"),
]


async def answered(server: Server, cookie: bytes) -> list[bytes]:
    """Names of the headers of an answer that takes the session's cookie away."""
    sent: list[Any] = []

    async def application(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 302, "headers": COOKIES})
        await send({"type": "http.response.body", "body": b""})

    async def send(message: Any) -> None:
        sent.append(message)

    await server._counted(application)({"headers": [(b"cookie", cookie)] if cookie else []}, None, send)
    server.wait_idle(0)
    return [name for name, _value in sent[0]["headers"]]


@pytest.mark.parametrize(
    ("cookie", "kept"),
    [
        (b"sessionid=old", False),
        (b"csrftoken=x; sessionid=old", False),
        (b"sessionid=new", True),
        (b"", True),
    ],
)
async def test_only_a_session_that_is_not_over_loses_its_cookie(cookie: bytes, kept: bool) -> None:
    server = Server()
    server.retire({"old"})
    try:
        assert (b"set-cookie" in await answered(server, cookie)) is kept
        assert b"x-frame-options" in await answered(server, cookie)
    finally:
        server._socket.close()
