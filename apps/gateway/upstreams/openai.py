"""Other people's OpenAI-style servers: their chunks are checked and passed on as they are.

The model's name in the request is the upstream's; its answers keep the names that it gives. Token counts are always
asked for, because limits need them, and passed on only where the caller asked too.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import orjson
from django.utils.translation import gettext as _

from apps.gateway.domain.facts import Upstream
from apps.gateway.errors import ApiError
from apps.gateway.upstreams.triton import StreamFailed
from apps.streaming import engine_causes, triton_errors
from apps.streaming.domain.text_stream import RawTextStream
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
    with_body,
)
from apps.streaming.token_source import StreamError

MAX_ANSWER_BYTES = 32 * 1024 * 1024
MAX_ERROR_BYTES = 64 * 1024
DONE = b"[DONE]"


@dataclass(slots=True)
class Facts:
    """What an answer told about itself; null where it did not. `chunks` are those with choices.

    `texts` collects the answer's text where it is a list.
    """

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    finish_reason: str | None = None
    chunks: int = 0
    texts: list[str] | None = None

    def read(self, said: Mapping[str, Any]) -> None:
        """Take over what one chunk, or a whole answer, says."""
        choices = said.get("choices")
        if isinstance(choices, list) and choices:
            self.chunks += 1
            first = choices[0]
            if isinstance(first, dict):
                if isinstance(first.get("finish_reason"), str):
                    self.finish_reason = first["finish_reason"]
                if self.texts is not None:
                    self.texts.append(_text(first))
        usage = said.get("usage")
        if isinstance(usage, dict):
            self.prompt_tokens = _count(usage.get("prompt_tokens"))
            self.completion_tokens = _count(usage.get("completion_tokens"))
            details = usage.get("prompt_tokens_details")
            if isinstance(details, dict):
                self.cached_tokens = _count(details.get("cached_tokens"))


def _text(choice: Mapping[str, Any]) -> str:
    """The text of a choice: of a whole answer or a chunk, of a chat or a completion."""
    part = choice.get("delta") or choice.get("message")
    text = part.get("content") if isinstance(part, dict) else choice.get("text")
    return text if isinstance(text, str) else ""


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


class OpenAIUpstreams:
    """Requests to OpenAI-style servers; belongs to one event loop."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._heads: dict[tuple[str, str, str, str], tuple[Origin, bytes]] = {}

    async def open(
        self,
        upstream: Upstream,
        path: str,
        data: Mapping[str, Any],
        opening: Opening,
        include_usage: bool,
        trace: str = "",
    ) -> ExternalAnswer:
        """Send a request; `path` stands behind the base URL. Raises StreamFailed, or ApiError for what it refused."""
        body = dict(data)
        body["model"] = upstream.model or body.get("model")
        if body.get("stream"):
            body["stream_options"] = {**(body.get("stream_options") or {}), "include_usage": True}
        origin, head = self._head(upstream, path)
        more = f"traceparent: {trace}\r\n".encode() if trace else b""
        try:
            connection = await self._pool.send(origin, with_body(head, orjson.dumps(body), more), opening)
        except UpstreamUnreachable as error:
            raise StreamFailed(triton_errors.unreachable()) from error
        except UpstreamLost as error:
            raise StreamFailed(opening.error or triton_errors.lost()) from error
        answer = ExternalAnswer(self._pool, origin, connection, include_usage)
        if connection.status != 200:
            await answer.refuse()
        return answer

    def _head(self, upstream: Upstream, path: str) -> tuple[Origin, bytes]:
        key = (upstream.uid, upstream.http_url, path, upstream.secret)
        if key not in self._heads:
            if len(self._heads) > 1_000:
                self._heads.clear()
            origin = read_origin(upstream.http_url)
            headers = {"Content-Type": "application/json", "Accept": "text/event-stream, application/json"}
            if upstream.secret:
                headers["Authorization"] = f"Bearer {upstream.secret}"
            self._heads[key] = (origin, request_head(origin, "POST", path, headers))
        return self._heads[key]


