"""POST /tokenize: ids out of the engine's own tokenizer, and who has none."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web

from apps.streaming.token_source import Endpoint
from tests.gateway.path.serving import openai, post, route, served, triton
from tests.streaming.upstreams import ENSEMBLE_INPUTS, OUR_INPUTS, OUR_OUTPUTS
from tests.support.gateway import CHATML
from tests.support.waiting import aeventually

IDS = [1, 15496, 995]


@contextlib.asynccontextmanager
async def server(answer: Any, ours: bool = True) -> AsyncIterator[tuple[Any, list[tuple[str, Any]]]]:
    """A Triton that gives this answer (or status) to whatever is posted; (its endpoint, what was asked)."""
    asked: list[tuple[str, Any]] = []

    async def metadata(request: web.Request) -> web.Response:
        inputs = OUR_INPUTS if ours else ENSEMBLE_INPUTS
        outputs = OUR_OUTPUTS if ours else ("text_output",)
        declared = [{"name": name, "datatype": datatype} for name, datatype in inputs.items()]
        return web.json_response({"inputs": declared, "outputs": [{"name": name} for name in outputs]})

    async def ask(request: web.Request) -> web.Response:
        asked.append((request.path, await request.json()))
        if isinstance(answer, int):
            return web.json_response({"error": "Request for unknown model: 'x' is not found"}, status=answer)
        return web.json_response(answer)

    app = web.Application()
    app.router.add_get("/v2/models/demo", metadata)
    app.router.add_post("/v2/models/{path:.*}", ask)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield Endpoint(f"http://127.0.0.1:{runner.addresses[0][1]}", "127.0.0.1:9", "demo"), asked
    finally:
        await runner.cleanup()


async def tokenize(gate: Any, **body: Any) -> tuple[int, Any]:
    """(status, body) of the answer."""
    sent = json.dumps({"model": "demo", **body}).encode()
    head, _, said = (await gate.answer(post(gate.key, sent, "/tokenize"))).partition(b"\r\n\r\n")
    return int(head[9:12]), json.loads(said)


TOLD = {"text_output": json.dumps(IDS), "finish_reason": "tokenized", "prompt_tokens": 3}


@pytest.mark.parametrize(
    ("body", "text", "special"),
    [
        ({"prompt": "Hello world"}, "Hello world", True),
        ({"prompt": "Hello world", "add_special_tokens": False}, "Hello world", False),
        ({"messages": [{"role": "user", "content": "Hi"}]}, "<|im_start|>assistant\n", True),
        (
            {"messages": [{"role": "user", "content": "Hi"}], "add_generation_prompt": False},
            "Hi<|im_end|>\n",
            True,
        ),
    ],
)
async def test_the_engine_tells_ids(body: dict[str, Any], text: str, special: bool) -> None:
    async with (
        server(TOLD) as (endpoint, asked),
        served(route(triton(endpoint), max_sequence_tokens=64, template=CHATML)) as gate,
    ):
        assert await tokenize(gate, **body) == (200, {"count": 3, "max_model_len": 64, "tokens": IDS})
        record = await gate.last()
    ((path, sent),) = asked
    assert path == "/v2/models/demo/generate"
    assert sent["text_input"].endswith(text)
    assert (sent["tokenize_only"], sent["add_special_tokens"]) == (True, special)
    # Nothing was computed, so nothing is charged.
    assert (record.endpoint, record.outcome) == ("tokenize", "ok")
    assert (record.prompt_tokens, record.completion_tokens) == (None, None)


async def test_the_ensembles_first_step_is_asked() -> None:
    told = {"outputs": [{"name": "INPUT_ID", "datatype": "INT32", "shape": [1, 3], "data": IDS}]}
    async with server(told, ours=False) as (endpoint, asked), served(route(triton(endpoint))) as gate:
        assert (await tokenize(gate, prompt="Hello"))[1]["tokens"] == IDS
        assert asked[0][0] == "/v2/models/preprocessing/infer"
        assert asked[0][1]["inputs"][0]["data"] == ["Hello"]
        status, said = await tokenize(gate, prompt="Hello", add_special_tokens=True)
        assert (status, said["error"]["param"]) == (400, "add_special_tokens")


@pytest.mark.parametrize(
    ("answer", "ours", "status", "code"),
    [
        # A server that does not know the parameter has answered.
        ({"text_output": "He", "finish_reason": "length", "prompt_tokens": 3}, True, 501, "not_supported"),
        (400, False, 501, "not_supported"),
        (404, False, 501, "not_supported"),
        ({"text_output": "[1, null]", "finish_reason": "tokenized"}, True, 502, "protocol_error"),
        ({"text_output": "[1,", "finish_reason": "tokenized"}, True, 502, "protocol_error"),
        ({"outputs": []}, False, 502, "protocol_error"),
        (["nothing"], True, 502, "protocol_error"),
    ],
)
async def test_what_cannot_tell_says_so(answer: Any, ours: bool, status: int, code: str) -> None:
    async with server(answer, ours) as (endpoint, _asked), served(route(triton(endpoint))) as gate:
        found, said = await tokenize(gate, prompt="Hello")
        assert (found, said["error"]["code"]) == (status, code)


async def test_what_is_served_elsewhere_or_nowhere() -> None:
    async with served(route(openai(9)), route(name="none")) as gate:
        assert (await tokenize(gate, prompt="Hello"))[0] == 400
        assert (await tokenize(gate, prompt="Hello", model="none"))[0] == 503


async def test_it_waits_for_no_slot() -> None:
    async with server(TOLD) as (endpoint, _asked), served(route(triton(endpoint, slots=1))) as gate:
        gate.parts.balancer.taken("one")
        assert (await tokenize(gate, prompt="Hello"))[0] == 200


async def test_what_sleeps_is_waited_for() -> None:
    async with server(TOLD) as (endpoint, _asked):
        asleep = route(template=CHATML, wakes=True)
        async with served(asleep) as gate:
            asking = asyncio.create_task(tokenize(gate, prompt="Hello world"))
            await aeventually(lambda: gate.parts.admission.waiting("demo") == 1)
            gate.set_routes(route(triton(endpoint), max_sequence_tokens=64, template=CHATML))
            assert await asking == (200, {"count": 3, "max_model_len": 64, "tokens": IDS})
            assert (await gate.last()).queue_seconds is not None
            gate.set_routes(route(template=CHATML, wakes=True, queue_seconds=0.05))
            status, said = await tokenize(gate, prompt="Hello world")
            assert (status, said["error"]["code"]) == (503, "queue_timeout")
