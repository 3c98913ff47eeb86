"""Tokens from Triton over gRPC: a bidirectional stream with one request, cancelled by closing it.

The protobuf messages of tritonclient are used directly: its asyncio client neither asks for the empty final response
nor tells when a stream is over. gRPC tells the server at once that a caller is gone, also while its request waits.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
import time
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import grpc
from tritonclient.grpc import service_pb2, service_pb2_grpc

from apps.streaming import triton_errors
from apps.streaming.domain.text_stream import StreamRules
from apps.streaming.token_source import Endpoint, GenerationRequest, StreamEnd, TokenEvent
from apps.streaming.triton_messages import (
    Message,
    MessageReader,
    ModelInterface,
    UnsupportedParameter,
    fitted,
    priority,
    read_interface,
    tensors,
    unsupported,
)

PACKED = {"BOOL": "?", "INT32": "i", "INT64": "q", "UINT32": "I", "UINT64": "Q", "FP32": "f"}
CHANNEL_OPTIONS = (("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1))
# Errors then arrive as the stream's status, with their code, instead of as text in a message. Only our own model is
# asked so: it ends with its error, while a model that sends another message after one, as TensorRT-LLM's BLS model
# does, makes Triton 2.51 answer on a stream that it has closed, which ends the whole server.
ERRORS_AS_STATUS = (("triton_grpc_error", "true"),)
METADATA_SECONDS = 10.0


class TritonGrpcSource:
    """A TokenSource over one endpoint; belongs to the event loop that first uses it.

    `first_token_seconds` bounds the wait for the first message, waiting in the engine's queue included,
    `idle_seconds` that between two.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        first_token_seconds: float = 120.0,
        idle_seconds: float = 60.0,
        rules: StreamRules | None = None,
        accumulated: bool = False,
    ) -> None:
        self._endpoint = endpoint
        self._first_token_seconds = first_token_seconds
        self._idle_seconds = idle_seconds
        self._rules = rules
        self._accumulated = accumulated
        self._channel: Any = None
        self._interface: ModelInterface | None = None

    async def stream(self, request: GenerationRequest) -> AsyncGenerator[TokenEvent, None]:
        """Deltas, then one StreamEnd; see TokenSource."""
        try:
            interface = await self._declared()
            asked, rules = fitted(request, interface, self._accumulated)
            message = self._message(asked, interface)
        except grpc.aio.AioRpcError as error:
            yield StreamEnd("error", time.perf_counter(), error=triton_errors.explain(*_status(error)))
            return
        except UnsupportedParameter as error:
            yield StreamEnd("error", time.perf_counter(), error=unsupported(error))
            return
        reader = MessageReader(asked, interface, self._rules or rules)
        metadata = ERRORS_AS_STATUS if interface.is_ours else None
        call = self._stub().ModelStreamInfer(_once(message), metadata=metadata)
        try:
            async with contextlib.aclosing(self._read(call, reader)) as events:
                async for event in events:
                    yield event
        finally:
            # Also when the consumer closed this generator: the server then drops the request at once.
            call.cancel()

    async def close(self) -> None:
        """Close the channel; streams that still run on it end."""
        channel, self._channel, self._interface = self._channel, None, None
        if channel is not None:
            await channel.close()

    async def _read(self, call: Any, reader: MessageReader) -> AsyncGenerator[TokenEvent, None]:
        patience, too_late = self._first_token_seconds, triton_errors.first_token_timeout
        while not reader.ended:
            try:
                async with asyncio.timeout(patience):
                    response = await call.read()
            except TimeoutError:
                events = reader.break_off(too_late(patience), time.perf_counter())
            except grpc.aio.AioRpcError as rpc_error:
                code, text = _status(rpc_error)
                events = reader.feed(Message(error=text, code=code), time.perf_counter())
            else:
                events = self._events(response, reader, time.perf_counter())
            patience, too_late = self._idle_seconds, triton_errors.idle_timeout
            for event in events:
                yield event

    def _events(self, response: Any, reader: MessageReader, now: float) -> list[TokenEvent]:
        if response is grpc.aio.EOF:
            # The stream closed without a final flag: an answer that had begun is cut off.
            return reader.break_off(triton_errors.lost(), now)
        return reader.feed(read_message(response), now)

    async def _declared(self) -> ModelInterface:
        if self._interface is None:
            asked = service_pb2.ModelMetadataRequest(name=self._endpoint.model_name)
            said = await self._stub().ModelMetadata(asked, timeout=METADATA_SECONDS)
            self._interface = read_interface(
                ((tensor.name, tensor.datatype, tensor.shape) for tensor in said.inputs),
                (tensor.name for tensor in said.outputs),
            )
        return self._interface

    def _stub(self) -> Any:
        if self._channel is None:
            self._channel = grpc.aio.insecure_channel(self._endpoint.grpc_url, options=CHANNEL_OPTIONS)
        return service_pb2_grpc.GRPCInferenceServiceStub(self._channel)

    def _message(self, request: GenerationRequest, interface: ModelInterface) -> Any:
        message = service_pb2.ModelInferRequest(model_name=self._endpoint.model_name, id=request.request_id)
        message.parameters["triton_enable_empty_final_response"].bool_param = True
        if request.priority is not None:
            # Read by Triton's queue, where a model has one with levels; ensembles and other models drop it.
            message.parameters["priority"].uint64_param = request.priority
        for name, level in priority(request, interface).items():
            message.parameters[name].int64_param = level
        for name, value in tensors(request, interface).items():
            values = value if isinstance(value, list) else [value]
            shape = [1, len(values)] if interface.batched else [len(values)]
            message.inputs.add(name=name, datatype=interface.inputs[name], shape=shape)
            message.raw_input_contents.append(pack(interface.inputs[name], values))
        return message


async def _once(message: Any) -> AsyncIterator[Any]:
    """The one request of the stream; its end tells the server that no other follows."""
    yield message


def _status(error: grpc.aio.AioRpcError) -> tuple[str, str]:
    return error.code().name, error.details() or ""


def pack(datatype: str, values: list[Any]) -> bytes:
    """Values of a tensor in Triton's raw form: little-endian, each text behind its length."""
    if datatype == "BYTES":
        texts = [value.encode() if isinstance(value, str) else bytes(value) for value in values]
        return b"".join(struct.pack("<I", len(text)) + text for text in texts)
    return struct.pack(f"<{len(values)}{PACKED[datatype]}", *values)


def unpack(datatype: str, raw: bytes) -> Any:
    """The first value of a tensor, as most outputs have one; None of an empty one.

    A text is bytes where it is no UTF-8: its ends may be parts of a character whose rest comes in another message.
    """
    if not raw:
        return None
    if datatype == "BYTES":
        (size,) = struct.unpack_from("<I", raw)
        text = raw[4 : 4 + size]
        try:
            return text.decode()
        except UnicodeDecodeError:
            return text
    # Of what nobody reads here (context_phase_params, half floats) TensorRT-LLM has outputs too.
    form = PACKED.get(datatype)
    return struct.unpack_from(f"<{form}", raw)[0] if form is not None else None


def read_message(response: Any) -> Message:
    """A ModelStreamInferResponse as a Message."""
    if response.error_message:
        return Message(error=response.error_message)
    answer = response.infer_response
    outputs = {
        tensor.name: unpack(tensor.datatype, raw)
        for tensor, raw in zip(answer.outputs, answer.raw_output_contents, strict=True)
    }
    flag = answer.parameters.get("triton_final_response")
    return Message(outputs, None if flag is None else flag.bool_param)