class ExternalAnswer:
    """An answer that has begun. Read it to its end, and close it in any case."""

    def __init__(self, pool: Pool, origin: Origin, connection: Connection, include_usage: bool) -> None:
        self._pool, self._origin, self._connection = pool, origin, connection
        self._include_usage = include_usage
        self._events = EventReader()
        self._error: StreamError | None = None
        self._closed = False
        # Set with the first chunk that holds a part of a character; nearly no stream has one.
        self._cut: dict[tuple[int, str], RawTextStream] | None = None
        self.facts = Facts()
        self.ended = False
        self.error: StreamError | None = None
        self.last_read = time.perf_counter()

    @property
    def streams(self) -> bool:
        """Whether events come: some servers answer a request for a stream with one whole body."""
        return b"application/json" not in self._connection.headers.get(b"content-type", b"")

    async def read(self) -> bytes:
        """The next events as bytes to send, without the end mark; empty once `ended`, and `error` may be set then."""
        while not self.ended:
            try:
                data = await self._connection.read()
                payloads = self._events.feed(data) if data else self._events.flush()
            except (UpstreamLost, UpstreamUnreachable):
                return self._end(self._error or triton_errors.lost())
            except EventTooLong as error:
                return self._end(triton_errors.unreadable(str(error)))
            found = self._take(payloads)
            if not data and not self.ended:
                # Without an end mark it is over only where it gave a reason.
                self._end(None if self.facts.finish_reason else triton_errors.lost())
            if found:
                return found
        return b""

    async def whole(self) -> bytes:
        """A response that is no stream, checked to be a JSON object. Raises StreamFailed."""
        try:
            body = await self._connection.body(MAX_ANSWER_BYTES)
        except (UpstreamLost, UpstreamUnreachable) as error:
            raise StreamFailed(self._error or triton_errors.lost()) from error
        try:
            said = orjson.loads(body)
        except ValueError as error:
            raise StreamFailed(triton_errors.unreadable(str(error))) from error
        if not isinstance(said, dict):
            raise StreamFailed(triton_errors.unreadable("no JSON object"))
        self.facts.read(said)
        return body

    async def refuse(self) -> None:
        """Raise what a response that is not 200 says: the caller's fault as it is, anything else as ours."""
        status = self._connection.status
        try:
            said = await self._connection.body(MAX_ERROR_BYTES)
        except (UpstreamLost, UpstreamUnreachable):
            said = b""
        finally:
            self.close()
        message, code, param = _read_error(said)
        if status in (400, 404, 413, 415, 422):
            raise _refusal(status, message, code, param)
        if status == 429 or status == 503:
            raise StreamFailed(
                StreamError("overloaded", _("The upstream is overloaded: %(text)s") % {"text": message})
            )
        error = StreamError(
            "restricted" if status in (401, 403) else "engine_error",
            _("The upstream answered with status %(status)d: %(text)s") % {"status": status, "text": message},
        )
        raise StreamFailed(error if error.code == "restricted" else engine_causes.with_cause(error, message))

    def fail(self, error: StreamError) -> None:
        """End it here, as at a timeout."""
        self._error = error
        self._connection.fail(UpstreamLost(error.code))

    def close(self) -> None:
        """Give the connection back, or close it where the answer is not over."""
        if not self._closed:
            self._closed = True
            self._pool.release(self._connection, self._origin)

    def _take(self, payloads: list[bytes]) -> bytes:
        found: list[bytes] = []
        for payload in payloads:
            if payload == DONE:
                self.ended = True
                break
            try:
                said = orjson.loads(payload)
            except ValueError:
                try:
                    said = _read_cut(payload)
                except ValueError as error:
                    self._end(triton_errors.unreadable(str(error)))
                    break
                self._cut = self._cut or {}
            if self._cut is not None and isinstance(said, dict):
                payload = _written(self._joined(said))
            if not isinstance(said, dict) or said.get("error") is not None:
                self._end(_stream_error(said))
                break
            self.facts.read(said)
            if said.get("choices") or self._include_usage or "usage" not in said:
                found.append(payload if b"\n" not in payload else orjson.dumps(said))
        if not found:
            return b""
        self.last_read = time.perf_counter()
        return b"data: " + b"\n\ndata: ".join(found) + b"\n\n"

    def _joined(self, said: dict[str, Any]) -> dict[str, Any]:
        """A chunk with the parts of characters put together over chunks, each choice's on its own."""
        assert self._cut is not None  # noqa: S101 - the caller looked
        for choice, name, part in _parts(said):
            for field_name in ("content", "reasoning_content", "text"):
                if isinstance(part.get(field_name), str | bytes):
                    key = (choice.get("index", 0), f"{name}.{field_name}")
                    # A chunk with a message, as some servers send, has the whole text so far.
                    stream = self._cut.setdefault(key, RawTextStream(accumulated=name == "message"))
                    part[field_name] = stream.feed(part[field_name])
        return said

    def rest(self) -> str:
        """What is left of the first choice's text at the end: a character that was cut and never completed."""
        held = (self._cut or {}).get((0, "delta.content"))
        return held.flush() if held is not None else ""

    def _end(self, error: StreamError | None) -> bytes:
        self.ended, self.error = True, error
        return b""


