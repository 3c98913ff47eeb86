"""Both sources against servers that speak the protocols: streams, ends, errors, timeouts, cancelling."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Any

import grpc
import pytest

from apps.realtime import tasks
from apps.streaming import triton_http
from apps.streaming.answers import answer
from apps.streaming.token_source import (
    Endpoint,
    GenerationRequest,
    SamplingParams,
    StreamEnd,
    TokenDelta,
    TokenEvent,
    TokenSource,
)
from apps.streaming.triton_grpc import TritonGrpcSource, pack, unpack
from apps.streaming.triton_http import TritonHttpSource
from tests.streaming.upstreams import (
    Upstream,
    delta,
    end_of,
    everything,
    grpc_server,
    http_server,
    last,
    never,
    text_of,
)

SECONDS = 10.0


class Pushed:
    """The HTTP source, asked for events where they arrive."""

    def __init__(self, source: TritonHttpSource) -> None:
        self._source = source

    async def stream(self, request: GenerationRequest) -> AsyncGenerator[TokenEvent, None]:
        came: asyncio.Queue[TokenEvent] = asyncio.Queue()
        pushing = asyncio.create_task(self._source.push(request, came.put_nowait))
        try:
            while True:
                event = await came.get()
                yield event
                if isinstance(event, StreamEnd):
                    break
            await pushing
            assert came.empty()
        finally:
            await tasks.end([pushing])

    async def close(self) -> None:
        await self._source.close()


class Way:
    """One of the two protocols; HTTP in both ways of reading it."""

    def __init__(self, name: str) -> None:
        self.name = name

    @contextlib.asynccontextmanager
    async def to(self, upstream: Upstream, **more: Any) -> AsyncIterator[TokenSource]:
        serve: Callable[..., Any] = grpc_server if self.name == "grpc" else http_server
        async with serve(upstream) as endpoint:
            source = self.source(endpoint, **more)
            try:
                async with asyncio.timeout(SECONDS):
                    yield source
            finally:
                await source.close()

    def source(self, endpoint: Endpoint, **more: Any) -> TokenSource:
        if self.name == "grpc":
            return TritonGrpcSource(endpoint, **more)
        source = TritonHttpSource(endpoint, **more)
        return Pushed(source) if self.name == "pushed" else source


@pytest.fixture(params=["grpc", "http", "pushed"])
def way(request: pytest.FixtureRequest) -> Way:
    return Way(request.param)


async def test_a_stream_and_its_end(way: Way) -> None:
    upstream = Upstream([delta("Hel"), delta("lo 👋"), last("!", reason="length", completion_tokens=3)])
    async with way.to(upstream) as source:
        events = await everything(source)
    assert text_of(events) == "Hello 👋!"
    end = end_of(events)
    assert (end.reason, end.prompt_tokens, end.completion_tokens, end.cached_tokens) == ("length", 5, 3, None)


async def test_one_source_serves_many_requests_at_once(way: Way) -> None:
    upstream = Upstream([delta("a"), last("b", completion_tokens=2)])
    async with way.to(upstream) as source:
        found = await asyncio.gather(*(everything(source) for _ in range(20)))
    assert {text_of(events) for events in found} == {"ab"}
    assert len(upstream.asked) == 20


async def test_an_error_in_the_middle_ends_the_answer_once(way: Way) -> None:
    upstream = Upstream([delta("Hel"), {"error": "Stub process 'demo_0_0' is not healthy."}, last("x")])
    async with way.to(upstream) as source:
        events = await everything(source)
    assert text_of(events) == "Hel"
    error = end_of(events).error
    assert error is not None
    assert error.code == "engine_died"


async def test_a_model_that_is_not_loaded(way: Way) -> None:
    async with way.to(Upstream(ready=False)) as source:
        error = end_of(await everything(source)).error
    assert error is not None
    assert error.code == "not_ready"


async def test_nobody_listens(way: Way) -> None:
    source = way.source(Endpoint("http://127.0.0.1:9", "127.0.0.1:9", "demo"))
    async with asyncio.timeout(SECONDS):
        error = end_of(await everything(source)).error
    await source.close()
    assert error is not None
    assert error.code == "unreachable"


async def test_a_parameter_that_the_model_lacks_is_refused_before_it_is_sent(way: Way) -> None:
    upstream = Upstream([last()], inputs={"text_input": "BYTES"})
    async with way.to(upstream) as source:
        request = GenerationRequest("Hi", SamplingParams(bad_words=("x",)))
        error = end_of(await everything(source, request)).error
    assert error is not None
    assert error.code == "unsupported_parameter"
    assert upstream.asked == []


async def test_a_server_is_asked_once_what_its_model_declares(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton_http, "_declared", {})
    upstream = Upstream([last("a")])
    async with http_server(upstream) as endpoint, asyncio.timeout(SECONDS):
        assert text_of(await everything(TritonHttpSource(endpoint, known_as="i-1"))) == "a"
        upstream.ready = False
        assert text_of(await everything(TritonHttpSource(endpoint, known_as="i-1"))) == "a"
        for other in ("", "i-2"):
            error = end_of(await everything(TritonHttpSource(endpoint, known_as=other))).error
            assert error is not None
            assert error.code == "not_ready"
        # After a refusal what is known may be wrong, and is asked again.
        upstream.script = [{"status": 400, "error": "unexpected inference input 'end_id'"}]
        await everything(TritonHttpSource(endpoint, known_as="i-1"))
        assert "i-1" not in triton_http._declared


async def test_no_first_token_in_time(way: Way) -> None:
    async with way.to(Upstream([never]), first_token_seconds=0.2) as source:
        error = end_of(await everything(source)).error
    assert error is not None
    assert error.code == "first_token_timeout"


async def test_no_further_token_in_time(way: Way) -> None:
    async with way.to(Upstream([delta("a"), never]), idle_seconds=0.2) as source:
        events = await everything(source)
    assert text_of(events) == "a"
    error = end_of(events).error
    assert error is not None
    assert error.code == "idle_timeout"


async def test_a_connection_that_breaks_off(way: Way) -> None:
    upstream = Upstream([delta("a"), (grpc.StatusCode.UNAVAILABLE, "Socket closed")])
    async with way.to(upstream) as source:
        events = await everything(source)
    assert text_of(events) == "a"
    error = end_of(events).error
    assert error is not None
    assert error.code in ("connection_lost", "unreachable")


async def test_closing_while_tokens_come_cancels_upstream(way: Way) -> None:
    upstream = Upstream([delta("a"), never])
    async with way.to(upstream) as source:
        async with contextlib.aclosing(source.stream(GenerationRequest("Hi"))) as events:
            async for event in events:
                assert isinstance(event, TokenDelta)
                break
        await upstream.cancelled.wait()


async def test_cancelling_the_task_while_the_request_waits_cancels_upstream(way: Way) -> None:
    upstream = Upstream([never])
    async with way.to(upstream) as source:
        task = asyncio.create_task(everything(source))
        await upstream.came.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await upstream.cancelled.wait()


async def test_a_stop_in_the_text_closes_the_upstream_early(way: Way) -> None:
    upstream = Upstream([delta("go</s>"), never], outputs=("text_output",))
    async with way.to(upstream) as source:
        events = await everything(source)
        await upstream.cancelled.wait()
    assert text_of(events) == "go"
    assert end_of(events).reason == "stop"


async def test_answer_shows_measures_and_closes(way: Way) -> None:
    upstream = Upstream([delta("Hel", 2), delta("lo", 1), last("", completion_tokens=4)])
    shown: list[str] = []
    async with way.to(upstream) as source:
        found = await answer(source, GenerationRequest("Hi"), shown.append)
    assert found.text == "Hello"
    assert shown == ["Hel", "lo"]
    assert found.timings.tokens == found.end.completion_tokens == 4
    assert found.timings.ttft_ms is not None


async def test_grpc_asks_for_the_empty_final_response_and_sends_tensors() -> None:
    upstream = Upstream([delta("a"), {"outputs": {}, "final": True}])
    async with Way("grpc").to(upstream) as source:
        params = SamplingParams(max_tokens=7, stop=("x", "é"), temperature=0.5, seed=2**63)
        events = await everything(source, GenerationRequest("Hé", params, "request-1", 1))
    assert end_of(events).completion_tokens == 1
    (asked,) = upstream.asked
    assert asked["id"] == "request-1"
    assert asked["parameters"]["triton_enable_empty_final_response"].bool_param
    # Triton's own name for its queue, ours for the engine's.
    assert asked["parameters"]["priority"].uint64_param == 1
    assert asked["parameters"]["priority_level"].int64_param == 1
    assert asked["text_input"] == ("BYTES", [1, 1], b"\x03\x00\x00\x00H\xc3\xa9")
    assert asked["max_tokens"] == ("INT32", [1, 1], struct.pack("<i", 7))
    assert asked["seed"] == ("UINT64", [1, 1], struct.pack("<Q", 2**63))
    assert asked["stop_words"][1] == [1, 2]


async def test_grpc_statuses_carry_their_code() -> None:
    upstream = Upstream([(grpc.StatusCode.INVALID_ARGUMENT, "max_tokens: 0 is not from 1 to 9.")])
    async with Way("grpc").to(upstream) as source:
        error = end_of(await everything(source)).error
    assert error is not None
    assert (error.code, error.sentence) == ("invalid_request", "max_tokens: 0 is not from 1 to 9.")


async def test_grpc_cancelled_by_the_server_is_no_error() -> None:
    upstream = Upstream([delta("a"), (grpc.StatusCode.CANCELLED, "The request was cancelled.")])
    async with Way("grpc").to(upstream) as source:
        assert end_of(await everything(source)).reason == "cancelled"


async def test_grpc_stream_that_ends_without_its_final_message_was_cut() -> None:
    async with Way("grpc").to(Upstream([delta("a")])) as source:
        error = end_of(await everything(source)).error
    assert error is not None
    assert error.code == "connection_lost"


async def test_what_goes_wrong_with_a_pushed_event_ends_the_push() -> None:
    def take(event: TokenEvent) -> None:
        raise LookupError(event)

    upstream = Upstream([delta("a"), never])
    async with http_server(upstream) as endpoint, asyncio.timeout(SECONDS):
        with pytest.raises(LookupError):
            await TritonHttpSource(endpoint).push(GenerationRequest("Hi"), take)
        await upstream.cancelled.wait()


async def test_http_ends_with_its_body_and_maps_statuses() -> None:
    async with Way("http").to(Upstream([delta("a"), delta("b")])) as source:
        events = await everything(source)
    assert (text_of(events), end_of(events).reason) == ("ab", "stop")
    upstream = Upstream([{"status": 400, "error": "top_p: 2.0 is not from 0 to 1."}])
    async with Way("http").to(upstream) as source:
        error = end_of(await everything(source)).error
    assert error is not None
    assert (error.code, error.sentence) == ("invalid_request", "top_p: 2.0 is not from 0 to 1.")
    upstream = Upstream([{"status": 503, "error": "Maximum queue size of 1 has been reached"}])
    async with Way("http").to(upstream) as source:
        error = end_of(await everything(source)).error
    assert error is not None
    assert error.code == "overloaded"


async def test_http_events_may_be_cut_anywhere_and_comments_are_skipped() -> None:
    pieces: list[Any] = [
        b": keep-alive\n\nda",
        b'ta: {"text_output": "h\\u00e9", ',
        b'"token_count": 1}\n',
        b"\n",
    ]
    async with Way("http").to(Upstream(pieces)) as source:
        assert text_of(await everything(source)) == "hé"


async def test_http_garbage_is_an_error_with_a_sentence() -> None:
    async with Way("http").to(Upstream([b"data: <html>\n\n"])) as source:
        error = end_of(await everything(source)).error
    assert error is not None
    assert error.code == "protocol_error"


@pytest.mark.parametrize(
    ("datatype", "value"), [("BYTES", "hé"), ("INT32", -5), ("UINT64", 2**63), ("BOOL", True), ("FP32", 0.5)]
)
def test_tensors_survive_their_raw_form(datatype: str, value: Any) -> None:
    assert unpack(datatype, pack(datatype, [value])) == value


def test_an_empty_tensor_is_absent() -> None:
    assert unpack("BYTES", b"") is None
