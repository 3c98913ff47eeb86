"""The asker over gRPC; a module of its own, because importing gRPC starts threads."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import grpc

from apps.loadtests.domain.workload import Frame
from workers.builders.llamacpp_steps.events import StepFailed
from workers.loadgen.answers import Answer
from workers.loadgen.asker import History, Inputs, prompt_of
from workers.loadgen.grpc_client import GrpcClient
from workers.loadgen.plan import Address


class TritonGrpcAsker:
    """ModelStreamInfer of Triton servers, each in turn."""

    def __init__(self, clients: Sequence[GrpcClient], inputs: Inputs, frame: Frame) -> None:
        self._clients, self._inputs, self._frame = clients, inputs, frame
        self._turn = itertools.cycle(clients)

    async def ask(self, text: str, history: History, tokens: int, answer: Answer) -> None:
        """See Asker."""
        client = next(self._turn)
        values = self._inputs.of(prompt_of(self._frame, text, history), tokens)
        await client.ask(client.request(values, self._inputs.interface), answer)

    async def close(self) -> None:
        """See Asker."""
        for client in self._clients:
            await client.close()


async def open_grpc(
    addresses: Sequence[Address], frame: Frame, keep_text: bool, exact: bool
) -> TritonGrpcAsker:
    """Channels to every address. Raises StepFailed where the first does not answer."""
    clients = [GrpcClient(address.grpc, address.model, keep_text) for address in addresses]
    try:
        interface = await clients[0].interface()
    except grpc.aio.AioRpcError as error:
        raise StepFailed(
            "target_unreachable",
            f"The model {addresses[0].model} does not answer over gRPC: {error.details()}.",
            "See on the deployment's page whether it serves, then start the run again.",
        ) from error
    return TritonGrpcAsker(clients, Inputs(interface, exact), frame)
