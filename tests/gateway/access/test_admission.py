"""Admission as the path uses it: limits, slots, the queue with its deadline, what cancelled requests leave."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

import pytest

from apps.gateway.access.admission import Admission, Grant
from apps.gateway.access.bounds import allowed_max_tokens
from apps.gateway.access.limits import SharedLimits
from apps.gateway.access.refusals import Refused
from apps.gateway.domain.facts import KeyFacts, Limits, Priority, Route
from tests.support.places import PLACE, Lanes, Places
from tests.support.waiting import aeventually

KEY = KeyFacts(key_id=1, name="app", prefix="ik-abcdef")
ROUTE = Route(name="demo", upstreams=())
HIGH, NORMAL, LOW = Priority.HIGH, Priority.NORMAL, Priority.LOW


@pytest.fixture
def slots() -> Places:
    return Places(2)


@pytest.fixture
async def admission(slots: Places) -> AsyncIterator[Admission]:
    """Without Redis: nothing listens there."""
    made = Admission(slots, limits=SharedLimits(url="redis://127.0.0.1:1/0"))
    yield made
    await made.close()


@pytest.fixture
def admit(admission: Admission) -> Callable[..., Any]:
    async def call(key: KeyFacts = KEY, route: Route = ROUTE, **given: Any) -> Grant:
        wanted: dict[str, Any] = {
            "prompt_tokens": 10,
            "max_tokens": 20,
            "priority": NORMAL,
            "request_id": "r",
        }
        return await admission.admit(key, route, **{**wanted, **given})

    return call


async def waits(admission: Admission, count: int) -> None:
    await aeventually(lambda: admission.waiting("demo") == count, f"{count} wait")


async def test_no_more_than_the_slots_run(admission: Admission, admit: Callable[..., Any]) -> None:
    running, most = 0, 0

    async def one() -> None:
        nonlocal running, most
        async with await admit() as grant:
            running += 1
            most = max(most, running)
            await asyncio.sleep(0.001)
            grant.settle(10, 5)
            running -= 1

    await asyncio.gather(*(one() for _n in range(20)))
    assert most == 2
    assert (admission.granted("demo"), admission.waiting("demo")) == (0, 0)


async def test_a_known_number_of_slots_is_not_needed(slots: Places, admit: Callable[..., Any]) -> None:
    slots.capacity = None
    grants = [await admit() for _n in range(50)]
    assert all(grant.queue_seconds < 0.1 for grant in grants)


async def test_the_higher_class_is_next(admission: Admission, admit: Callable[..., Any]) -> None:
    held = [await admit(), await admit()]
    order: list[str] = []

    async def one(name: str, priority: Priority) -> None:
        async with await admit(priority=priority):
            order.append(name)

    tasks = []
    for count, (name, priority) in enumerate((("low", LOW), ("normal", NORMAL), ("high", HIGH)), start=1):
        tasks.append(asyncio.create_task(one(name, priority)))
        await waits(admission, count)
    held[0].release()
    await asyncio.gather(*tasks)
    assert order == ["high", "normal", "low"]
    held[1].release()
    held[1].release()
    assert admission.granted("demo") == 0


async def test_more_capacity_lets_the_waiting_in(
    admission: Admission, slots: Places, admit: Callable[..., Any]
) -> None:
    slots.capacity = 0
    tasks = [asyncio.create_task(admit()) for _n in range(3)]
    await waits(admission, 3)
    slots.capacity = 3
    admission.room_grew()
    grants = await asyncio.gather(*tasks)
    assert len(grants) == 3


async def test_the_deadline(admission: Admission, admit: Callable[..., Any]) -> None:
    for _slot in range(2):
        await admit()
    with pytest.raises(Refused) as caught:
        await admit(route=replace(ROUTE, queue_seconds=0.02))
    refused = caught.value
    assert (refused.status, refused.code, refused.limit_name) == (503, "queue_timeout", "queue")
    assert refused.retry_after_seconds is not None
    assert 1 <= refused.retry_after_seconds <= 60
    assert admission.waiting("demo") == 0


async def test_a_full_queue_sheds_the_newest_of_the_lowest_class(
    admission: Admission, admit: Callable[..., Any]
) -> None:
    route = replace(ROUTE, queue_size=3)
    held = [await admit(), await admit()]
    tasks = {}
    for count, (name, priority, key) in enumerate(
        (("old", LOW, 1), ("new", LOW, 2), ("normal", NORMAL, 3)), start=1
    ):
        wanted = replace(KEY, key_id=key)
        tasks[name] = asyncio.create_task(admit(key=wanted, route=route, priority=priority))
        await waits(admission, count)
    with pytest.raises(Refused) as caught:
        await admit(key=replace(KEY, key_id=4), route=route, priority=LOW)
    assert (caught.value.status, caught.value.code) == (503, "overloaded")
    high = asyncio.create_task(admit(route=route, priority=HIGH))
    with pytest.raises(Refused, match="overloaded"):
        await tasks["new"]
    assert not tasks["old"].done()
    for grant in held:
        grant.release()
    await asyncio.gather(high, tasks["normal"])


async def test_where_nobody_may_wait(admit: Callable[..., Any]) -> None:
    route = replace(ROUTE, queue_size=0)
    for _slot in range(2):
        await admit(route=route)
    with pytest.raises(Refused) as caught:
        await admit(route=route, priority=HIGH)
    assert caught.value.code == "overloaded"


async def test_a_cancelled_wait_leaves_nothing(
    admission: Admission, slots: Places, admit: Callable[..., Any]
) -> None:
    key = replace(KEY, limits=Limits(requests_per_minute=2, concurrent_requests=2, tokens_per_minute=100))
    slots.capacity = 0
    task = asyncio.create_task(admit(key=key))
    await waits(admission, 1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert admission.waiting("demo") == 0
    slots.capacity = 2
    grant = await admit(key=key)
    assert (grant.requests_left, grant.tokens_left) == (1, 70)


async def test_a_slot_granted_in_the_moment_of_the_cancel_goes_to_the_next(
    admission: Admission, slots: Places, admit: Callable[..., Any]
) -> None:
    slots.capacity = 1
    held = await admit()
    first, second = asyncio.create_task(admit()), asyncio.create_task(admit())
    await waits(admission, 2)
    held.release()
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    async with await second:
        assert admission.granted("demo") == 1
    assert admission.granted("demo") == 0


@pytest.mark.parametrize(
    ("limits", "name"),
    [
        (Limits(requests_per_minute=1), "requests_per_minute"),
        (Limits(tokens_per_minute=40), "tokens_per_minute"),
        (Limits(concurrent_requests=1), "concurrent_requests"),
    ],
)
@pytest.mark.parametrize("of", ["key", "route"])
async def test_a_limit_is_named_with_when_to_come_again(
    admit: Callable[..., Any], limits: Limits, name: str, of: str
) -> None:
    key = replace(KEY, limits=limits) if of == "key" else KEY
    route = replace(ROUTE, limits=limits) if of == "route" else ROUTE
    held = await admit(key=key, route=route)
    with pytest.raises(Refused) as caught:
        await admit(key=key, route=route)
    refused = caught.value
    assert (refused.status, refused.code) == (429, "rate_limit_exceeded")
    assert refused.limit_name == f"{of}.{name}"
    assert refused.retry_after_seconds is not None
    assert 1 <= refused.retry_after_seconds <= 61
    held.settle(1, 1)
    held.release()
    if name != "requests_per_minute":
        await admit(key=key, route=route)


async def test_what_the_queue_refused_was_not_used(admit: Callable[..., Any], slots: Places) -> None:
    key = replace(KEY, limits=Limits(requests_per_minute=1))
    slots.capacity = 0
    with pytest.raises(Refused, match="overloaded"):
        await admit(key=key, route=replace(ROUTE, queue_size=0))
    slots.capacity = 1
    assert (await admit(key=key)).requests_left == 0


async def test_what_can_never_be_admitted_is_said_at_once(admit: Callable[..., Any]) -> None:
    key = replace(KEY, limits=Limits(max_tokens=100, tokens_per_minute=50))
    with pytest.raises(Refused) as caught:
        await admit(key=key, max_tokens=101)
    assert (caught.value.status, caught.value.limit_name) == (400, "max_tokens")
    with pytest.raises(Refused) as caught:
        await admit(key=key, prompt_tokens=51)
    assert (caught.value.status, caught.value.limit_name) == (400, "key.tokens_per_minute")
    assert caught.value.retry_after_seconds is None
    # Longer than the minute allows, but perhaps shorter in truth: it may try.
    assert (await admit(key=key, prompt_tokens=50, max_tokens=100)).tokens_left == 0


async def test_names_that_lead_to_the_same_share_one_line_by_class(slots: Places) -> None:
    shared = Lanes(1, lambda route, text: "both")
    admission = Admission(shared, limits=SharedLimits(url="redis://127.0.0.1:1/0"))
    order: list[str] = []

    async def one(name: str, priority: Priority) -> None:
        given: dict[str, Any] = {
            "prompt_tokens": 1,
            "max_tokens": 1,
            "request_id": "r",
            "priority": priority,
        }
        async with await admission.admit(KEY, replace(ROUTE, name=name), **given) as grant:
            assert (grant.place, shared.held) == (PLACE, 1)
            order.append(name)

    held = await admission.admit(KEY, ROUTE, prompt_tokens=1, max_tokens=1, request_id="r", priority=NORMAL)
    tasks = [
        asyncio.create_task(one(name, priority))
        for name, priority in (("demo", LOW), ("alias", NORMAL), ("other", HIGH))
    ]
    await aeventually(lambda: all(admission.waiting(name) == 1 for name in ("demo", "alias", "other")))
    held.release()
    await asyncio.gather(*tasks)
    assert order == ["other", "alias", "demo"]
    assert (shared.held, admission.granted("demo"), admission.waiting("alias")) == (0, 0, 0)
    await admission.close()


async def test_lines_that_want_the_same_slots_take_turns(slots: Places) -> None:
    slots.capacity = 1
    admission = Admission(slots, limits=SharedLimits(url="redis://127.0.0.1:1/0"))
    order: list[str] = []

    async def one(name: str) -> None:
        given: dict[str, Any] = {"prompt_tokens": 1, "max_tokens": 1, "request_id": "r", "priority": NORMAL}
        async with await admission.admit(KEY, replace(ROUTE, name=name), **given):
            order.append(name)

    held = await admission.admit(KEY, ROUTE, prompt_tokens=1, max_tokens=1, request_id="r", priority=NORMAL)
    tasks = [asyncio.create_task(one(name)) for name in ("a", "a", "a", "b", "b")]
    await aeventually(lambda: admission.waiting("a") + admission.waiting("b") == 5)
    held.release()
    await asyncio.gather(*tasks)
    assert order == ["a", "b", "a", "b", "a"]
    await admission.close()


async def test_a_request_that_goes_elsewhere_frees_its_slot(
    admission: Admission, slots: Places, admit: Callable[..., Any]
) -> None:
    grant = await admit()
    grant.move(replace(PLACE, uid="other"))
    assert (grant.place.uid, slots.held) == ("other", 1)
    grant.release()
    grant.move(PLACE)
    assert slots.held == 0


async def test_what_needs_no_slot_waits_for_none(
    admission: Admission, slots: Places, admit: Callable[..., Any]
) -> None:
    slots.capacity = 0
    key = replace(KEY, limits=Limits(requests_per_minute=1))
    async with await admission.count(key, ROUTE, "r") as grant:
        assert (grant.place, grant.requests_left, slots.held) == (None, 0, 0)
    with pytest.raises(Refused, match="requests a minute"):
        await admission.count(key, ROUTE, "r")


async def test_a_route_that_goes_lets_nobody_wait_behind_it(slots: Places) -> None:
    shared = Lanes(0, lambda route, text: "both")
    admission = Admission(shared, limits=SharedLimits(url="redis://127.0.0.1:1/0"))
    given: dict[str, Any] = {"prompt_tokens": 1, "max_tokens": 1, "request_id": "r", "priority": NORMAL}
    tasks = [
        asyncio.create_task(admission.admit(KEY, replace(ROUTE, name=name), **given))
        for name in ("gone", "demo")
    ]
    await aeventually(lambda: admission.waiting("gone") + admission.waiting("demo") == 2)
    take = shared.take
    shared.take = lambda route, text: None if route == "gone" else take(route, text)  # type: ignore[method-assign]
    shared.capacity = 1
    admission.room_grew()
    with pytest.raises(Refused, match="was changed"):
        await tasks[0]
    (await tasks[1]).release()
    assert shared.held == 0
    await admission.close()


def test_the_longest_answer() -> None:
    key, route = replace(KEY, limits=Limits(max_tokens=100)), replace(ROUTE, limits=Limits(max_tokens=50))
    assert allowed_max_tokens(key, route) == 50
    assert allowed_max_tokens(key, ROUTE) == 100
    assert allowed_max_tokens(KEY, ROUTE) is None
