"""Tokens from Triton over HTTP: generate_stream, server-sent events, read over warm connections.

A third of what gRPC's asyncio costs for each token (docs/gateway.md has the figures). The body carries no final flag
and no [DONE]: its end is the end. The status is decided by the first message; later errors are events. Closing the
stream closes the connection, which the server notices when it next writes: prefer gRPC where waiting requests must be
cancelled at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncGenerator, Callable, Iterable
from typing import Any, Protocol

import orjson

from apps.streaming import triton_errors
from apps.streaming.domain.text_stream import StreamRules
from apps.streaming.events import EventReader, EventTooLong
from apps.streaming.http_client import (
    Connection,
    Opening,
    Origin,
    Pool,
    UpstreamLost,
    UpstreamUnreachable,
    read_origin,
    request_head,
    shared_pool,
    with_body,
)
from apps.streaming.token_source import Endpoint, GenerationRequest, StreamEnd, StreamError, TokenEvent
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

# HTTP status -> the Triton code that it stands for.
CODES = {400: "INVALID_ARGUMENT", 404: "NOT_FOUND", 501: "UNIMPLEMENTED", 503: "UNAVAILABLE"}
METADATA_SECONDS = 10.0
MAX_ERROR_BYTES = 64 * 1024
MAX_METADATA_BYTES = 1024 * 1024
JSON = {"Content-Type": "application/json"}
# What the models of known servers declare; of the process, as nothing of it belongs to a loop.
_declared: dict[str, ModelInterface] = {}
MOST_DECLARED = 256


class EventSink(Protocol):
    """Takes events where they arrive, without a task's being woken for them."""

    def ready(self) -> bool:
        """Whether it can take any now."""

    def take(self, events: list[TokenEvent]) -> None:
        """Events before the end of an answer, in order. Raises nothing."""


class HttpStream:
    """An answer of generate_stream that has begun. Read it to its StreamEnd, and close it in any case."""

    def __init__(self, pool: Pool, origin: Origin, connection: Connection, reader: MessageReader) -> None:
        self._pool, self._origin, self._connection, self._reader = pool, origin, connection, reader
        self._events = EventReader()
        self._error: StreamError | None = None
        self._closed = False
        # Events that ended the answer while a sink took them.
        self._last: list[TokenEvent] = []

    async def read(self) -> list[TokenEvent]:
        """The next events, at least one; a StreamEnd is the last."""
        found: list[TokenEvent] = []
        while not found:
            try:
                data = await self._connection.read()
                if self._last:
                    # What came in the same piece as the end, or the body's own end, is no more of the answer.
                    return self._last
                payloads = self._events.feed(data) if data else self._events.flush()
            except (UpstreamLost, UpstreamUnreachable):
                return self._last or self._break_off(self._error or triton_errors.lost())
            except EventTooLong as error:
                return self._break_off(triton_errors.unreadable(str(error)))
            found = self._read(payloads)
            if not data:
                # The body carries no final flag: its end is the end.
                found += self._reader.finish(time.perf_counter())
                break
        return found

    def divert(self, sink: EventSink) -> None:
        """Give events to `sink` where they arrive, while `read` waits and the sink is ready; the end is `read`'s."""

        def take(data: bytes) -> bool:
            if not sink.ready():
                return False
            try:
                found = self._read(self._events.feed(data))
            except EventTooLong as error:
                found = self._break_off(triton_errors.unreadable(str(error)))
            if self._reader.ended:
                self._last = found
                self._connection.fail(UpstreamLost("the answer ended before its body"))
            elif found:
                sink.take(found)
            return True

        self._connection.divert(take)

    def _read(self, payloads: Iterable[bytes]) -> list[TokenEvent]:
        found: list[TokenEvent] = []
        now = time.perf_counter()
        for payload in payloads:
            try:
                found += self._reader.feed(read_payload(payload), now)
            except ValueError as error:
                return [*found, *self._break_off(triton_errors.unreadable(str(error)))]
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


