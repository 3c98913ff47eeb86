"""Ending tasks for certain, and database calls that do not swallow it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, ParamSpec, TypeVar

from channels.db import database_sync_to_async

Given = ParamSpec("Given")
Result = TypeVar("Result")

# A task that went on after a cancel (a library swallowed it) is cancelled again after so many seconds.
AGAIN_SECONDS = 0.2


async def end(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel tasks and wait until they have ended."""
    pending = {task for task in tasks if not task.done()}
    while pending:
        for task in pending:
            task.cancel()
        _done, pending = await asyncio.wait(pending, timeout=AGAIN_SECONDS)


async def in_db_thread(
    function: Callable[Given, Result], *args: Given.args, **kwargs: Given.kwargs
) -> Result:
    """Result of a synchronous function from the thread of the surrounding ThreadSensitiveContext.

    Connections that are too old or broken are closed before and after. asgiref returns the result of a call that
    was running when its task was cancelled, and the cancel is lost; here it is raised.
    """
    task = asyncio.current_task()
    before = task.cancelling() if task else 0
    result = await database_sync_to_async(function)(*args, **kwargs)
    if task is not None and task.cancelling() > before:
        raise asyncio.CancelledError
    return result
