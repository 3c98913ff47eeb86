"""The scripts in a real Redis: equal to the plain counters, shared, atomic, and away sometimes."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable

import pytest
import redis

from apps.gateway.access import limits as limits_module
from apps.gateway.access.limits import SharedLimits, Taken
from apps.gateway.domain.windows import Ask, Denied, LocalLimits, Scope
from tests.support.redis import RedisServer
from tests.support.waiting import aeventually

pytestmark = pytest.mark.integration


@pytest.fixture
async def shared(redis_server: RedisServer) -> AsyncIterator[Callable[..., SharedLimits]]:
    """Makes the limits of one process after the other."""
    made: list[SharedLimits] = []

    def make(processes: int = 1) -> SharedLimits:
        made.append(SharedLimits(processes))
        return made[-1]

    yield make
    for one in made:
        await one.close()


def ask(*scopes: Scope, tokens: int = 10, member: str = "m") -> Ask:
    return Ask(member, tokens, scopes)


def now_of(client: redis.Redis) -> float:
    seconds, micro = client.time()  # type: ignore[misc]
    return float(seconds) + float(micro) / 1e6


async def test_the_script_says_what_the_plain_counters_say(
    shared: Callable[..., SharedLimits], redis_server: RedisServer
) -> None:
    store, chance = shared(), random.Random(11)
    key, route = Scope("k:1", 25, 900, 4), Scope("r:a", 40, None, None)
    with redis_server.client(3) as client:
        plain = LocalLimits(lambda: now_of(client))
        running: list[tuple[Taken, Taken]] = []
        for number in range(150):
            wanted = ask(key, route, tokens=chance.randrange(1, 120), member=str(number))
            found, expected = await store.take(wanted), plain.admit(wanted)
            if isinstance(expected, Denied):
                assert isinstance(found, Denied)
                assert (found.scope, found.limit, found.most) == (
                    expected.scope,
                    expected.limit,
                    expected.most,
                )
                assert found.wait_seconds == pytest.approx(expected.wait_seconds, abs=1.1)
            else:
                assert isinstance(found, Taken)
                assert not found.local
                assert found.admitted.tokens_left == expected.tokens_left
                assert found.admitted.requests_left == expected.requests_left
                running.append((found, Taken(wanted, expected, local=True)))
            while len(running) > 3 or (running and chance.random() < 0.4):
                ended, same = running.pop(chance.randrange(len(running)))
                used, counts = chance.randrange(0, 120), chance.random() < 0.8
                store.give_back(ended, used, counts)
                plain.release(same.ask, same.admitted, used, counts)


async def test_two_processes_share_one_limit(shared: Callable[..., SharedLimits]) -> None:
    first, second = shared(2), shared(2)
    scope = Scope("k:1", requests=10)
    found = await asyncio.gather(
        *(store.take(ask(scope, member=f"{n}")) for n in range(20) for store in (first, second))
    )
    assert sum(isinstance(item, Taken) for item in found) == 10
    assert {item.limit for item in found if isinstance(item, Denied)} == {"requests_per_minute"}


async def test_a_killed_process_gives_its_count_back(
    shared: Callable[..., SharedLimits], redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits_module, "_LEASE_MS", 300)
    scope = Scope("k:1", concurrent=1)
    killed, other = shared(), shared()
    assert isinstance(await killed.take(ask(scope, member="a")), Taken)
    assert isinstance(await other.take(ask(scope, member="b")), Denied)

    async def room() -> bool:
        return isinstance(await other.take(ask(scope, member="b")), Taken)

    await aeventually(room, "the lease lapses")


async def test_what_runs_says_so(
    shared: Callable[..., SharedLimits], monkeypatch: pytest.MonkeyPatch, redis_server: RedisServer
) -> None:
    monkeypatch.setattr(limits_module, "_LEASE_MS", 400)
    monkeypatch.setattr(limits_module, "RENEW_SECONDS", 0.05)
    store = shared()
    assert isinstance(await store.take(ask(Scope("k:1", concurrent=1), member="a")), Taken)
    with redis_server.client(3) as client:
        (_member, first), *_none = client.zrange("gw:c:k:1", 0, -1, withscores=True)  # type: ignore[misc]

        def later() -> bool:
            found = client.zrange("gw:c:k:1", 0, -1, withscores=True)
            return bool(found) and found[0][1] > first + 400  # type: ignore[index]

        await aeventually(later, "the lease is renewed past its first end")


async def test_nothing_is_left_behind(shared: Callable[..., SharedLimits], redis_server: RedisServer) -> None:
    store = shared()
    taken = await store.take(ask(Scope("k:1", 5, 100, 5), Scope("r:a", 5, 100, 5)))
    assert isinstance(taken, Taken)
    store.give_back(taken, 0, counts=False)
    with redis_server.client(3) as client:
        await aeventually(lambda: not client.exists("gw:c:k:1", "gw:c:r:a"), "both leases are gone")
        for name in ("gw:r:k:1", "gw:t:k:1", "gw:r:r:a", "gw:t:r:a"):
            assert list(client.hgetall(name).values()) == ["0"]  # type: ignore[union-attr]
            assert 0 < client.ttl(name) <= 120  # type: ignore[operator]


async def test_a_cancelled_admission_leaves_no_count(
    shared: Callable[..., SharedLimits], redis_server: RedisServer
) -> None:
    store = shared()
    scope = Scope("k:1", requests=50, concurrent=50)
    tasks = [asyncio.create_task(store.take(ask(scope, member=str(n)))) for n in range(20)]
    await asyncio.sleep(0)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    with redis_server.client(3) as client:
        await aeventually(lambda: client.zcard("gw:c:k:1") == 0, "every cancelled one is taken back")
    assert isinstance(await store.take(ask(scope, member="after")), Taken)
    assert not store.away


async def test_a_restarted_redis_has_forgotten_the_scripts(
    shared: Callable[..., SharedLimits], redis_server: RedisServer
) -> None:
    store = shared()
    scope = Scope("k:1", requests=5)
    assert isinstance(await store.take(ask(scope)), Taken)
    with redis_server.client() as client:
        client.script_flush()
    again = await store.take(ask(scope, member="2"))
    assert isinstance(again, Taken)
    assert not again.local
    assert again.admitted.requests_left == 3


async def test_away_and_back(
    shared: Callable[..., SharedLimits], redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits_module, "AWAY_SECONDS", 0.05)
    store = shared(2)
    scope = Scope("k:1", requests=10, concurrent=10)
    before = await store.take(ask(scope, member="before"))
    assert isinstance(before, Taken)
    redis_server.stop()
    began = time.monotonic()
    taken = [await store.take(ask(scope, member=str(n))) for n in range(8)]
    assert time.monotonic() - began < 8 * limits_module.ANSWER_SECONDS + 1
    # Half of the limit: the other process has the other half.
    assert [isinstance(item, Taken) and item.local for item in taken] == [True] * 5 + [False] * 3
    assert store.away
    store.give_back(before, 5)
    for item in taken:
        if isinstance(item, Taken):
            store.give_back(item, 5)
    redis_server.start()

    async def back() -> bool:
        found = await store.take(ask(Scope("k:2", requests=1000), member="x"))
        return isinstance(found, Taken) and not found.local

    await aeventually(back, "Redis is asked again")
    assert not store.away


async def test_a_redis_that_hangs_costs_a_moment(
    shared: Callable[..., SharedLimits], redis_server: RedisServer
) -> None:
    store = shared()
    scope = Scope("k:1", requests=1000)
    assert isinstance(await store.take(ask(scope, member="0")), Taken)
    with redis_server.client() as client:
        client.client_pause(1500, all=True)
        began = time.monotonic()
        found = await asyncio.gather(*(store.take(ask(scope, member=str(n))) for n in range(50)))
        assert time.monotonic() - began < 1.2
    assert all(isinstance(item, Taken) and item.local for item in found)
