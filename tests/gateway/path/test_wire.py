"""Requests read strictly, answers written exactly, and the raw HTTP around them."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest

from apps.gateway.errors import ApiError
from apps.gateway.wire.answers import ChatWriter, CompletionWriter, usage_of
from apps.gateway.wire.requests import (
    plain_messages,
    read_chat,
    read_completion,
    read_json,
    read_tokenize,
)
from apps.streaming.events import MAX_EVENT_BYTES, EventReader, EventTooLong
from apps.streaming.token_source import StreamEnd, TokenDelta
from tests.gateway.path.serving import post, route, served, triton
from tests.streaming.upstreams import Upstream, http_server, last

CHAT: dict[str, Any] = {"model": "demo", "messages": [{"role": "user", "content": "Hi"}]}
TEXT: dict[str, Any] = {"model": "demo", "prompt": "Hi"}


@pytest.mark.parametrize(
    ("more", "param", "code"),
    [
        ({"n": 2}, "n", "unsupported_parameter"),
        ({"temperature": 2.1}, "temperature", "invalid_value"),
        ({"temperature": "1"}, "temperature", "invalid_value"),
        ({"max_tokens": 0}, "max_tokens", "invalid_value"),
        ({"max_tokens": 1.5}, "max_tokens", "invalid_value"),
        ({"max_tokens": True}, "max_tokens", "invalid_value"),
        ({"top_p": 0}, "top_p", "invalid_value"),
        ({"stop": ["a", "b", "c", "d", "e"]}, "stop", "invalid_request"),
        ({"stop": 5}, "stop", "invalid_value"),
        ({"logit_bias": {"1": 2}}, "logit_bias", "unsupported_parameter"),
        ({"stream_options": {}}, "stream_options", "invalid_request"),
        ({"stream": "yes"}, "stream", "invalid_value"),
        ({"frobnicate": 1}, "frobnicate", "unknown_parameter"),
        ({"messages": []}, "messages", "invalid_value"),
        ({"messages": "Hi"}, "messages", "invalid_value"),
        ({"model": ""}, "model", "invalid_value"),
        ({"top_logprobs": 2}, "top_logprobs", "invalid_request"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs", "invalid_value"),
        ({"response_format": {"type": "xml"}}, "response_format.type", "invalid_value"),
        ({"tool_choice": "required"}, "tool_choice", "invalid_request"),
        ({"tools": [{}], "tool_choice": "required"}, "tool_choice", "unsupported_parameter"),
        ({"functions": [{}]}, "functions", "unsupported_parameter"),
        ({"modalities": ["audio"]}, "modalities", "unsupported_parameter"),
        ({"seed": 2**64}, "seed", "invalid_value"),
    ],
)
def test_a_chat_request_that_is_refused(more: dict[str, Any], param: str, code: str) -> None:
    with pytest.raises(ApiError) as refused:
        read_chat(CHAT | more)
    assert (refused.value.status, refused.value.param, refused.value.code) == (400, param, code)


@pytest.mark.parametrize(
    ("more", "param"),
    [
        ({"prompt": ["a", "b"]}, "prompt"),
        ({"prompt": [1, 2]}, "prompt"),
        ({"prompt": ""}, "prompt"),
        ({"echo": True}, "echo"),
        ({"best_of": 2}, "best_of"),
        ({"suffix": "x"}, "suffix"),
        ({"logprobs": -1}, "logprobs"),
    ],
)
def test_a_completion_that_is_refused(more: dict[str, Any], param: str) -> None:
    with pytest.raises(ApiError) as refused:
        read_completion(TEXT | more)
    assert refused.value.param == param


def test_what_changes_nothing_is_accepted() -> None:
    request = read_chat(
        CHAT
        | {
            "n": 1,
            "user": "me",
            "store": False,
            "metadata": {"a": "b"},
            "parallel_tool_calls": True,
            "service_tier": "auto",
            "logit_bias": {},
            "max_completion_tokens": 7,
            "stop": "x",
            "temperature": 1,
        }
    )
    assert (request.wanted_tokens, request.stops) == (7, ("x",))
    assert read_completion(TEXT | {"prompt": ["one"]}).text == "one"


def test_sampling_is_on_unless_greedy_is_asked_for() -> None:
    assert read_chat(CHAT).sampling(None, None).samples
    assert read_chat(CHAT).sampling(None, None).temperature == 1.0
    assert not read_chat(CHAT | {"temperature": 0}).sampling(None, None).samples
    assert read_chat(CHAT | {"seed": -1}).sampling(None, None).seed == 2**63 - 1


@pytest.mark.parametrize(
    "body",
    [b"", b"nonsense", b"[1]", b'"text"', b'{"a": NaN}', b'{"a": "\xff"}', b"{" * 2000, b"[" * 5000],
)
def test_bodies_that_are_no_json_object(body: bytes) -> None:
    with pytest.raises(ApiError) as refused:
        read_json(body)
    assert refused.value.code == "invalid_json"


def test_depth_is_bounded() -> None:
    with pytest.raises(ApiError, match="nested"):
        read_json(b'{"a":' * 100 + b"1" + b"}" * 100)
    assert read_json(b'{"a":' * 60 + b"1" + b"}" * 60)


def test_messages_in_all_their_forms() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    found = plain_messages(
        [
            {"role": "developer", "content": "be short"},
            {"role": "user", "content": parts},
            {"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]},
            {"role": "tool", "content": "42", "tool_call_id": "1"},
        ]
    )
    assert [message["role"] for message in found] == ["system", "user", "assistant", "tool"]
    assert [message["content"] for message in found] == ["be short", "ab", "", "42"]


@pytest.mark.parametrize(
    ("message", "param"),
    [
        ({"role": "king", "content": "x"}, "messages[0].role"),
        ({"content": "x"}, "messages[0].role"),
        ({"role": "user"}, "messages[0].content"),
        ({"role": "user", "content": None}, "messages[0].content"),
        ({"role": "user", "content": [{"type": "image_url"}]}, "messages[0].content[0]"),
        ({"role": "user", "content": ["x"]}, "messages[0].content[0]"),
    ],
)
def test_messages_that_are_refused(message: dict[str, Any], param: str) -> None:
    with pytest.raises(ApiError) as refused:
        plain_messages([message])
    assert refused.value.param == param


@pytest.mark.parametrize("more", [{}, {"prompt": "a", "messages": [{"role": "user"}]}])
def test_tokenize_wants_one_of_both(more: dict[str, Any]) -> None:
    with pytest.raises(ApiError):
        read_tokenize({"model": "demo"} | more)


@pytest.mark.parametrize("kind", [ChatWriter, CompletionWriter])
def test_every_event_is_json_whatever_the_text(kind: Any) -> None:
    writer = kind('a "model"\n', True)
    end = StreamEnd("stop", 0.0, prompt_tokens=1, completion_tokens=2)
    text = 'quote " back \\ line\n end \u2028 \U0001f600 \x00'
    stream = writer.opening() + writer.delta(TokenDelta(text, 1, 0.0)) + writer.ending(end)
    events = stream.decode().split("\n\n")
    assert events[-2:] == ["data: [DONE]", ""]
    chunks = [json.loads(event.removeprefix("data: ")) for event in events[:-2]]
    assert {chunk["model"] for chunk in chunks} == {'a "model"\n'}
    texts = [
        choice.get("text") or choice.get("delta", {}).get("content")
        for chunk in chunks
        for choice in chunk["choices"]
    ]
    assert text in texts
    assert chunks[-1]["usage"] == {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}
    assert all("usage" in chunk for chunk in chunks)
    assert json.loads(writer.whole(text, [], end))["usage"]["total_tokens"] == 3


def test_counts_that_nobody_told_are_null() -> None:
    assert usage_of(StreamEnd("stop", 0.0, completion_tokens=2)) is None
    assert json.loads(ChatWriter("m", False).whole("x", [], StreamEnd("stop", 0.0)))["usage"] is None


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
@pytest.mark.parametrize("line", ["\n", "\r\n", "\r"])
def test_events_in_any_pieces(size: int, line: str) -> None:
    text = f": hello{line}{line}data: one{line}{line}event: x{line}data:two{line}data: more{line}{line}data: last"
    reader, found = EventReader(), []
    for start in range(0, len(text), size):
        found += reader.feed(text[start : start + size].encode())
    found += reader.flush()
    assert found == [b"one", b"two\nmore", b"last"]


def test_an_event_without_end_is_bounded() -> None:
    reader = EventReader()
    with pytest.raises(EventTooLong):
        for _ in range(MAX_EVENT_BYTES // 65536 + 2):
            reader.feed(b"x" * 65536)


RAW = [
    (b"GET /v1/chat/completions HTTP/1.1\r\nHost: x\r\n\r\n", 405, b"method_not_allowed"),
    (b"DELETE /v1/models HTTP/1.1\r\nHost: x\r\n\r\n", 405, b"method_not_allowed"),
    (b"GET /nothing HTTP/1.1\r\nHost: x\r\n\r\n", 404, b"not_found"),
    (b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n", 401, b"invalid_api_key"),
    (
        b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer a\r\nAuthorization: Bearer b\r\n\r\n",
        400,
        b"more than once",
    ),
    (b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\nContent-Length: 8\r\n\r\n", 400, b""),
    (b"nonsense\r\n\r\n", 400, b"Invalid HTTP"),
    (b"GET /healthz HTTP/1.1\r\nX: " + b"y" * 100_000 + b"\r\n\r\n", 400, b"Invalid HTTP"),
    (b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n", 200, b"ok"),
    (b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", 200, b"inflight_gateway_running"),
    (b"GET /metrics HTTP/1.1\r\nHost: x\r\nX-Forwarded-For: 1.2.3.4\r\n\r\n", 401, b"invalid_api_key"),
]


async def test_raw_requests() -> None:
    async with served(route()) as gate:
        for request, status, text in RAW:
            answer = await gate.answer(request)
            assert answer.startswith(b"HTTP/1.1 %d" % status), (request[:80], answer[:200])
            assert text in answer


async def test_bodies_at_the_door(settings: Any) -> None:
    settings.INFLIGHT_GATEWAY_MAX_BODY_BYTES = 2000
    upstream = Upstream([last("x")])
    async with http_server(upstream) as endpoint, served(route(triton(endpoint))) as gate:
        good = orjson.dumps(CHAT)
        cases = [
            (post(gate.key, good), 200),
            (post(gate.key, good).replace(b"application/json", b"application/json; charset=utf-8"), 200),
            (post(gate.key, good).replace(b"application/json", b"text/plain"), 415),
            (post(gate.key, good.replace(b"Hi", b"H" * 3000)), 413),
            (post(gate.key, good.replace(b"Hi", b"\xff\xfe")), 400),
            (post(gate.key, b""), 400),
            (chunked(gate.key, [good]), 200),
            (chunked(gate.key, [b"x" * 900] * 3), 413),
            (post(gate.key, good, "/v1/chat/completions", "X-Request-Id: \x01bad"), 400),
            (post("", good), 401),
        ]
        for request, status in cases:
            answer = await gate.answer(request)
            assert answer.startswith(b"HTTP/1.1 %d" % status), (request[:300], answer[:200])
            assert status < 400 or b'"error"' in answer or b"Invalid HTTP" in answer


def chunked(key: str, parts: list[bytes]) -> bytes:
    """A body without a length."""
    head = post(key, b"").replace(b"Content-Length: 0", b"Transfer-Encoding: chunked")
    return head + b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"
