"""Tasks that must end, even where a library loses a cancel."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from apps.realtime import canary, tasks
from apps.realtime.redis_clients import answer, async_client, close_async_client
from tests.support.waiting import aeventually


async def test_a_task_that_lost_a_cancel_is_cancelled_again() -> None:
    lost = 0

    async def stubborn() -> None:
        nonlocal lost
        while True:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                lost += 1
                if lost == 2:
                    raise

    task = asyncio.create_task(stubborn())
    await asyncio.sleep(0)
    await asyncio.wait_for(tasks.end([task]), 5)
    assert task.cancelled()
    assert lost == 2


async def test_ending_what_has_ended_is_nothing() -> None:
    async def fails() -> None:
        raise ZeroDivisionError

    task = asyncio.create_task(fails())
    await asyncio.wait({task})
    await tasks.end([task])
    with pytest.raises(ZeroDivisionError):
        task.result()


@pytest.mark.integration
async def test_tasks_that_use_redis_end_whenever_they_are_cancelled(redis_server: Any) -> None:
    """Each is cancelled at another moment of its commands, and once is enough."""

    async def busy() -> None:
        while True:
            async with answer():
                await async_client().ping()

    for turns in range(40):
        task = asyncio.create_task(busy())
        for _turn in range(turns % 8):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait({task}, timeout=5)
        assert task.cancelled()
    await close_async_client()


@pytest.mark.integration
async def test_the_watch_over_the_layer_ends_with_its_last_listener(redis_server: Any) -> None:
    watch = canary.Canary()
    told: list[bool] = []
    watch.listen(told.append)
    task = watch._task
    assert task is not None
    watch.forget(told.append)
    await aeventually(task.done)
    await close_async_client()
