"""Threads for the database that outlive a socket."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connections
from django.db.backends.signals import connection_created

from apps.realtime import pool


async def test_a_thread_keeps_its_connection_for_a_while(
    transactional_db: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []

    def note(sender: Any, **kwargs: Any) -> None:
        opened.append(threading.current_thread().name)

    connection_created.connect(note)
    threads = pool.Threads(1, "test-threads")
    try:
        for _call in range(3):
            assert await threads.run(User.objects.count) == 0
        assert opened == ["test-threads_0"]
        # Between two calls, as time goes by.
        await asyncio.wrap_future(threads._executor.submit(_make_old))
        assert await threads.run(User.objects.count) == 0
        assert len(opened) == 2
    finally:
        connection_created.disconnect(note)
        await threads.run(connections.close_all)


def _make_old() -> None:
    connection = connections["default"]
    assert connection.close_at is not None
    connection.close_at -= pool.KEEP_SECONDS + 60.0