def _read_cut(payload: bytes) -> Any:
    """JSON in which a character is cut: into its two halves, as servers in JavaScript do, or into bytes.

    Bytes that are no UTF-8 by themselves stay bytes where they stand in a text of a choice. Raises ValueError.
    """
    try:
        return json.loads(payload.decode())
    except UnicodeDecodeError:
        said = json.loads(payload.decode("utf-8", "surrogateescape"))
    for _choice, _name, part in _parts(said if isinstance(said, dict) else {}):
        for name, value in part.items():
            if isinstance(value, str) and not value.isascii():
                with contextlib.suppress(UnicodeEncodeError):
                    part[name] = value.encode("utf-8", "surrogateescape")
    return said


def _parts(said: Mapping[str, Any]) -> Iterator[tuple[dict[str, Any], str, dict[str, Any]]]:
    """Each choice of a chunk, with the name and the part that holds its text; of a completion the choice itself."""
    choices = said.get("choices")
    for choice in choices if isinstance(choices, list) else ():
        if isinstance(choice, dict):
            names = [name for name in ("delta", "message") if isinstance(choice.get(name), dict)]
            yield from ((choice, name, choice[name]) for name in names)
            if not names:
                yield choice, "", choice


def _written(said: dict[str, Any]) -> bytes:
    """JSON of a chunk whose other texts may hold halves of characters, which orjson refuses."""
    try:
        return orjson.dumps(said)
    except TypeError:
        return json.dumps(said, default=lambda value: value.decode(errors="replace")).encode()


def _stream_error(said: Any) -> StreamError:
    if not isinstance(said, dict):
        return triton_errors.unreadable("an event that is no object")
    error = said["error"]
    text = str(error.get("message") if isinstance(error, dict) else error)
    failed = StreamError("engine_error", _("The upstream failed: %(text)s") % {"text": text[:400]})
    return engine_causes.with_cause(failed, text)


def _refusal(status: int, message: str, code: str | None, param: str | None) -> ApiError:
    """A request that the upstream refused, in its own words and with its own code.

    One without a code of its own, or with the status for one, gets the cause that the words show.
    """
    found = engine_causes.cause_of(message) if code is None or code.isdecimal() else None
    if found is None:
        return ApiError(status, code or "invalid_request", message or f"HTTP {status}", param)
    told = f"{found.title} {message} {engine_causes.remedy_of(found)}".strip()
    return ApiError(status, found.id, told, param)


def _read_error(said: bytes) -> tuple[str, str | None, str | None]:
    """(message, code, param) of an error body, whatever it looks like."""
    try:
        error = orjson.loads(said)["error"]
        if isinstance(error, dict):
            code, param = error.get("code"), error.get("param")
            return str(error.get("message"))[:1000], code and str(code), param and str(param)
        return str(error)[:1000], None, None
    except (ValueError, KeyError, TypeError):
        return said.decode(errors="replace")[:200], None, None
