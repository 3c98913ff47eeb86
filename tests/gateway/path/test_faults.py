"""An upstream that dies under load: what callers notice of it, and for how long."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from typing import Any

import openai as official
import pytest

from tests.gateway.path.serving import Served, openai, route, served
from tests.support import gateway as support
from tests.support.waiting import aeventually

MESSAGES: Any = [{"role": "user", "content": "Hi"}]


async def ask(gate: Served, streamed: bool) -> str:
    """ok, or how it failed: refused before an answer began, or cut off in it."""
    began = False
    try:
        answer: Any = await gate.client().chat.completions.create(
            model="demo", messages=MESSAGES, stream=streamed, metadata={"chunks": "40"}
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
            streams = [asyncio.create_task(ask(gate, True)) for _ in range(20)]
            balancer = gate.parts.balancer
            await aeventually(
                lambda: all(call.ttft is not None for call in gate.parts.calls) and gate.parts.calls
            )
            hit = balancer.outstanding("external:killed")
            os.kill(pid, signal.SIGKILL)
            answers = Counter(await asyncio.gather(*(ask(gate, False) for _ in range(50))))
            ends = Counter(await asyncio.gather(*streams))
            # Whole answers and new streams notice nothing; what had begun there is told so.
            assert answers == {"ok": 50}
            assert ends == {"ok": 20 - hit, "cut off": hit}
            assert hit == 10
            assert not balancer.health.usable("external:killed")
            assert Counter(await asyncio.gather(*(ask(gate, True) for _ in range(20)))) == {"ok": 20}


@pytest.mark.faults
async def test_the_only_upstream_is_killed_and_comes_back() -> None:
    with support.double_process() as port:
        pid = support.listener(port)
        async with served(route(openai(port))) as gate:
            assert await ask(gate, False) == "ok"
            os.kill(pid, signal.SIGKILL)
            await aeventually(lambda: not support.listening(port))
            assert await ask(gate, False) == "refused"
            # Put aside, it gets nothing; who asks now waits for it, up to the queue's bound.
            waiting = asyncio.create_task(ask(gate, False))
            await aeventually(lambda: gate.parts.admission.waiting("demo") == 1)
            with support.double_process(port):
                assert await waiting == "ok"
