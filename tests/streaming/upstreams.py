"""Servers that speak Triton's protocols and answer as a test says; on loopback, ended with the test."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import grpc
from aiohttp import web
from tritonclient.grpc import service_pb2, service_pb2_grpc

from apps.streaming.token_source import (
    Endpoint,
    GenerationRequest,
    StreamEnd,
    TokenDelta,
    TokenEvent,
    TokenSource,
)
from apps.streaming.triton_grpc import pack

OUR_INPUTS = {
    "text_input": "BYTES",
    "max_tokens": "INT32",
    "stream": "BOOL",
    "temperature": "FP32",
    "top_k": "INT32",
    "top_p": "FP32",
    "seed": "UINT64",
    "stop_words": "BYTES",
    "bad_words": "BYTES",
    "repetition_penalty": "FP32",
    "min_tokens": "INT32",
    "end_id": "INT32",
    "return_log_probs": "BOOL",
    "num_log_probs": "INT32",
}
OUR_OUTPUTS = (
    "text_output",
    "token_count",
    "finish_reason",
    "prompt_tokens",
    "completion_tokens",
    "top_log_probs",
)
ENSEMBLE_INPUTS = {
    "text_input": "BYTES",
    "max_tokens": "INT32",
    "stream": "BOOL",
    "temperature": "FP32",
    "top_k": "INT32",
    "top_p": "FP32",
    "random_seed": "UINT64",
    "stop_words": "BYTES",
}
DATATYPES = {"text_output": "BYTES", "finish_reason": "BYTES", "top_log_probs": "BYTES"}


@dataclass
class Upstream:
    """What the server does: `script` holds messages ({outputs, final} or {error}), statuses, and steps to await.

    `asked` are the requests as {input: value}, `came` is set with the first; `cancelled` is set when a caller was
    gone before the end.
    """

    script: list[Any] = field(default_factory=list)
    inputs: dict[str, str] = field(default_factory=lambda: dict(OUR_INPUTS))
    outputs: tuple[str, ...] = OUR_OUTPUTS
    asked: list[dict[str, Any]] = field(default_factory=list)
    came: asyncio.Event = field(default_factory=asyncio.Event)
    cancelled: asyncio.Event = field(default_factory=asyncio.Event)
    ready: bool = True
    unbatched: bool = False
    # Of an OpenAI-style server: what it says to a question of its own.
    scripts: dict[str, list[Any]] = field(default_factory=dict)

    def script_of(self, asked: dict[str, Any]) -> list[Any]:
        """The script for a chat completion."""
        return self.scripts.get(asked["messages"][-1]["content"], self.script)

    @property
    def shape(self) -> list[int]:
        """Of every input in the model's metadata."""
        return [-1] if self.unbatched else [-1, 1]


def delta(text: str, tokens: int = 1) -> dict[str, Any]:
    """A message of our model that is not the last."""
    return {"outputs": {"text_output": text, "token_count": tokens}, "final": False}


def last(text: str = "", tokens: int = 1, reason: str = "stop", **more: Any) -> dict[str, Any]:
    """The last message of our model."""
    outputs = {
        "text_output": text,
        "token_count": tokens,
        "finish_reason": reason,
        "prompt_tokens": 5,
        **more,
    }
    return {"outputs": outputs, "final": True}


class _Service(service_pb2_grpc.GRPCInferenceServiceServicer):
    def __init__(self, upstream: Upstream) -> None:
        self._upstream = upstream

    async def ModelMetadata(self, request: Any, context: Any) -> Any:
        if not self._upstream.ready:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "Request for unknown model: 'demo' is not found")
        said = service_pb2.ModelMetadataResponse(name=request.name)
        for name, datatype in self._upstream.inputs.items():
            said.inputs.add(name=name, datatype=datatype, shape=self._upstream.shape)
        for name in self._upstream.outputs:
            said.outputs.add(name=name)
        return said

    async def ModelStreamInfer(self, requests: Any, context: Any) -> AsyncIterator[Any]:
        async for request in requests:
            self._upstream.asked.append(read_request(request))
            self._upstream.came.set()
            break
        try:
            for step in self._upstream.script:
                if callable(step):
                    await step()
                elif isinstance(step, tuple):
                    await context.abort(*step)
                else:
                    yield grpc_message(step)
        except asyncio.CancelledError:
            self._upstream.cancelled.set()
            raise


def read_request(request: Any) -> dict[str, Any]:
    """{input: value or values}, and the request's id and parameters."""
    found: dict[str, Any] = {"id": request.id, "parameters": dict(request.parameters)}
    for tensor, raw in zip(request.inputs, request.raw_input_contents, strict=True):
        found[tensor.name] = (tensor.datatype, list(tensor.shape), raw)
    return found


def grpc_message(step: dict[str, Any]) -> Any:
    """A script's message as protobuf."""
    if "error" in step:
        return service_pb2.ModelStreamInferResponse(error_message=step["error"])
    message = service_pb2.ModelStreamInferResponse()
    answer = message.infer_response
    if step.get("final") is not None:
        answer.parameters["triton_final_response"].bool_param = step["final"]
    for name, value in step["outputs"].items():
        datatype = DATATYPES.get(name, "INT32")
        answer.outputs.add(name=name, datatype=datatype, shape=[1, 1])
        answer.raw_output_contents.append(pack(datatype, [value]))
    return message


