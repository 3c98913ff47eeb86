"""From a question to an answer: the request of each kind of target, and the connections to its servers in turn."""

from __future__ import annotations

import itertools
import json
import urllib.error
import urllib.request
from collections.abc import Sequence
from typing import Any, Protocol

import orjson

from apps.loadtests.domain.scenario import Scenario
from apps.loadtests.domain.workload import Frame
from apps.streaming.token_source import GenerationRequest, SamplingParams
from apps.streaming.triton_messages import ModelInterface, UnsupportedParameter, read_interface, tensors
from workers.builders.llamacpp_steps.events import StepFailed
from workers.loadgen.answers import Answer, OpenAIEvents, TritonEvents
from workers.loadgen.http_client import HttpClient, post
from workers.loadgen.plan import Address

METADATA_SECONDS = 10.0
# (question, answer) pairs of the conversation so far.
History = Sequence[tuple[str, str]]


class Asker(Protocol):
    """Asks one target."""

    async def ask(self, text: str, history: History, tokens: int, answer: Answer) -> None:
        """Send the question, read its answer into `answer`. Cancelling cancels it on the server."""
        ...

    async def close(self) -> None:
        """Close the connections."""
        ...


async def open_asker(scenario: Scenario, addresses: Sequence[Address], frame: Frame, key: str) -> Asker:
    """The asker of a scenario's target. Raises StepFailed where the target does not say what it is."""
    keep = scenario.prompts.turns > 1
    exact = scenario.prompts.exact_output
    if scenario.via == "gateway":
        return GatewayAsker(addresses[0], key, keep)
    if scenario.via == "grpc":
        # Imported where it is needed: gRPC starts threads.
        from workers.loadgen.grpc_asker import open_grpc

        return await open_grpc(addresses, frame, keep, exact)
    return TritonHttpAsker(addresses, frame, keep, exact)


def prompt_of(frame: Frame, text: str, history: History) -> str:
    """The conversation as the engine reads it."""
    earlier = "".join(f"{asked}{frame.answer}{answered}{frame.question}" for asked, answered in history)
    return f"{frame.head}{earlier}{text}{frame.answer}"


class Inputs:
    """Values of a model's inputs for a prompt; every optional one has its default, as Triton batches only equal
    ones."""

    def __init__(self, interface: ModelInterface, exact: bool) -> None:
        self.interface = interface
        self.exact = exact
        try:
            self.of("", 1)
        except UnsupportedParameter:
            # The model has no input for the fewest tokens: answers may end earlier, and the records say how long
            # they are.
            self.exact = False

    def of(self, prompt: str, tokens: int) -> dict[str, Any]:
        """{input: value} of one request."""
        params = SamplingParams(max_tokens=tokens, min_tokens=tokens if self.exact else None)
        return tensors(GenerationRequest(prompt, params), self.interface)


class TritonHttpAsker:
    """generate_stream of Triton servers, each in turn."""

    def __init__(self, addresses: Sequence[Address], frame: Frame, keep_text: bool, exact: bool) -> None:
        dialect = TritonEvents(keep_text)
        self._frame = frame
        self._inputs = Inputs(_declared(addresses[0]), exact)
        self._targets = itertools.cycle(
            [(address, HttpClient(address.host, address.port, dialect)) for address in addresses]
        )
        self._count = len(addresses)

    async def ask(self, text: str, history: History, tokens: int, answer: Answer) -> None:
        """See Asker."""
        address, client = next(self._targets)
        body = orjson.dumps(self._inputs.of(prompt_of(self._frame, text, history), tokens))
        path = f"/v2/models/{address.model}/generate_stream"
        await client.ask(post(address.host, address.port, path, body), answer)

    async def close(self) -> None:
        """See Asker."""
        for _ in range(self._count):
            next(self._targets)[1].close()


class GatewayAsker:
    """chat/completions of the gateway."""

    def __init__(self, address: Address, key: str, keep_text: bool) -> None:
        self._address = address
        self._headers = (f"Authorization: Bearer {key}",)
        self._client = HttpClient(address.host, address.port, OpenAIEvents(keep_text))

    async def ask(self, text: str, history: History, tokens: int, answer: Answer) -> None:
        """See Asker."""
        messages: list[dict[str, str]] = []
        for asked, answered in history:
            messages += [{"role": "user", "content": asked}, {"role": "assistant", "content": answered}]
        body = {
            "model": self._address.model,
            "messages": [*messages, {"role": "user", "content": text}],
            "max_tokens": tokens,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        request = post(
            self._address.host, self._address.port, "/v1/chat/completions", orjson.dumps(body), self._headers
        )
        await self._client.ask(request, answer)

    async def close(self) -> None:
        """See Asker."""
        self._client.close()


def _declared(address: Address) -> ModelInterface:
    url = f"http://{address.host}:{address.port}/v2/models/{address.model}"
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=METADATA_SECONDS) as response:
            said = json.loads(response.read())
        inputs = ((each["name"], each["datatype"], each.get("shape") or ()) for each in said["inputs"])
        return read_interface(inputs, [each["name"] for each in said["outputs"]])
    except (OSError, urllib.error.URLError, ValueError, KeyError, TypeError) as error:
        raise StepFailed(
            "target_unreachable",
            f"The model {address.model} does not answer: {error}.",
            "See on the deployment's page whether it serves, then start the run again.",
        ) from error
