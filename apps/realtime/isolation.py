"""A database thread of its own for each socket.

Channels has no such thing: every consumer's database call, and that of the middleware before it, goes through one
thread of the process, so one slow query holds up all sockets.
"""

from __future__ import annotations

from typing import Any

from asgiref.sync import ThreadSensitiveContext


class OwnThread:
    """ASGI middleware that gives each connection a thread for thread-sensitive calls."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve one connection."""
        async with ThreadSensitiveContext():
            await self._inner(scope, receive, send)
