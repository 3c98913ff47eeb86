"""Requests over gRPC: one stream a request, cancelled by closing it, messages read without a token source's work."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from typing import Any

import grpc
from tritonclient.grpc import service_pb2, service_pb2_grpc

from apps.streaming import triton_errors
from apps.streaming.triton_grpc import CHANNEL_OPTIONS, ERRORS_AS_STATUS, METADATA_SECONDS, pack, unpack
from apps.streaming.triton_messages import ModelInterface, read_interface
from workers.loadgen.answers import Answer, read_outputs

NEEDED = frozenset({"text_output", "token_count", "completion_tokens", "prompt_tokens"})


class GrpcClient:
    """One channel to one server."""

    def __init__(self, address: str, model: str, keep_text: bool) -> None:
        self._model, self._keep = model, keep_text
        self._channel = grpc.aio.insecure_channel(address, options=CHANNEL_OPTIONS)
        self._stub = service_pb2_grpc.GRPCInferenceServiceStub(self._channel)
        self._metadata: Any = None

    async def interface(self) -> ModelInterface:
        """What the model declares. Raises grpc.aio.AioRpcError."""
        said = await self._stub.ModelMetadata(
            service_pb2.ModelMetadataRequest(name=self._model), timeout=METADATA_SECONDS
        )
        return read_interface(
            ((tensor.name, tensor.datatype, tensor.shape) for tensor in said.inputs),
            (tensor.name for tensor in said.outputs),
        )

    def request(self, values: dict[str, Any], interface: ModelInterface) -> Any:
        """The message that asks with these inputs."""
        self._metadata = ERRORS_AS_STATUS if interface.is_ours else None
        message = service_pb2.ModelInferRequest(model_name=self._model)
        message.parameters["triton_enable_empty_final_response"].bool_param = True
        for name, value in values.items():
            listed = value if isinstance(value, list) else [value]
            shape = [1, len(listed)] if interface.batched else [len(listed)]
            message.inputs.add(name=name, datatype=interface.inputs[name], shape=shape)
            message.raw_input_contents.append(pack(interface.inputs[name], listed))
        return message

    async def ask(self, message: Any, answer: Answer) -> None:
        """One request, its answer read into `answer`. Cancelling ends it on the server at once."""
        answer.sent = time.perf_counter()
        call = self._stub.ModelStreamInfer(_once(message), metadata=self._metadata)
        try:
            while True:
                response = await call.read()
                now = time.perf_counter()
                if response is grpc.aio.EOF:
                    break
                if response.error_message:
                    answer.fail(triton_errors.explain("", response.error_message).code)
                    break
                self._read(response.infer_response, answer, now)
        except grpc.aio.AioRpcError as error:
            answer.fail(triton_errors.explain(error.code().name, error.details() or "").code)
        finally:
            call.cancel()
        answer.ended = time.perf_counter()

    def _read(self, response: Any, answer: Answer, now: float) -> None:
        said = {
            output.name: unpack(output.datatype, raw)
            for output, raw in zip(response.outputs, response.raw_output_contents, strict=False)
            if output.name in NEEDED
        }
        if said:
            read_outputs(answer, said, now, self._keep)

    async def close(self) -> None:
        """Close the channel."""
        await self._channel.close()


async def _once(message: Any) -> AsyncIterator[Any]:
    yield message