class TritonHttpSource:
    """A TokenSource over one endpoint; belongs to the event loop that first uses it. Waits as TritonGrpcSource.

    `shared`: its connections are those of all such sources of the loop; else it has its own and closes them.
    `accumulated`: the model is configured to send the whole text so far with each message. `known_as` names the
    server that runs there: what its model declares is asked once under a name, and again after a refusal.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        first_token_seconds: float = 120.0,
        idle_seconds: float = 60.0,
        rules: StreamRules | None = None,
        accumulated: bool = False,
        shared: bool = False,
        known_as: str = "",
    ) -> None:
        self._origin = read_origin(endpoint.http_url)
        self._path = f"/v2/models/{endpoint.model_name}"
        self._first_token_seconds = first_token_seconds
        self._idle_seconds = idle_seconds
        self._rules = rules
        self._accumulated = accumulated
        self._shared = shared
        self._known_pool: Pool | None = None
        self._known_as = known_as
        self._interface: ModelInterface | None = _declared.get(known_as)

    async def stream(self, request: GenerationRequest) -> AsyncGenerator[TokenEvent, None]:
        """Deltas, then one StreamEnd; see TokenSource."""
        try:
            async with self._begun(request) as (stream, reader, watch):
                while not reader.ended:
                    events = await stream.read()
                    watch.touch()
                    for event in events:
                        yield event
        except _Refused as error:
            yield error.end()

    async def push(self, request: GenerationRequest, take: Callable[[TokenEvent], None]) -> None:
        """The same, given to `take`; see PushingSource."""
        try:
            async with self._begun(request) as (stream, reader, watch):
                taker = _Taker(take, stream, watch)
                stream.divert(taker)
                while not reader.ended:
                    events = await stream.read()
                    if taker.failed is not None:
                        raise taker.failed
                    watch.touch()
                    for event in events:
                        take(event)
        except _Refused as error:
            take(error.end())

    @contextlib.asynccontextmanager
    async def _begun(
        self, request: GenerationRequest
    ) -> AsyncGenerator[tuple[HttpStream, MessageReader, _Watch], None]:
        """The answer from its first byte on. Raises _Refused where none begins."""
        interface = await self._declared()
        try:
            asked, rules = fitted(request, interface, self._accumulated)
            body = _body(asked, interface)
        except UnsupportedParameter as error:
            raise _Refused(unsupported(error)) from error
        reader = MessageReader(asked, interface, self._rules or rules)
        opening = Opening()
        watch = _Watch(self._first_token_seconds, self._idle_seconds, opening.fail)
        try:
            try:
                stream = await self._open(body, opening, reader)
            except _Refused as error:
                error.tokens = 0 if interface.is_ours else None
                raise
            watch.fail = stream.fail
            try:
                yield stream, reader, watch
            finally:
                stream.close()
        finally:
            watch.stop()

    async def close(self) -> None:
        """Close the connections."""
        self._interface = None
        pool, self._known_pool = self._known_pool, None
        if pool is not None and not self._shared:
            pool.close()

    @property
    def _pool(self) -> Pool:
        if self._known_pool is None:
            self._known_pool = shared_pool() if self._shared else Pool()
        return self._known_pool

    async def _open(self, body: bytes, opening: Opening, reader: MessageReader) -> HttpStream:
        head = request_head(self._origin, "POST", f"{self._path}/generate_stream", JSON)
        try:
            connection = await self._pool.send(self._origin, with_body(head, body), opening)
        except UpstreamUnreachable as error:
            raise _Refused(triton_errors.unreachable()) from error
        except UpstreamLost as error:
            raise _Refused(opening.error or triton_errors.lost()) from error
        stream = HttpStream(self._pool, self._origin, connection, reader)
        if connection.status != 200:
            _declared.pop(self._known_as, None)
            raise _Refused(await stream.refusal())
        return stream

    async def _declared(self) -> ModelInterface:
        if self._interface is None:
            head = request_head(self._origin, "GET", self._path, {})
            try:
                async with asyncio.timeout(METADATA_SECONDS):
                    connection = await self._pool.send(self._origin, with_body(head, b""))
                    try:
                        status, said = connection.status, await connection.body(MAX_METADATA_BYTES)
                    finally:
                        self._pool.release(connection, self._origin)
            except (UpstreamLost, UpstreamUnreachable, TimeoutError) as error:
                raise _Refused(triton_errors.unreachable()) from error
            if status != 200:
                raise _Refused(explain(status, said))
            try:
                self._interface = read_metadata(said)
            except ValueError as error:
                raise _Refused(triton_errors.unreadable(str(error))) from error
            if self._known_as:
                if len(_declared) >= MOST_DECLARED:
                    _declared.clear()
                _declared[self._known_as] = self._interface
        return self._interface


class _Refused(Exception):
    """Ends the answer with an error that has its sentence already."""

    def __init__(self, reason: StreamError) -> None:
        super().__init__(reason.sentence)
        self.reason = reason
        # That were generated, where the model counts them.
        self.tokens: int | None = None

    def end(self) -> StreamEnd:
        """The end that it is."""
        return StreamEnd("error", time.perf_counter(), completion_tokens=self.tokens, error=self.reason)


class _Taker:
    """An EventSink that calls a function with each event; what that raises is kept as `failed`, and ends it."""

    def __init__(self, take: Callable[[TokenEvent], None], stream: HttpStream, watch: _Watch) -> None:
        self._take, self._stream, self._watch = take, stream, watch
        self.failed: Exception | None = None

    def ready(self) -> bool:
        """See EventSink."""
        return self.failed is None

    def take(self, events: list[TokenEvent]) -> None:
        """See EventSink."""
        self._watch.touch()
        try:
            for event in events:
                self._take(event)
        except Exception as error:
            self.failed = error
            self._stream.fail(triton_errors.lost())


class _Watch:
    """Ends an answer that keeps silent. One timer for all of it: a timer for each token costs more than the token."""

    def __init__(self, first: float, idle: float, fail: Callable[[StreamError], None]) -> None:
        self.fail = fail
        self._idle = idle
        self._patience, self._error = first, triton_errors.first_token_timeout
        self._loop = asyncio.get_running_loop()
        self._since = self._loop.time()
        self._timer = self._loop.call_later(first, self._look)

    def touch(self) -> None:
        """Something came."""
        self._since = self._loop.time()
        if self._patience != self._idle or self._error is not triton_errors.idle_timeout:
            self._patience, self._error = self._idle, triton_errors.idle_timeout
            self._timer.cancel()
            self._timer = self._loop.call_later(self._idle, self._look)

    def stop(self) -> None:
        """The answer is over."""
        self._timer.cancel()

    def _look(self) -> None:
        left = self._since + self._patience - self._loop.time()
        if left <= 0:
            self.fail(self._error(self._patience))
        else:
            self._timer = self._loop.call_later(left, self._look)


def _body(request: GenerationRequest, interface: ModelInterface) -> bytes:
    body = tensors(request, interface) | priority(request, interface)
    return orjson.dumps(body | {"id": request.request_id} if request.request_id else body)


def read_metadata(said: bytes) -> ModelInterface:
    """What a model's metadata declares. Raises ValueError for what is none."""
    try:
        found = orjson.loads(said)
        inputs = [
            (str(one["name"]), str(one["datatype"]), list(one.get("shape") or ())) for one in found["inputs"]
        ]
        return read_interface(inputs, [str(one["name"]) for one in found["outputs"]])
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"the model's metadata lacks {error}") from error


