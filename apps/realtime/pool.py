"""A few threads for database reads that belong to no single socket.

Sockets have one thread each (base.py); what is read once for all of them, or must outlive a socket, runs here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from django.db import close_old_connections

Given = ParamSpec("Given")
Result = TypeVar("Result")

THREADS = 4

_executor = ThreadPoolExecutor(max_workers=THREADS, thread_name_prefix="live-db")


async def run(function: Callable[Given, Result], *args: Given.args, **kwargs: Given.kwargs) -> Result:
    """Result of a synchronous function that may use the database, from a pool thread."""

    def call() -> Result:
        close_old_connections()
        try:
            return function(*args, **kwargs)
        finally:
            close_old_connections()

    return await asyncio.get_running_loop().run_in_executor(_executor, call)
