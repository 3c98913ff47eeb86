"""Tokens from Triton over HTTP: generate_stream, server-sent events, read with aiohttp.

Cheaper than gRPC in Python. The body carries no final flag and no [DONE]: its end is the end. The status is decided
by the first message; later errors are events. Closing the stream closes the connection, which the server notices
when it next writes: prefer gRPC where waiting requests must be cancelled at once.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator
from typing import Any

import aiohttp

from apps.streaming import triton_errors
from apps.streaming.domain.text_stream import StreamRules
from apps.streaming.token_source import Endpoint, GenerationRequest, StreamEnd, StreamError, TokenEvent
from apps.streaming.triton_messages import (
    Message,
    MessageReader,
    ModelInterface,
    UnsupportedParameter,
    priority,
    tensors,
    unsupported,
)

# HTTP status -> the Triton code that it stands for.
CODES = {400: "INVALID_ARGUMENT", 404: "NOT_FOUND", 501: "UNIMPLEMENTED", 503: "UNAVAILABLE"}
METADATA_SECONDS = 10.0
EVENT = b"data:"


class TritonHttpSource:
    """A TokenSource over one endpoint; belongs to the event loop that first uses it. Waits as TritonGrpcSource."""

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        first_token_seconds: float = 120.0,
        idle_seconds: float = 60.0,
        rules: StreamRules | None = None,
    ) -> None:
        self._url = f"{endpoint.http_url.rstrip('/')}/v2/models/{endpoint.model_name}"
        self._first_token_seconds = first_token_seconds
        self._idle_seconds = idle_seconds
        self._rules = rules
        self._session: aiohttp.ClientSession | None = None
        self._interface: ModelInterface | None = None

    async def stream(self, request: GenerationRequest) -> AsyncGenerator[TokenEvent, None]:
        """Deltas, then one StreamEnd; see TokenSource."""
        try:
            interface = await self._declared()
            body = _body(request, interface)
        except _Refused as error:
            yield StreamEnd("error", time.perf_counter(), error=error.reason)
            return
        except UnsupportedParameter as error:
            yield StreamEnd("error", time.perf_counter(), error=unsupported(error))
            return
        reader = MessageReader(request, interface, self._rules)
        messages = self._messages(body)
        try:
            async for message in messages:
                for event in reader.feed(message, time.perf_counter()):
                    yield event
                if reader.ended:
                    return
            for event in reader.finish(time.perf_counter()):
                yield event
        except _Refused as error:
            for event in reader.break_off(error.reason, time.perf_counter()):
                yield event
        finally:
            await messages.aclose()

    async def close(self) -> None:
        """Close the connections."""
        session, self._session, self._interface = self._session, None, None
        if session is not None:
            await session.close()

    async def _messages(self, body: dict[str, Any]) -> AsyncGenerator[Message, None]:
        """Messages of the body. Raises _Refused for what ends it before its time."""
        first = True
        try:
            async with asyncio.timeout(self._first_token_seconds):
                response = await self._connection().post(f"{self._url}/generate_stream", json=body)
            async with response:
                if response.status != 200:
                    yield await _error_of(response)
                    return
                lines = response.content.__aiter__()
                while True:
                    async with asyncio.timeout(self._first_token_seconds if first else self._idle_seconds):
                        line = await anext(lines, None)
                    if line is None:
                        return
                    if line.startswith(EVENT):
                        first = False
                        yield read_event(line[len(EVENT) :])
        except TimeoutError as error:
            waited = triton_errors.first_token_timeout if first else triton_errors.idle_timeout
            seconds = self._first_token_seconds if first else self._idle_seconds
            raise _Refused(waited(seconds)) from error
        except aiohttp.ClientError as error:
            raise _Refused(triton_errors.unreachable() if first else triton_errors.lost()) from error

    async def _declared(self) -> ModelInterface:
        if self._interface is None:
            try:
                async with asyncio.timeout(METADATA_SECONDS), self._connection().get(self._url) as response:
                    if response.status != 200:
                        message = await _error_of(response)
                        raise _Refused(triton_errors.explain(message.code, message.error or ""))
                    said = await response.json(content_type=None)
            except (aiohttp.ClientError, TimeoutError) as error:
                raise _Refused(triton_errors.unreachable()) from error
            self._interface = ModelInterface(
                {tensor["name"]: tensor["datatype"] for tensor in said["inputs"]},
                frozenset(tensor["name"] for tensor in said["outputs"]),
            )
        return self._interface

    def _connection(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0),
                timeout=aiohttp.ClientTimeout(total=None),
                # Triton compresses nothing here and the address is loopback: no proxy, no cookies.
                trust_env=False,
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        return self._session


class _Refused(Exception):
    """Ends the answer with an error that has its sentence already."""

    def __init__(self, reason: StreamError) -> None:
        super().__init__(reason.sentence)
        self.reason = reason


def _body(request: GenerationRequest, interface: ModelInterface) -> dict[str, Any]:
    body = tensors(request, interface) | priority(request, interface)
    return body | {"id": request.request_id} if request.request_id else body


async def _error_of(response: aiohttp.ClientResponse) -> Message:
    raw = await response.read()
    text = raw.decode(errors="replace").strip().removeprefix("data:").strip()
    try:
        said = json.loads(text).get("error", text)
    except (ValueError, AttributeError):
        said = text
    return Message(error=str(said), code=CODES.get(response.status, "INTERNAL"))


def read_event(data: bytes) -> Message:
    """One server-sent event as a Message; what is no JSON object is an error."""
    try:
        fields = json.loads(data)
        error = fields.get("error")
    except (ValueError, AttributeError) as problem:
        raise _Refused(triton_errors.unreadable(str(problem))) from problem
    if error is not None:
        return Message(error=str(error))
    return Message(fields)
