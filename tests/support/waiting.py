"""Waiting for something that no event tells, with a bound."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

BOUND = 10.0


def eventually(holds: Callable[[], Any], what: str = "", seconds: float = BOUND) -> Any:
    """Look every 10 ms until `holds()` is true; its value. Fails after `seconds`."""
    deadline = time.monotonic() + seconds
    while True:
        value = holds()
        if value:
            return value
        assert time.monotonic() < deadline, f"did not happen within {seconds} s: {what or holds}"
        time.sleep(0.01)


async def aeventually(
    holds: Callable[[], Any | Awaitable[Any]], what: str = "", seconds: float = BOUND
) -> Any:
    """The same in an event loop; `holds` may be a coroutine function."""
    deadline = time.monotonic() + seconds
    while True:
        value = holds()
        if asyncio.iscoroutine(value):
            value = await value
        if value:
            return value
        assert time.monotonic() < deadline, f"did not happen within {seconds} s: {what or holds}"
        await asyncio.sleep(0.01)
