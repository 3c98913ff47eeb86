"""Tokens from Triton for the gateway: generate_stream over warm connections, or gRPC where waiting must be cancelled.

HTTP costs a third of what gRPC's asyncio costs for each token (docs/gateway.md has the figures), but Triton notices
a closed HTTP connection only when it next writes. The gateway gives an engine no more requests than it has slots, so
none waits there; where the number of slots is unknown, gRPC is taken, which cancels a waiting request at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import time
from collections.abc import AsyncGenerator, Iterable, Mapping
from typing import Protocol

import orjson

from apps.gateway.domain.facts import Upstream
from apps.gateway.upstreams.events import EventReader, EventTooLong
from apps.gateway.upstreams.http_client import (
    Connection,
    Opening,
    Origin,
    Pool,
    UpstreamLost,
    UpstreamUnreachable,
    read_origin,
    request_head,
    with_body,
)
from apps.streaming import triton_errors
from apps.streaming.domain.text_stream import StreamRules
from apps.streaming.token_source import Endpoint, GenerationRequest, StreamEnd, StreamError, TokenEvent
from apps.streaming.triton_grpc import TritonGrpcSource
from apps.streaming.triton_http import CODES
from apps.streaming.triton_messages import (
    Message,
    MessageReader,
    ModelInterface,
    UnsupportedParameter,
    priority,
    tensors,
    unsupported,
)

MAX_ERROR_BYTES = 64 * 1024
MAX_METADATA_BYTES = 1024 * 1024
METADATA_SECONDS = 5.0
GUIDE_TYPE, GUIDE = "guided_decoding_guide_type", "guided_decoding_guide"


class StreamFailed(Exception):
    """No answer began; `error` says why."""

    def __init__(self, error: StreamError) -> None:
        super().__init__(error.sentence)
        self.error = error


class TokenStream(Protocol):
    """An answer that has begun. Read it to its StreamEnd, and close it in any case: that cancels what still runs."""

    async def read(self) -> list[TokenEvent]:
        """The next events, at least one; a StreamEnd is the last."""

    def fail(self, error: StreamError) -> None:
        """End the answer here with an error, as at a timeout."""

    def close(self) -> None:
        """Let go of it."""


class TritonUpstreams:
    """Streams from Triton servers; knows what their models declare. Belongs to one event loop."""

    def __init__(self, pool: Pool, transport: str = "auto") -> None:
        self._pool = pool
        self._transport = transport
        self._interfaces: dict[str, ModelInterface] = {}
        self._channels: dict[str, TritonGrpcSource] = {}

    async def open(
        self,
        upstream: Upstream,
        request: GenerationRequest,
        opening: Opening,
        guide: Mapping[str, str] | None = None,
        trace: str = "",
    ) -> TokenStream:
        """Send a request. Raises StreamFailed, also for a parameter that the model has no input for.

        `opening` can end the wait, `guide` are the inputs of guided decoding, `trace` is a traceparent. Cancelling
        cancels upstream.
        """
        interface = await self.interface(upstream)
        try:
            asked, rules = _fitted(request, interface)
            body = tensors(asked, interface) | priority(asked, interface)
        except UnsupportedParameter as error:
            raise StreamFailed(unsupported(error)) from error
        if guide:
            if GUIDE not in interface.inputs:
                raise StreamFailed(unsupported(UnsupportedParameter("response_format")))
            body |= guide
        if self._by_grpc(upstream) and not guide:
            return GrpcStream(self._source(upstream, rules), asked, own=rules is not None)
        body["id"] = request.request_id
        origin = read_origin(upstream.http_url)
        head = request_head(
            origin,
            "POST",
            f"/v2/models/{upstream.model}/generate_stream",
            {"Content-Type": "application/json", **({"traceparent": trace} if trace else {})},
        )
        connection = await self._send(origin, with_body(head, orjson.dumps(body)), opening)
        stream = HttpStream(self._pool, origin, connection, MessageReader(asked, interface, rules))
        if connection.status != 200:
            raise StreamFailed(await stream.refusal())
        return stream

    async def interface(self, upstream: Upstream) -> ModelInterface:
        """What the model declares; asked once for each instance. Raises StreamFailed."""
        known = self._interfaces.get(upstream.uid)
        if known is not None:
            return known
        path = f"/v2/models/{upstream.model}"
        status, said = await self.call(upstream, "GET", path, b"", MAX_METADATA_BYTES, METADATA_SECONDS)
        if status != 200:
            raise StreamFailed(explain(status, said))
        try:
            declared = orjson.loads(said)
            interface = ModelInterface(
                {str(tensor["name"]): str(tensor["datatype"]) for tensor in declared["inputs"]},
                frozenset(str(tensor["name"]) for tensor in declared["outputs"]),
            )
        except (ValueError, KeyError, TypeError) as error:
            raise StreamFailed(triton_errors.unreadable(str(error))) from error
        self._interfaces[upstream.uid] = interface
        return interface

    async def call(
        self, upstream: Upstream, method: str, path: str, body: bytes, most_bytes: int, seconds: float
    ) -> tuple[int, bytes]:
        """One request that is no stream: (status, body). Raises StreamFailed where none comes in time."""
        origin = read_origin(upstream.http_url)
        head = request_head(origin, method, path, {"Content-Type": "application/json"} if body else {})
        try:
            async with asyncio.timeout(seconds):
                connection = await self._send(origin, with_body(head, body))
                try:
                    return connection.status, await connection.body(most_bytes)
                finally:
                    self._pool.release(connection, origin)
        except (UpstreamLost, UpstreamUnreachable, TimeoutError) as error:
            raise StreamFailed(triton_errors.unreachable()) from error

    async def keep(self, upstreams: Iterable[Upstream]) -> None:
        """The table changed: forget what is no longer in it."""
        uids = {one.uid for one in upstreams}
        for uid in set(self._interfaces) - uids:
            del self._interfaces[uid]
        for uid in set(self._channels) - uids:
            await self._channels.pop(uid).close()

    async def close(self) -> None:
        """Close the channels."""
        await self.keep(())

    def _by_grpc(self, upstream: Upstream) -> bool:
        if self._transport in ("grpc", "http"):
            return self._transport == "grpc"
        return upstream.slots is None and bool(upstream.grpc_url)

    def _source(self, upstream: Upstream, rules: StreamRules | None) -> TritonGrpcSource:
        endpoint = Endpoint(upstream.http_url, upstream.grpc_url, upstream.model)
        if rules is not None:
            return TritonGrpcSource(endpoint, rules=rules)
        if upstream.uid not in self._channels:
            self._channels[upstream.uid] = TritonGrpcSource(endpoint)
        return self._channels[upstream.uid]

    async def _send(self, origin: Origin, request: bytes, opening: Opening | None = None) -> Connection:
        try:
            return await self._pool.send(origin, request, opening)
        except UpstreamUnreachable as error:
            raise StreamFailed(triton_errors.unreachable()) from error
        except UpstreamLost as error:
            raise StreamFailed((opening and opening.error) or triton_errors.lost()) from error


class HttpStream:
    """An answer of generate_stream."""

    def __init__(self, pool: Pool, origin: Origin, connection: Connection, reader: MessageReader) -> None:
        self._pool, self._origin, self._connection, self._reader = pool, origin, connection, reader
        self._events = EventReader()
        self._error: StreamError | None = None
        self._closed = False

    async def read(self) -> list[TokenEvent]:
        """The next events; see TokenStream."""
        found: list[TokenEvent] = []
        while not found:
            try:
                data = await self._connection.read()
                payloads = self._events.feed(data) if data else self._events.flush()
            except (UpstreamLost, UpstreamUnreachable):
                return self._break_off(self._error or triton_errors.lost())
            except EventTooLong as error:
                return self._break_off(triton_errors.unreadable(str(error)))
            now = time.perf_counter()
            for payload in payloads:
                try:
                    found += self._reader.feed(read_payload(payload), now)
                except ValueError as error:
                    return [*found, *self._break_off(triton_errors.unreadable(str(error)))]
            if not data:
                # The body carries no final flag: its end is the end.
                found += self._reader.finish(now)
                break
        return found

    async def refusal(self) -> StreamError:
        """What a response that is not 200 says; closes the stream."""
        try:
            said = await self._connection.body(MAX_ERROR_BYTES)
        except (UpstreamLost, UpstreamUnreachable):
            said = b""
        finally:
            self.close()
        return explain(self._connection.status, said)

    def fail(self, error: StreamError) -> None:
        """End it here."""
        self._error = error
        self._connection.fail(UpstreamLost(error.code))

    def close(self) -> None:
        """Give the connection back, or close it where the answer is not over, which tells the engine."""
        if not self._closed:
            self._closed = True
            self._pool.release(self._connection, self._origin)

    def _break_off(self, error: StreamError) -> list[TokenEvent]:
        return self._reader.break_off(error, time.perf_counter())


class GrpcStream:
    """An answer over gRPC. `own`: the source serves this answer alone and is closed with it."""

    def __init__(self, source: TritonGrpcSource, request: GenerationRequest, own: bool) -> None:
        self._source, self._own = source, own
        self._events: AsyncGenerator[TokenEvent, None] = source.stream(request)
        self._task: asyncio.Task[TokenEvent] | None = None
        self._error: StreamError | None = None

    async def read(self) -> list[TokenEvent]:
        """The next event; see TokenStream."""
        self._task = asyncio.ensure_future(anext(self._events))
        try:
            return [await self._task]
        except asyncio.CancelledError:
            if self._error is None:
                raise
            return [StreamEnd("error", time.perf_counter(), error=self._error)]
        finally:
            self._task.cancel()

    def fail(self, error: StreamError) -> None:
        """End it here."""
        self._error = error
        if self._task is not None:
            self._task.cancel()

    def close(self) -> None:
        """Cancel the call, in a task of its own: closing a generator is asynchronous."""
        closing = asyncio.ensure_future(self._close())
        _closing.add(closing)
        closing.add_done_callback(_closing.discard)

    async def _close(self) -> None:
        await self._events.aclose()
        if self._own:
            await self._source.close()


# asyncio keeps only weak references to tasks.
_closing: set[asyncio.Future[None]] = set()


def read_payload(payload: bytes) -> Message:
    """The data of one event as a Message. Raises ValueError for what is no JSON object."""
    fields = orjson.loads(payload)
    if not isinstance(fields, dict):
        raise ValueError("an event that is no object")
    error = fields.get("error")
    return Message(fields) if error is None else Message(error=str(error))


def explain(status: int, said: bytes) -> StreamError:
    """What a refusal of Triton means."""
    text = said.decode(errors="replace").strip().removeprefix("data:").strip()
    with contextlib.suppress(ValueError, AttributeError):
        text = str(orjson.loads(text).get("error", text))
    return triton_errors.explain(CODES.get(status, "INTERNAL"), text)


def _fitted(
    request: GenerationRequest, interface: ModelInterface
) -> tuple[GenerationRequest, StreamRules | None]:
    """What a model has no input for but what can be had without one.

    Stop strings end the text here and close its stream. A temperature of 1 is how a model draws by itself.
    """
    params, rules = request.params, None
    if params.stop and "stop_words" not in interface.inputs:
        rules = StreamRules(stop=params.stop)
        params = dataclasses.replace(params, stop=())
    others = (params.top_k, params.top_p, params.seed)
    if params.temperature == 1.0 and others == (None, None, None) and "temperature" not in interface.inputs:
        params = dataclasses.replace(params, temperature=None)
    return dataclasses.replace(request, params=params), rules