@contextlib.asynccontextmanager
async def grpc_server(upstream: Upstream) -> AsyncIterator[Endpoint]:
    """A gRPC server for the test."""
    server = grpc.aio.server()
    service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(_Service(upstream), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield Endpoint("http://127.0.0.1:9", f"127.0.0.1:{port}", "demo")
    finally:
        await server.stop(None)


@contextlib.asynccontextmanager
async def http_server(upstream: Upstream) -> AsyncIterator[Endpoint]:
    """An HTTP server for the test."""

    async def metadata(request: web.Request) -> web.Response:
        if not upstream.ready:
            return web.json_response({"error": "Request for unknown model: 'demo' is not found"}, status=404)
        inputs = [
            {"name": name, "datatype": datatype, "shape": upstream.shape}
            for name, datatype in upstream.inputs.items()
        ]
        return web.json_response({"inputs": inputs, "outputs": [{"name": name} for name in upstream.outputs]})

    async def generate(request: web.Request) -> web.StreamResponse:
        upstream.asked.append(await request.json())
        upstream.came.set()
        first = next((step for step in upstream.script if isinstance(step, dict)), None)
        if first is not None and "status" in first:
            return web.Response(
                status=first["status"], text=f"data: {json.dumps({'error': first['error']})}\n\n"
            )
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        try:
            for step in upstream.script:
                if callable(step):
                    await step()
                elif isinstance(step, tuple):
                    assert request.transport is not None
                    request.transport.abort()
                    return response
                elif isinstance(step, bytes):
                    await response.write(step)
                else:
                    body = {"error": step["error"]} if "error" in step else step["outputs"]
                    await response.write(b"data: " + json.dumps(body).encode() + b"\n\n")
        except (asyncio.CancelledError, ConnectionResetError):
            upstream.cancelled.set()
            raise
        return response

    app = web.Application()
    app.router.add_get("/v2/models/demo", metadata)
    app.router.add_post("/v2/models/demo/generate_stream", generate)
    runner = web.AppRunner(app, handler_cancellation=True)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    try:
        yield Endpoint(f"http://127.0.0.1:{port}", "127.0.0.1:9", "demo")
    finally:
        await runner.cleanup()


@contextlib.asynccontextmanager
async def openai_server(upstream: Upstream) -> AsyncIterator[str]:
    """An OpenAI-style server for the test, by its base URL. A step is a chunk as a dictionary, or bytes of the body.

    A first step {"status": ..., "error": ...} is the whole answer, and so is one {"whole": ...}.
    """

    async def complete(request: web.Request) -> web.StreamResponse:
        upstream.asked.append({**await request.json(), "authorization": request.headers.get("Authorization")})
        upstream.came.set()
        steps = upstream.script_of(upstream.asked[-1])
        first = steps[0] if steps and isinstance(steps[0], dict) else {}
        if "status" in first:
            return web.json_response({"error": first["error"]}, status=first["status"])
        if "whole" in first:
            return web.json_response(first["whole"])
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        try:
            for step in steps:
                if callable(step):
                    await step()
                elif isinstance(step, tuple):
                    assert request.transport is not None
                    request.transport.abort()
                    return response
                else:
                    await response.write(step if isinstance(step, bytes) else _sse(step))
        except (asyncio.CancelledError, ConnectionResetError):
            upstream.cancelled.set()
            raise
        return response

    app = web.Application()
    app.router.add_post("/v1/chat/completions", complete)
    runner = web.AppRunner(app, handler_cancellation=True)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    finally:
        await runner.cleanup()


@contextlib.contextmanager
def openai_thread(upstream: Upstream) -> Iterator[str]:
    """The same server in a thread with a loop of its own, for tests that have none."""
    ready, told, loop = threading.Event(), [""], asyncio.new_event_loop()
    stop = asyncio.Event()

    async def serve() -> None:
        async with openai_server(upstream) as told[0]:
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    try:
        assert ready.wait(20)
        yield told[0]
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(20)
        loop.close()


def _sse(chunk: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(chunk).encode() + b"\n\n"


async def everything(source: TokenSource, request: GenerationRequest | None = None) -> list[TokenEvent]:
    """All events of one request; the last one must be the only end."""
    events: list[TokenEvent] = []
    async with contextlib.aclosing(source.stream(request or GenerationRequest("Hi"))) as stream:
        async for event in stream:
            events.append(event)
    assert [isinstance(event, StreamEnd) for event in events] == [False] * (len(events) - 1) + [True]
    return events


def text_of(events: list[TokenEvent]) -> str:
    """The text of deltas."""
    return "".join(event.text for event in events if isinstance(event, TokenDelta))


def end_of(events: list[TokenEvent]) -> StreamEnd:
    """The end."""
    end = events[-1]
    assert isinstance(end, StreamEnd)
    return end


async def never() -> None:
    """A step that does not end by itself."""
    await asyncio.Event().wait()


Step = Callable[[], Awaitable[None]]
