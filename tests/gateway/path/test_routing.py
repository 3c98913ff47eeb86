"""Shares, room, prefixes, lengths, health, retries and fallbacks."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import openai as official
import pytest

from apps.gateway.domain.facts import Route, Upstream
from apps.gateway.routing.balancer import Balancer
from apps.gateway.routing.health import FAILURES, Health
from apps.gateway.routing.prefixes import BLOCK, KEPT, Prefixes
from tests.gateway.path.serving import double, openai, route, served, triton
from tests.streaming.upstreams import Upstream as Answering
from tests.streaming.upstreams import http_server, last
from tests.support.waiting import aeventually

MESSAGES: Any = [{"role": "user", "content": "Hi"}]


class Clock:
    """Time as the test says."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


def replica(uid: str, slots: int | None = 4, **more: Any) -> Upstream:
    more.setdefault("deployment_id", 1)
    more.setdefault("revision", 1)
    return Upstream(uid, "triton", "http://127.0.0.1:9", slots=slots, **more)


def chosen(balancer: Balancer, known: Route, text: str = "", excluded: tuple[str, ...] = ()) -> str:
    found = balancer.choose(known, lambda: text, excluded)
    return found.uid if found else ""


def test_shares_are_exact_over_time() -> None:
    balancer = Balancer()
    known = Route("m", (replica("a", None, weight=0.9), replica("b", None, weight=0.1, revision=2)))
    picked = Counter(chosen(balancer, known) for _ in range(100))
    assert picked == {"a": 90, "b": 10}


def test_replicas_of_a_revision_share_its_weight_by_least_outstanding_work() -> None:
    balancer = Balancer(prefixes=False)
    known = Route("m", (replica("a", weight=0.5), replica("b", weight=0.5)))
    for _ in range(6):
        balancer.taken(chosen(balancer, known))
    assert (balancer.outstanding("a"), balancer.outstanding("b")) == (3, 3)
    balancer.done("a")
    assert chosen(balancer, known) == "a"


def test_a_larger_replica_takes_more() -> None:
    balancer = Balancer(prefixes=False)
    known = Route("m", (replica("small", 2), replica("large", 8)))
    for _ in range(10):
        balancer.taken(chosen(balancer, known))
    assert (balancer.outstanding("small"), balancer.outstanding("large")) == (2, 8)


def test_a_share_whose_replicas_are_full_gives_its_turn_away() -> None:
    balancer = Balancer()
    known = Route("m", (replica("a", 1, weight=0.9), replica("b", 4, weight=0.1, revision=2)))
    balancer.taken("a")
    assert {chosen(balancer, known) for _ in range(10)} == {"b"}


def test_a_weight_of_nothing_is_the_last_resort() -> None:
    balancer = Balancer()
    known = Route("m", (replica("a", None, weight=1.0), replica("b", None, weight=0.0, revision=2)))
    assert {chosen(balancer, known) for _ in range(10)} == {"a"}
    assert chosen(balancer, known, excluded=("a",)) == "b"