def read_payload(payload: bytes) -> Message:
    """The data of one event as a Message. Raises ValueError for what is no JSON object."""
    try:
        fields = orjson.loads(payload)
    except ValueError:
        fields = _read_cut(payload)
    if not isinstance(fields, dict):
        raise ValueError("an event that is no object")
    error = fields.get("error")
    return Message(fields) if error is None else Message(error=str(error))


def _read_cut(payload: bytes) -> Any:
    """JSON in which a character is cut: bytes that are no UTF-8 by themselves, or one half of a \\ud83d\\udc4b."""
    try:
        return json.loads(payload.decode())
    except UnicodeDecodeError:
        fields = json.loads(payload.decode("utf-8", "surrogateescape"))
    if isinstance(fields, dict):
        for name, value in fields.items():
            if isinstance(value, str):
                with contextlib.suppress(UnicodeEncodeError):
                    fields[name] = value.encode("utf-8", "surrogateescape")
    return fields


def explain(status: int, said: bytes) -> StreamError:
    """What a refusal of Triton means."""
    text = said.decode(errors="replace").strip().removeprefix("data:").strip()
    with contextlib.suppress(ValueError, AttributeError):
        text = str(orjson.loads(text).get("error", text))
    return triton_errors.explain(CODES.get(status, "INTERNAL"), text)
