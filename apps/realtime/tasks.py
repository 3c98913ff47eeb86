"""Ending tasks for certain.

On Python 3.11 a cancel that arrives while the channel layer's redis-py writes a command is lost: asyncio.wait_for
returns the result of the write in its place. So a task is cancelled until it has ended, never once and for all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

# A task that goes on after a cancel is cancelled again after so many seconds.
AGAIN_SECONDS = 0.2


async def end(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel tasks and wait until they have ended."""
    pending = {task for task in tasks if not task.done()}
    while pending:
        for task in pending:
            task.cancel()
        _done, pending = await asyncio.wait(pending, timeout=AGAIN_SECONDS)
