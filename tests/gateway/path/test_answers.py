"""What callers get: the official client over a real socket, upstreams that speak Triton's and OpenAI's protocols."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import openai as official
import pytest

from apps.gateway.domain.facts import KeyFacts, Limits
from tests.gateway.path.serving import double, openai, post, route, served, triton
from tests.streaming.upstreams import Upstream, delta, http_server, last, never

MESSAGES: Any = [{"role": "user", "content": "Hi"}]
TOKENS = json.dumps(
    [
        {
            "token": "Hel",
            "bytes": [72, 101, 108],
            "logprob": -0.5,
            "top_logprobs": [{"token": "Hel", "bytes": [72, 101, 108], "logprob": -0.5}],
        }
    ]
)


async def test_a_stream_of_the_official_client() -> None:
    upstream = Upstream([delta("Hel"), delta("lo ✓"), last("", completion_tokens=2, cached_tokens=3)])
    async with http_server(upstream) as endpoint, served(route(triton(endpoint))) as gate:
        stream = await gate.client().chat.completions.create(
            model="demo", messages=MESSAGES, stream=True, stream_options={"include_usage": True}, max_tokens=9
        )
        chunks = [chunk async for chunk in stream]
        record = await gate.last()
    assert chunks[0].choices[0].delta.role == "assistant"
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == "Hello ✓"
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == "stop"
    usage = chunks[-1].usage
    assert usage is not None
    assert chunks[-1].choices == []
    assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (5, 2, 7)
    assert len({chunk.id for chunk in chunks}) == 1
    assert chunks[0].object == "chat.completion.chunk"
    assert upstream.asked[0]["text_input"] == "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    assert upstream.asked[0]["max_tokens"] == 9
    assert (record.outcome, record.status, record.prompt_tokens, record.completion_tokens) == (
        "ok",
        200,
        5,
        2,
    )
    assert record.ttft_seconds is not None
    assert record.overhead_seconds is not None
    assert record.upstream == "one"
    assert record.cached_tokens == 3


async def test_a_whole_answer_and_its_headers() -> None:
    upstream = Upstream([delta("Hello"), last(" you", reason="length", completion_tokens=2)])
    async with http_server(upstream) as endpoint, served(route(triton(endpoint))) as gate:
        raw = await gate.client().chat.completions.with_raw_response.create(
            model="demo", messages=MESSAGES, extra_headers={"x-request-id": "mine-1"}
        )
    answer = raw.parse()
    assert answer.choices[0].message.content == "Hello you"
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage is not None
    assert answer.usage.total_tokens == 7
    assert raw.headers["x-request-id"] == "mine-1"
    assert raw.headers["x-inflight-instance"] == "one"
    assert float(raw.headers["x-inflight-overhead-ms"]) >= 0
    assert upstream.asked[0]["id"] == "mine-1"


async def test_log_probabilities_in_both_forms() -> None:
    upstream = Upstream(
        [{"outputs": {"text_output": "Hel", "token_count": 1, "top_log_probs": TOKENS}}, last()]
    )
    async with http_server(upstream) as endpoint, served(route(triton(endpoint))) as gate:
        chat = await gate.client().chat.completions.create(
            model="demo", messages=MESSAGES, logprobs=True, top_logprobs=1
        )
        plain = await gate.client().completions.create(model="demo", prompt="Hi", logprobs=1)
        stream = await gate.client().chat.completions.create(
            model="demo", messages=MESSAGES, logprobs=True, stream=True
        )
        told = [chunk.choices[0].logprobs async for chunk in stream if chunk.choices[0].logprobs]
    assert chat.choices[0].logprobs is not None
    content = chat.choices[0].logprobs.content
    assert content is not None
    assert (content[0].token, content[0].logprob, content[0].bytes) == ("Hel", -0.5, [72, 101, 108])
    assert content[0].top_logprobs[0].token == "Hel"
    assert plain.choices[0].logprobs is not None
    assert plain.choices[0].logprobs.tokens == ["Hel"]
    assert plain.choices[0].logprobs.text_offset == [0]
    assert told[0] is not None
    assert upstream.asked[0]["num_log_probs"] == 1


async def test_completions_stream_and_whole() -> None:
    upstream = Upstream([delta("a"), last("b", completion_tokens=2)])
    async with http_server(upstream) as endpoint, served(route(triton(endpoint))) as gate:
        whole = await gate.client().completions.create(model="demo", prompt="Say", stop=["x", "y"], seed=-1)
        stream = await gate.client().completions.create(model="demo", prompt="Say", stream=True)
        text = [chunk.choices[0].text async for chunk in stream]
    assert whole.choices[0].text == "ab"
    assert whole.object == "text_completion"
    assert "".join(text) == "ab"
    assert upstream.asked[0]["text_input"] == "Say"
    assert upstream.asked[0]["max_tokens"] == 16
    assert upstream.asked[0]["stop_words"] == ["x", "y"]
    assert upstream.asked[0]["seed"] == 2**63 - 1


async def test_stop_strings_end_the_text_where_the_model_has_no_input_for_them() -> None:
    upstream = Upstream(
        [{"outputs": {"text_output": text}} for text in ("one ", "tw", "o STO", "P three")],
        inputs={"text_input": "BYTES", "max_tokens": "INT32"},
        outputs=("text_output",),
    )
    async with http_server(upstream) as endpoint, served(route(triton(endpoint))) as gate:
        whole = await gate.client().completions.create(model="demo", prompt="Say", stop="STOP")
    assert whole.choices[0].text == "one two "
    assert whole.usage is None


async def test_models_are_those_that_the_key_may_use() -> None:
    key = KeyFacts(1, "app", "ik-", routes=frozenset({"b"}))
    async with served(route(name="a"), route(name="b", created=7), key=key) as gate:
        client = gate.client()
        assert [(model.id, model.created) async for model in client.models.list()] == [("b", 7)]
        assert (await client.models.retrieve("b")).id == "b"
        with pytest.raises(official.NotFoundError) as hidden:
            await client.models.retrieve("a")
        with pytest.raises(official.NotFoundError) as unknown:
            await client.chat.completions.create(model="a", messages=MESSAGES)
    assert hidden.value.code == "model_not_found"
    assert unknown.value.param == "model"


async def test_wrong_and_expired_keys() -> None:
    async with served(route(), key=KeyFacts(1, "app", "ik-", expires_at=1.0)) as gate:
        with pytest.raises(official.AuthenticationError) as wrong:
            await gate.client("ik-other").models.list()
        with pytest.raises(official.AuthenticationError, match="expired"):
            await gate.client().models.list()
        answer = await gate.answer(b"GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n")
    assert wrong.value.code == "invalid_api_key"
    assert answer.startswith(b"HTTP/1.1 401")
    assert b"www-authenticate: Bearer" in answer


async def test_limits_are_told_with_their_name() -> None:
    limits = Limits(max_tokens=4)
    key = KeyFacts(1, "app", "ik-", limits=limits)
    upstream = Upstream([last("x")])
    async with http_server(upstream) as endpoint, served(route(triton(endpoint)), key=key) as gate:
        client = gate.client()
        with pytest.raises(official.BadRequestError) as over:
            await client.chat.completions.create(model="demo", messages=MESSAGES, max_tokens=5)
        await client.chat.completions.create(model="demo", messages=MESSAGES)
        record = gate.records[0]
    assert over.value.response.headers["x-inflight-limit"] == "max_tokens"
    assert upstream.asked[0]["max_tokens"] == 4
    assert (record.outcome, record.reason) == ("refused", "max_tokens")


async def test_an_external_server_is_passed_on() -> None:
    async with double() as (port, counts), served(route(openai(port), name="ext")) as gate:
        client = gate.client()
        stream = await client.chat.completions.create(model="ext", messages=MESSAGES, stream=True)
        chunks = [chunk async for chunk in stream]
        record = await gate.last()
        whole = await client.chat.completions.create(model="ext", messages=MESSAGES)
        plain = await client.completions.create(model="ext", prompt="Hi")
    assert [chunk.choices[0].delta.content for chunk in chunks] == [f"tok{number} " for number in range(5)]
    assert (record.prompt_tokens, record.completion_tokens, record.outcome) == (5, 5, "ok")
    assert whole.choices[0].message.content == "tok0 tok1 tok2 "
    assert plain.choices[0].text == "tok0 tok1 tok2 "
    assert counts.counts.requests == 3


@pytest.mark.parametrize(
    ("how", "status", "code"),
    [
        ({"status": 400}, 400, "wished"),
        ({"status": 401}, 502, "restricted"),
        ({"status": 429}, 503, "overloaded"),
        ({"status": 500}, 500, "engine_error"),
        ({"garbage": 0}, 502, "protocol_error"),
        ({"break_after": 0}, 502, "connection_lost"),
    ],
)
async def test_an_external_server_that_fails(how: dict[str, Any], status: int, code: str) -> None:
    async with double() as (port, _counts), served(route(openai(port))) as gate:
        with pytest.raises(official.APIStatusError) as failed:
            await gate.client().chat.completions.create(
                model="demo", messages=MESSAGES, stream=True, metadata=how
            )
    assert failed.value.status_code == status
    assert failed.value.code == code


@pytest.mark.parametrize("how", [{"garbage": 2}, {"break_after": 2}])
async def test_what_fails_after_the_first_token_ends_the_stream_with_an_error(how: dict[str, Any]) -> None:
    async with double() as (port, _counts), served(route(openai(port))) as gate:
        stream = await gate.client().chat.completions.create(
            model="demo", messages=MESSAGES, stream=True, metadata=how
        )
        seen = []
        with pytest.raises(official.APIError):
            async for chunk in stream:
                seen.append(chunk)
        record = await gate.last()
    assert len(seen) == 2
    assert (record.status, record.outcome) == (200, "error")


async def test_nothing_serves() -> None:
    async with served(route()) as gate:
        with pytest.raises(official.InternalServerError) as failed:
            await gate.client().chat.completions.create(model="demo", messages=MESSAGES)
    assert failed.value.status_code == 503
    assert failed.value.response.headers["retry-after"] == "2"


async def test_the_first_byte_does_not_wait_for_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("apps.gateway.call.FIRST_BYTE_SECONDS", 0.05)
    monkeypatch.setattr("apps.gateway.call.COMMENT_SECONDS", 0.1)
    go = asyncio.Event()

    async def wait() -> None:
        await go.wait()

    upstream = Upstream([wait, delta("late"), last()])
    async with http_server(upstream) as endpoint, served(route(triton(endpoint))) as gate:
        body = json.dumps({"model": "demo", "messages": MESSAGES, "stream": True}).encode()
        reader, writer = await gate.raw(post(gate.key, body))
        async with asyncio.timeout(10):
            head = await reader.readuntil(b"\r\n\r\n")
            assert b"200 OK" in head
            comments = [await reader.readuntil(b": keep-alive\n\n") for _ in range(2)]
            go.set()
            rest = await reader.readuntil(b"[DONE]")
        writer.close()
    assert len(comments) == 2
    assert b'"content":"late"' in rest


async def test_an_error_after_the_head_is_an_event(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("apps.gateway.call.FIRST_BYTE_SECONDS", 0.01)
    monkeypatch.setattr("apps.gateway.call.FIRST_TOKEN_SECONDS", 0.3)
    async with http_server(Upstream([never])) as endpoint, served(route(triton(endpoint))) as gate:
        with pytest.raises(official.APIError, match="No token came"):
            stream = await gate.client().chat.completions.create(model="demo", messages=MESSAGES, stream=True)
            _ = [chunk async for chunk in stream]
        record = await gate.last()
    assert (record.outcome, record.reason) == ("error", "first_token_timeout")
