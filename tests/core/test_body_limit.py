"""A body beyond its bound is refused before anything keeps it."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from apps.core.body_limit import BodyLimit


async def reading(
    scope: Any, receive: Callable[[], Awaitable[Any]], send: Callable[[Any], Awaitable[None]]
) -> None:
    """Reads the whole body as Django does; answers with its length unless the client went away."""
    length = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        length += len(message["body"])
        if not message.get("more_body"):
            break
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": str(length).encode()})


async def answer(chunks: list[bytes], path: str = "/", announced: int | None = None) -> tuple[int, bytes]:
    sent: list[dict[str, Any]] = []
    waiting = [
        {"type": "http.request", "body": chunk, "more_body": index + 1 < len(chunks)}
        for index, chunk in enumerate(chunks)
    ]

    async def receive() -> Any:
        return waiting.pop(0)

    async def send(message: Any) -> None:
        sent.append(message)

    headers = [] if announced is None else [(b"content-length", str(announced).encode())]
    scope = {"type": "http", "path": path, "headers": headers}
    await BodyLimit(reading, 10, {"/upload": 100})(scope, receive, send)
    return sent[0]["status"], sent[1]["body"]


@pytest.mark.asyncio
async def test_what_is_within_the_bound_passes() -> None:
    assert await answer([b"12345", b"67890"], announced=10) == (200, b"10")
    assert await answer([b"x" * 100], path="/upload") == (200, b"100")


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("chunks", "path", "announced"),
    [
        ([], "/", 11),
        ([b"12345", b"678901"], "/", None),
        ([b"x" * 101], "/upload", None),
        ([], "/upload", 101),
    ],
)
async def test_what_is_beyond_is_refused(chunks: list[bytes], path: str, announced: int | None) -> None:
    status, body = await answer(chunks, path, announced)
    assert status == 413
    assert json.loads(body)["code"] == "body_too_large"
