"""The official client through the gateway to a real Triton: a real small LLM, and the token pump beside it."""

from __future__ import annotations

import json
import re
import shutil
import urllib.request
from dataclasses import replace
from pathlib import Path
from typing import Any

import openai as official
import pytest

from apps.serving.domain import repository
from apps.serving.domain.batching import BatchingFacts
from apps.streaming.token_source import Endpoint
from benchmarks.serving import MODEL_CODE, RunningServer, find_installation, serve_folder
from tests.gateway.path.serving import Served, post, route, served, triton
from tests.support.triton import find_gguf
from tests.support.triton import find_installation as find_values
from tests.support.waiting import aeventually

pytestmark = [pytest.mark.triton, pytest.mark.timeout(240)]
PUMP = Path(__file__).parents[2] / "data/pump"
CAPITAL: Any = [{"role": "user", "content": "What is the capital of France?"}]


def fill(root: Path) -> None:
    """The LLM and the pump."""
    facts = BatchingFacts("inflight", 2, 512, 2, 16, 0)
    code = {path.name: path.read_bytes() for path in sorted(MODEL_CODE.glob("*.py"))}
    model = repository.LlamaCppModel("demo", str(find_gguf().resolve()), "cpu", facts)
    for file in repository.files(model, code):
        (root / file.path).parent.mkdir(parents=True, exist_ok=True)
        (root / file.path).write_bytes(file.content)
    shutil.copytree(PUMP, root / "pump")


def running_slots(server: RunningServer) -> float:
    """Requests that the LLM computes now, by its own metric."""
    with urllib.request.urlopen(server.metrics_url, timeout=10) as response:
        text = response.read().decode()
    found = re.findall(r"^inflight_requests_running\S* (\S+)$", text, re.MULTILINE)
    assert found
    return sum(map(float, found))


async def test_a_real_model_and_a_pump() -> None:
    with serve_folder(find_installation(find_values().values), fill) as server:
        for name in ("demo", "pump"):
            server.control(f"/v2/repository/models/{name}/load")
        endpoint = Endpoint(server.http_url, server.grpc_url, "demo")
        pump = replace(triton(endpoint, "pump-1", slots=64), model="pump")
        async with served(route(triton(endpoint, "llm-1", slots=2)), route(pump, name="pump")) as gate:
            await ask(gate.client())
            await count(gate)
            stream = await gate.client().chat.completions.create(
                model="demo",
                messages=CAPITAL,
                stream=True,
                max_tokens=400,
                extra_body={"min_tokens": 400},
            )
            await anext(aiter(stream))
            await stream.close()
            record = await gate.last()
            assert (record.outcome, record.reason) == ("cancelled", "client_gone")
            await aeventually(lambda: running_slots(server) == 0, "the slot is free again")
            pumped = await gate.client().chat.completions.create(
                model="pump", messages=CAPITAL, max_tokens=20, stream=True
            )
            text = "".join([chunk.choices[0].delta.content or "" async for chunk in pumped])
            assert text == "".join(f" tok{number}" for number in range(20))


async def count(gate: Served) -> None:
    """Tokens without generating: as many as the engine reads, told by its own tokenizer."""

    async def tokens(**body: Any) -> list[int]:
        sent = json.dumps({"model": "demo", **body}).encode()
        answer = (await gate.answer(post(gate.key, sent, "/tokenize"))).partition(b"\r\n\r\n")[2]
        found = json.loads(answer)
        assert found["count"] == len(found["tokens"])
        return list(found["tokens"])

    asked = await gate.client().completions.create(model="demo", prompt="Once upon a time", max_tokens=1)
    chat = await gate.client().chat.completions.create(model="demo", messages=CAPITAL, max_tokens=1)
    assert asked.usage is not None
    assert chat.usage is not None
    assert len(await tokens(prompt="Once upon a time")) == asked.usage.prompt_tokens
    assert len(await tokens(messages=CAPITAL)) == chat.usage.prompt_tokens
    once = await tokens(prompt="Once", add_special_tokens=False)
    assert (await tokens(prompt="Once upon", add_special_tokens=False))[: len(once)] == once
    # Longer than any slot: counted all the same.
    assert len(await tokens(prompt="word " * 2000)) > 1000


async def ask(client: official.AsyncOpenAI) -> None:
    """What an application asks."""
    whole = await client.chat.completions.create(
        model="demo", messages=CAPITAL, temperature=0, max_tokens=24, logprobs=True, top_logprobs=2
    )
    assert "Paris" in (whole.choices[0].message.content or "")
    assert whole.usage is not None
    assert whole.usage.prompt_tokens > 10
    assert whole.choices[0].logprobs is not None
    assert len(whole.choices[0].logprobs.content or []) == whole.usage.completion_tokens
    stream = await client.chat.completions.create(
        model="demo",
        messages=CAPITAL,
        temperature=0,
        max_tokens=24,
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = [chunk async for chunk in stream]
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == whole.choices[0].message.content
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens
    drawn = [
        (await client.completions.create(model="demo", prompt="Once upon", seed=7, max_tokens=8))
        .choices[0]
        .text
        for _ in range(2)
    ]
    assert drawn[0] == drawn[1]
    stopped = await client.completions.create(
        model="demo", prompt="1 2 3 4", temperature=0, max_tokens=16, stop=["7"]
    )
    assert "7" not in stopped.choices[0].text
    with pytest.raises(official.BadRequestError) as refused:
        await client.chat.completions.create(
            model="demo", messages=CAPITAL, response_format={"type": "json_object"}
        )
    assert refused.value.code == "unsupported_parameter"
    with pytest.raises(official.BadRequestError):
        await client.completions.create(model="demo", prompt="word " * 2000)
