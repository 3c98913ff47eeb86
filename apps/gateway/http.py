"""One HTTP exchange of the raw ASGI application: head, body and answer, strictly and bounded."""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Iterable, Mapping
from typing import Any

from django.utils.translation import gettext as _

from apps.gateway.errors import ApiError, invalid
from apps.gateway.wire.answers import JSON

Headers = list[tuple[bytes, bytes]]
# Each of these means one thing or nothing; proxies and servers disagree about which of two counts.
SINGLE = frozenset({b"authorization", b"content-type", b"content-length", b"host", b"x-request-id"})
REQUEST_ID = re.compile(rb"[A-Za-z0-9._:@/+=-]{1,128}")
# Where the server (server.py) leaves the time of the first byte of a request, or of its connection.
BEGAN = "inflight.began"
# ... and how to cut the connection.
ABORT = "inflight.abort"
# ... and a function that says whether what is written now goes out now.
DIRECT = "inflight.direct"


class ClientGone(Exception):
    """The caller closed the connection before its request was complete."""


class Exchange:
    """Request and response of one call. `began` is perf_counter of the connection's or the request's first byte.

    `sending_since` is set while the client takes nothing: the sweep ends one that stays so.
    """

    __slots__ = (
        "_direct",
        "_receive",
        "_send",
        "began",
        "began_at",
        "finished",
        "headers",
        "last_write",
        "method",
        "path",
        "request_id",
        "scope",
        "sending_since",
        "started",
        "status",
    )

    def __init__(self, scope: Mapping[str, Any], receive: Any, send: Any) -> None:
        self.scope = scope
        self._receive, self._send = receive, send
        self._direct = scope.get(DIRECT)
        now = time.perf_counter()
        self.began: float = scope.get(BEGAN) or now
        self.began_at = time.time() - (now - self.began)
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self.headers: dict[bytes, bytes] = {}
        self.request_id = ""
        self.started = self.finished = False
        self.status = 0
        self.last_write = now
        self.sending_since = 0.0

    def read_head(self) -> None:
        """Headers into a dictionary, and the request's id. Raises ApiError for one that came twice."""
        twice = b""
        for name, value in self.scope["headers"]:
            if name in SINGLE and name in self.headers:
                twice = name
            self.headers[name] = value
        given = self.headers.get(b"x-request-id", b"")
        well_formed = REQUEST_ID.fullmatch(given)
        self.request_id = given.decode("ascii") if well_formed else f"req-{secrets.token_hex(12)}"
        if twice:
            raise invalid(_("The header %(name)s came more than once.") % {"name": twice.decode("latin-1")})

    def text(self, name: bytes) -> str:
        """A header's value, empty where it did not come."""
        return self.headers.get(name, b"").decode("latin-1")

    async def body(self, limit: int) -> bytes:
        """The whole body. Raises ApiError (413) beyond `limit` bytes, ClientGone where the caller left."""
        declared = self.headers.get(b"content-length", b"")
        if declared.isdigit() and int(declared) > limit:
            raise too_large(limit)
        message = await self._receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        data: bytes = message.get("body", b"")
        if len(data) > limit:
            raise too_large(limit)
        if not message.get("more_body"):
            return data
        parts, size = [data], len(data)
        while message.get("more_body"):
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise ClientGone
            part = message.get("body", b"")
            size += len(part)
            if size > limit:
                raise too_large(limit)
            parts.append(part)
        return b"".join(parts)

    async def gone(self) -> None:
        """Returns when the caller has closed the connection. Call it once the body is read."""
        while (await self._receive())["type"] != "http.disconnect":
            pass

    async def start(self, status: int, headers: Headers) -> None:
        """Send the head; the server keeps it until the first byte of the body."""
        self.started, self.status = True, status
        await self._send({"type": "http.response.start", "status": status, "headers": headers})

    async def write(self, data: bytes, more: bool = True) -> None:
        """Send a piece of the body. Waits while the client takes nothing, which bounds what is held for it."""
        self.sending_since = time.perf_counter()
        self.finished = not more
        try:
            await self._send({"type": "http.response.body", "body": data, "more_body": more})
        finally:
            self.last_write = time.perf_counter()
            self.sending_since = 0.0

    def ready(self) -> bool:
        """Whether `push` may be called: the answer has begun and its client takes what it is sent."""
        return self._direct is not None and self.started and not self.finished and bool(self._direct())

    def push(self, data: bytes) -> None:
        """`write` where nothing has to be waited for; only after `ready`, in the same turn of the loop."""
        sending = self._send({"type": "http.response.body", "body": data, "more_body": True})
        try:
            sending.send(None)
        except StopIteration:
            self.last_write = time.perf_counter()
        else:
            sending.close()
            raise RuntimeError("the server waited though it had said that it would not")

    async def reply(
        self, status: int, body: bytes, headers: Headers | None = None, content_type: bytes = JSON
    ) -> None:
        """Send a whole response."""
        head = [
            (b"content-type", content_type),
            (b"content-length", str(len(body)).encode()),
            (b"x-request-id", self.request_id.encode()),
            *(headers or ()),
        ]
        await self.start(status, head)
        await self.write(body, more=False)

    async def refuse(self, error: ApiError, headers: Headers | None = None) -> None:
        """Send an error as a whole response."""
        more = [*(headers or ()), *encoded(error.headers.items())]
        await self.reply(error.status, error.body(), more)


def encoded(headers: Iterable[tuple[str, str]]) -> Headers:
    """Headers as ASGI takes them."""
    return [(name.encode("latin-1"), value.encode("latin-1", "replace")) for name, value in headers]


def too_large(limit: int) -> ApiError:
    """The body is larger than this gateway reads; the rest of it is not waited for."""
    return ApiError(
        413,
        "request_too_large",
        _("The body is larger than %(limit)d bytes.") % {"limit": limit},
        headers={"connection": "close"},
    )


def too_slow(seconds: float) -> ApiError:
    """The body did not come in time."""
    return ApiError(
        408,
        "request_timeout",
        _("The body did not come within %(seconds).0f s.") % {"seconds": seconds},
        headers={"connection": "close"},
    )


def check_json(exchange: Exchange) -> None:
    """Refuse what says that it is something else than JSON. Raises ApiError."""
    kind = exchange.text(b"content-type").partition(";")[0].strip().lower()
    if kind not in ("", "application/json") and not kind.endswith("+json"):
        raise ApiError(
            415,
            "unsupported_media_type",
            _("The body must be application/json, not %(kind)s.") % {"kind": kind[:100]},
            headers={"connection": "close"},
        )
