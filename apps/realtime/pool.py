"""A few threads for database reads that belong to no single socket.

Sockets have one thread each (base.py); what is read once for all of them, or must outlive a socket, runs here.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from django.db import connections

Given = ParamSpec("Given")
Result = TypeVar("Result")

THREADS = 4
# Opening an SQLite database costs as much as several reads; threads that live as long as the process keep theirs.
KEEP_SECONDS = 60.0


class Threads:
    """So many threads with database connections of their own, for calls in the order in which they come."""

    def __init__(self, most: int, name: str) -> None:
        self._executor = ThreadPoolExecutor(max_workers=most, thread_name_prefix=name)

    async def run(
        self, function: Callable[Given, Result], *args: Given.args, **kwargs: Given.kwargs
    ) -> Result:
        """Result of a synchronous function that may use the database, from one of the threads."""

        def call() -> Result:
            _close_old()
            try:
                return function(*args, **kwargs)
            finally:
                _keep_open()
                _close_old()

        return await asyncio.get_running_loop().run_in_executor(self._executor, call)


_threads = Threads(THREADS, "live-db")


async def run(function: Callable[Given, Result], *args: Given.args, **kwargs: Given.kwargs) -> Result:
    """Result of a synchronous function that may use the database, from a pool thread."""
    return await _threads.run(function, *args, **kwargs)


def _keep_open() -> None:
    """Let this thread's SQLite connections, which Django would close now, live for a while."""
    now = time.monotonic()
    for connection in connections.all(initialized_only=True):
        if connection.vendor == "sqlite" and connection.close_at is not None and connection.close_at <= now:
            connection.close_at = now + KEEP_SECONDS


def _close_old() -> None:
    """Close this thread's connections that are broken or too old."""
    now = time.monotonic()
    for connection in connections.all(initialized_only=True):
        young = connection.vendor == "sqlite" and (connection.close_at or 0.0) > now
        # One to a file does not break by itself: nothing has to be asked of it.
        if not young or connection.errors_occurred or not connection.autocommit:
            connection.close_if_unusable_or_obsolete()
