"""Tokens from Triton for the gateway: generate_stream over warm connections, or gRPC where waiting must be cancelled.

HTTP costs a third of what gRPC's asyncio costs for each token (docs/gateway.md has the figures), but Triton notices
a closed HTTP connection only when it next writes. The gateway gives an engine no more requests than it has slots, so
none waits there; where the number of slots is unknown, gRPC is taken, which cancels a waiting request at once.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Iterable, Mapping
from typing import Protocol

import orjson

from apps.gateway.domain.facts import Upstream
from apps.streaming import triton_errors
from apps.streaming.domain.text_stream import StreamRules
from apps.streaming.http_client import (
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
from apps.streaming.token_source import Endpoint, GenerationRequest, StreamEnd, StreamError, TokenEvent
from apps.streaming.triton_grpc import TritonGrpcSource
from apps.streaming.triton_http import MAX_METADATA_BYTES, EventSink, HttpStream, explain, read_metadata
from apps.streaming.triton_messages import (
    MessageReader,
    ModelInterface,
    UnsupportedParameter,
    fitted,
    priority,
    tensors,
    unsupported,
)

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

    def divert(self, sink: EventSink) -> None:
        """Events may go to `sink` where they arrive, while `read` waits; `read` has what did not, and the end."""

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
            asked, rules = fitted(request, interface)
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
            interface = read_metadata(said)
        except ValueError as error:
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

    def divert(self, sink: EventSink) -> None:
        """Nothing: a call of gRPC has no place where its bytes arrive."""

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
