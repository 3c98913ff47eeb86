"""A double of Triton that costs little: so many tokens, one each few milliseconds, over HTTP or gRPC.

    python -m benchmarks.loadgen_double --port 0 --gap 0.01 [--grpc]

Prints the port. It answers the model's metadata, and each request with exactly the tokens that it asks for.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import struct
from collections.abc import AsyncIterator
from typing import Any, cast

MODEL = "double"
INPUTS = {"text_input": "BYTES", "max_tokens": "INT32", "min_tokens": "INT32", "stream": "BOOL"}
OUTPUTS = {
    "text_output": "BYTES",
    "token_count": "INT32",
    "finish_reason": "BYTES",
    "completion_tokens": "INT32",
}
LENGTH = re.compile(rb"(?i)content-length: *(\d+)")
TOKENS = re.compile(rb'"max_tokens": *(\d+)')


def metadata() -> dict[str, Any]:
    """The model's metadata as Triton gives it."""

    def tensors(named: dict[str, str]) -> list[dict[str, Any]]:
        return [{"name": name, "datatype": kind, "shape": [-1]} for name, kind in named.items()]

    return {"name": MODEL, "platform": "double", "inputs": tensors(INPUTS), "outputs": tensors(OUTPUTS)}


def _chunk(data: bytes) -> bytes:
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


TOKEN = _chunk(b'data: {"model_name":"double","text_output":" tok","token_count":1}\n\n')
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


class Answering(asyncio.Protocol):
    """One connection."""

    def __init__(self, gap: float) -> None:
        self._gap = gap
        self._data = b""
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio.Protocol."""
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio.Protocol."""
        if self._timer is not None:
            self._timer.cancel()
        self._transport = None

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        self._data += data
        head, found, body = self._data.partition(b"\r\n\r\n")
        if not found or self._transport is None:
            return
        length = LENGTH.search(head)
        if length is not None and len(body) < int(length[1]):
            return
        self._data = b""
        if head.startswith(b"GET"):
            text = json.dumps(metadata()).encode()
            self._transport.write(
                b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
                + f"Content-Length: {len(text)}\r\n\r\n".encode()
                + text
            )
            return
        asked = TOKENS.search(body)
        self._transport.write(HEAD)
        loop = asyncio.get_running_loop()
        self._next(int(asked[1]) if asked else 1, loop.time() + self._gap, loop)

    def _next(self, left: int, at: float, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = loop.call_at(at, self._tell, left, at, loop)

    def _tell(self, left: int, at: float, loop: asyncio.AbstractEventLoop) -> None:
        if self._transport is None:
            return
        self._transport.write(TOKEN if left > 1 else TOKEN + b"0\r\n\r\n")
        if left > 1:
            self._next(left - 1, at + self._gap, loop)


async def serve_http(port: int, gap: float) -> None:
    """Serve until killed."""
    server = await asyncio.get_running_loop().create_server(lambda: Answering(gap), "127.0.0.1", port)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


def _grpc_service(gap: float) -> Any:
    from tritonclient.grpc import service_pb2, service_pb2_grpc

    token = service_pb2.ModelStreamInferResponse()
    for name, kind, raw in (
        ("text_output", "BYTES", struct.pack("<I", 4) + b" tok"),
        ("token_count", "INT32", struct.pack("<i", 1)),
    ):
        token.infer_response.outputs.add(name=name, datatype=kind, shape=[1])
        token.infer_response.raw_output_contents.append(raw)

    class Service(service_pb2_grpc.GRPCInferenceServiceServicer):
        async def ModelMetadata(self, request: Any, context: Any) -> Any:  # noqa: N802 - gRPC's name
            reply = service_pb2.ModelMetadataResponse(name=MODEL)
            for name, kind in INPUTS.items():
                reply.inputs.add(name=name, datatype=kind, shape=[-1])
            for name, kind in OUTPUTS.items():
                reply.outputs.add(name=name, datatype=kind, shape=[-1])
            return reply

        async def ModelStreamInfer(self, requests: Any, context: Any) -> AsyncIterator[Any]:  # noqa: N802
            async for request in requests:
                names = [tensor.name for tensor in request.inputs]
                (tokens,) = struct.unpack("<i", request.raw_input_contents[names.index("max_tokens")])
                loop = asyncio.get_running_loop()
                at = loop.time()
                for _ in range(tokens):
                    at += gap
                    await asyncio.sleep(max(0.0, at - loop.time()))
                    yield token

    return Service()


async def serve_grpc(port: int, gap: float) -> None:
    """Serve until killed."""
    import grpc
    from tritonclient.grpc import service_pb2_grpc

    server = grpc.aio.server()
    service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(_grpc_service(gap), server)
    bound = server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    print(bound, flush=True)
    await server.wait_for_termination()


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--gap", type=float, default=0.01)
    parser.add_argument("--grpc", action="store_true")
    options = parser.parse_args()
    if options.grpc:
        asyncio.run(serve_grpc(options.port, options.gap))
    else:
        import uvloop

        uvloop.run(serve_http(options.port, options.gap))


if __name__ == "__main__":
    main()