def test_equal_beginnings_go_to_the_same_replica_while_it_has_room() -> None:
    balancer = Balancer()
    known = Route("m", tuple(replica(uid) for uid in "abc"))
    system = "You are helpful. " * (BLOCK // 8)
    first = chosen(balancer, known, system + "one")
    balancer.taken(first)
    assert chosen(balancer, known, system + "two") == first
    for _ in range(2):
        balancer.taken(first)
    assert chosen(balancer, known, system + "three") != first


def test_prefixes_are_bounded() -> None:
    prefixes = Prefixes()
    for number in range(KEPT + 100):
        prefixes.remember("m", [number], "a")
    assert prefixes.holders("m", [0]) == []
    assert prefixes.holders("m", [KEPT + 99]) == ["a"]


@pytest.mark.parametrize(("letters", "uid"), [(100, "short"), (4000, "middle"), (40_000, "any")])
def test_lengths_go_to_their_buckets(letters: int, uid: str) -> None:
    balancer = Balancer()
    known = Route(
        "m",
        (
            replica("short", max_prompt_tokens=256, deployment_id=1),
            replica("middle", max_prompt_tokens=2048, deployment_id=2),
            replica("any", deployment_id=3),
        ),
    )
    assert chosen(balancer, known, "x" * letters) == uid


def test_a_prompt_waits_for_the_slots_of_its_length() -> None:
    balancer = Balancer()
    short = replica("short", 1, max_prompt_tokens=256, deployment_id=1)
    known = Route(
        "m",
        (short, replica("any", 1, deployment_id=2)),
        targets=(("deployment:1", 256), ("deployment:2", None)),
    )
    alias = Route("alias", (replica("short", 1, deployment_id=1),), targets=(("deployment:1", None),))
    brief, long = (lambda: "x" * 100), (lambda: "x" * 4000)
    assert balancer.lane(known, brief) == frozenset({"deployment:1"}) == balancer.lane(alias, long)
    assert balancer.lane(known, long) == frozenset({"deployment:2"})
    assert balancer.lane(Route("m", ()), brief) == "m"
    balancer.taken("short")
    assert (balancer.room(known, brief), balancer.room(known, long), balancer.room(alias, brief)) == (
        False,
        True,
        False,
    )
    # A bucket whose upstreams are aside leaves its prompts to the next one.
    balancer.health.failed("short", at_once=True)
    assert balancer.room(known, brief)
    assert chosen(balancer, known, "x") == "any"


async def test_two_names_of_one_deployment_share_its_slots() -> None:
    running, opened = 0, asyncio.Event()

    async def enter() -> None:
        nonlocal running
        running += 1
        await opened.wait()

    targets = (("deployment:1", None),)
    async with http_server(Answering([enter, last("b")])) as endpoint:
        one = triton(endpoint, slots=2)
        known = [route(one, name=name, targets=targets) for name in ("demo", "alias")]
        async with served(*known) as gate:
            admission = gate.parts.admission
            tasks = [
                asyncio.create_task(gate.client().chat.completions.create(model=name, messages=MESSAGES))
                for name in ("demo", "alias") * 4
            ]
            await aeventually(
                lambda: (running, admission.waiting("demo") + admission.waiting("alias")) == (2, 6)
            )
            assert gate.parts.balancer.outstanding(one.uid) == 2
            opened.set()
            answers = await asyncio.gather(*tasks)
            assert {answer.model for answer in answers} == {"demo", "alias"}
            assert gate.parts.balancer.outstanding(one.uid) == 0


def test_capacity_is_that_of_what_is_usable() -> None:
    balancer = Balancer()
    known = Route("m", (replica("a", 4), replica("b", 8)))
    assert balancer.capacity(known) == 12
    balancer.health.failed("a", at_once=True)
    assert balancer.capacity(known) == 8
    assert Balancer(divide_by=2).capacity(known) == 6
    assert balancer.capacity(Route("m", (replica("a", None),))) == 0
    assert balancer.capacity(Route("m", (replica("c", None),))) is None


def test_outliers_are_put_aside_longer_each_time() -> None:
    clock = Clock()
    health = Health(clock)
    for _ in range(FAILURES - 1):
        assert not health.failed("a", at_once=False)
    assert health.usable("a")
    assert health.failed("a", at_once=False)
    assert not health.usable("a")
    clock.now += 1.1
    assert health.usable("a")
    assert health.returned() == ["a"]
    assert health.returned() == []
    assert health.failed("a", at_once=False)
    clock.now += 1.1
    assert not health.usable("a")
    clock.now += 1.0
    assert health.usable("a")
    health.succeeded("a")
    assert not health.failed("a", at_once=False)
    health.keep(set())
    assert health.usable("a")


async def test_a_dead_replica_is_passed_over_before_the_first_token() -> None:
    answering = Answering([last("alive")])
    async with http_server(answering) as endpoint:
        dead = replica("dead", weight=100.0)
        async with served(route(dead, triton(endpoint, "alive"))) as gate:
            for _ in range(4):
                answer = await gate.client().chat.completions.create(model="demo", messages=MESSAGES)
                assert answer.choices[0].message.content == "alive"
            assert not gate.parts.balancer.health.usable("dead")
            assert [record.upstream for record in gate.records] == ["alive"] * 4


async def test_a_route_falls_back_to_another_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("apps.gateway.generation.QUEUED_AGAIN", 0)
    async with double() as (port, _counts):
        first = route(replica("dead"), name="demo", fallback="spare")
        spare = route(openai(port), name="spare", fallback="demo")
        async with served(first, spare) as gate:
            answer = await gate.client().chat.completions.create(model="demo", messages=MESSAGES)
            record = await gate.last()
            assert answer.choices[0].message.content == "tok0 tok1 tok2 "
            assert (record.route, record.upstream) == ("demo", "external:double")
            gate.set_routes(first, route(name="spare", fallback="demo"))
            with pytest.raises(official.InternalServerError) as failed:
                await gate.client().chat.completions.create(model="demo", messages=MESSAGES)
            assert failed.value.status_code == 503


async def test_a_bad_request_is_not_tried_elsewhere() -> None:
    refusing = Answering([{"status": 400, "error": "max_tokens: must be below 9"}])
    async with http_server(refusing) as endpoint:
        known = route(triton(endpoint, "one"), triton(endpoint, "two"))
        async with served(known) as gate:
            with pytest.raises(official.BadRequestError, match="below 9"):
                await gate.client().chat.completions.create(model="demo", messages=MESSAGES)
            assert gate.parts.balancer.health.usable("one")
    assert len(refusing.asked) == 1
