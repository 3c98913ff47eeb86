"""An upstream that dies under load: what callers notice of it, and for how long."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from dataclasses import replace
from typing import Any

import openai as official
import pytest

from apps.gateway.wiring import RETURN_SECONDS
from tests.gateway.path.serving import Served, openai, route, served, triton
from tests.streaming.upstreams import Upstream, http_server, last
from tests.support import gateway as support
from tests.support.waiting import aeventually

MESSAGES: Any = [{"role": "user", "content": "Hi"}]


async def ask(gate: Served, streamed: bool, gap_ms: int = 5) -> str:
    """ok, or how it failed: refused before an answer began, or cut off in it. An answer has 40 chunks."""
    began = False
    try:
        answer: Any = await gate.client().chat.completions.create(
            model="demo",
            messages=MESSAGES,
            stream=streamed,
            metadata={"chunks": "40", "gap_ms": str(gap_ms)},
        )
        if streamed:
            async for _chunk in answer:
                began = True
    except official.APIError:
        return "cut off" if began else "refused"
    return "ok"


@pytest.mark.faults
async def test_one_of_two_upstreams_is_killed_under_load() -> None:
    with support.double_process() as kept, support.double_process() as killed:
        pid = support.listener(killed)
        known = route(openai(kept, "external:kept"), openai(killed, "external:killed"))
        async with served(known) as gate:
            # Long enough that the first has not ended when the last begins, on a busy machine too.
            streams = [asyncio.create_task(ask(gate, True, gap_ms=60)) for _ in range(20)]
            balancer = gate.parts.balancer
            await aeventually(
                lambda: [call.ttft is not None for call in gate.parts.calls] == [True] * len(streams)
            )
            hit = balancer.outstanding("external:killed")
            os.kill(pid, signal.SIGKILL)
            asked = asyncio.gather(*(ask(gate, False) for _ in range(50)))
            # For a second at first: asked while it lasts.
            await aeventually(lambda: not balancer.health.usable("external:killed"))
            answers = Counter(await asked)
            ends = Counter(await asyncio.gather(*streams))
            # Whole answers and new streams notice nothing; what had begun there is told so.
            assert answers == {"ok": 50}
            assert ends == {"ok": 20 - hit, "cut off": hit}
            assert hit == 10
            assert Counter(await asyncio.gather(*(ask(gate, True) for _ in range(20)))) == {"ok": 20}


@pytest.mark.faults
async def test_the_only_upstream_is_killed_and_comes_back() -> None:
    with support.double_process() as port:
        pid = support.listener(port)
        async with served(route(openai(port))) as gate:
            assert await ask(gate, False) == "ok"
            os.kill(pid, signal.SIGKILL)
            await aeventually(lambda: not support.listening(port))
            # The one that finds out is put back into the queue; who asks later waits beside it.
            waiting = [asyncio.create_task(ask(gate, False)) for _ in range(3)]
            await aeventually(lambda: gate.parts.admission.waiting("demo") == 3)
            with support.double_process(port):
                assert Counter(await asyncio.gather(*waiting)) == {"ok": 3}


async def test_a_route_that_lost_its_instance_waits_for_the_next() -> None:
    upstream = Upstream([last("back")])
    async with http_server(upstream) as endpoint, served(route(triton(endpoint, "old"))) as gate:
        parts = gate.parts
        empty = replace(parts.holder.table, routes={"demo": route()})
        parts.holder.table = empty
        parts.table_changed(empty)
        asking = asyncio.create_task(ask(gate, False))
        await aeventually(lambda: parts.admission.waiting("demo") == 1)
        parts.holder.table = replace(empty, routes={"demo": route(triton(endpoint, "new"))})
        parts.table_changed(parts.holder.table)
        assert await asking == "ok"
        assert gate.records[-1].upstream == "new"
        parts.holder.table = empty
        parts.table_changed(empty)
        parts.lost_at["demo"] -= RETURN_SECONDS
        assert await ask(gate, False) == "refused"


async def test_a_request_for_what_sleeps_waits_until_it_is_awake() -> None:
    upstream = Upstream([last("awake")])
    asleep = replace(route(), wakes=True, fallback="other")
    async with http_server(upstream) as endpoint, served(asleep) as gate:
        parts = gate.parts
        asking = [asyncio.create_task(ask(gate, streams)) for streams in (False, True)]
        await aeventually(lambda: parts.admission.waiting("demo") == 2)
        awake = replace(parts.holder.table, routes={"demo": route(triton(endpoint, "woken"))})
        parts.holder.table = awake
        parts.table_changed(awake)
        assert await asyncio.gather(*asking) == ["ok", "ok"]
        assert gate.records[-1].upstream == "woken"
        assert not parts.registry.wanted
        # One that does not wake in time is told so.
        late = replace(awake, routes={"demo": replace(asleep, queue_seconds=0.05)})
        parts.holder.table = late
        parts.table_changed(late)
        assert await ask(gate, False) == "refused"
        assert gate.records[-1].reason == "queue"


async def test_where_another_route_answers_nobody_waits_for_what_sleeps_and_it_is_woken() -> None:
    upstream = Upstream([last("instead")])
    asleep = replace(route(), wakes=True, fallback="spare")
    async with http_server(upstream) as endpoint:
        spare = route(triton(endpoint, "spare"), name="spare")
        async with served(asleep, spare) as gate:
            assert [await ask(gate, streams) for streams in (False, True)] == ["ok", "ok"]
            assert gate.records[-1].upstream == "spare"
            assert gate.parts.registry.wanted == {"demo"}
            # The one that stands in takes no request any more: then the start is waited for.
            gate.parts.balancer.health.failed("spare", True)
            asking = asyncio.create_task(ask(gate, False))
            await aeventually(lambda: gate.parts.admission.waiting("demo") == 1)
            awake = {"demo": route(triton(endpoint, "woken"), fallback="spare"), "spare": spare}
            gate.parts.holder.table = replace(gate.parts.holder.table, routes=awake)
            gate.parts.table_changed(gate.parts.holder.table)
            assert await asking == "ok"
            assert gate.records[-1].upstream == "woken"
