"""One call on its way through the gateway: who asks, where it is, how it ends, and what is kept of it.

The sweep (app.py) looks at every call a few times a second: it sends keep-alive comments, and ends what takes too
long or whose client takes nothing. So no call needs timers of its own, and a token costs none.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import time
from typing import Any, Literal, Protocol

from django.utils.translation import gettext as _

from apps.gateway import errors
from apps.gateway.access.admission import Grant
from apps.gateway.access.refusals import Refused
from apps.gateway.domain.facts import KeyFacts, Priority, RequestRecord, Route, Upstream
from apps.gateway.errors import ApiError
from apps.gateway.http import ABORT, ClientGone, Exchange, Headers, too_slow
from apps.gateway.running import RunningRequest
from apps.gateway.wire.answers import DONE
from apps.gateway.wiring import Parts
from apps.streaming import triton_errors
from apps.streaming.token_source import StreamError

log = logging.getLogger(__name__)

# A stream's first byte is out within a second, whatever the engine does; then a sign of life now and then.
FIRST_BYTE_SECONDS = 0.5
COMMENT_SECONDS = 10.0
COMMENT = b": keep-alive\n\n"
BODY_SECONDS = 30.0
# A client that takes nothing for so long holds a slot for nobody.
STALL_SECONDS = 30.0
FIRST_TOKEN_SECONDS = 120.0
IDLE_SECONDS = 60.0

Endpoint = Literal["chat", "completions", "tokenize"]
Phase = Literal["reading", "waiting", "started", "generating"]


class Failable(Protocol):
    """An answer that the sweep can end."""

    def fail(self, error: StreamError) -> None:
        """End it with an error."""


class Call:
    """State of one call; a subclass's `serve` does the work."""

    def __init__(self, parts: Parts, exchange: Exchange, endpoint: Endpoint) -> None:
        self.parts, self.exchange, self.endpoint = parts, exchange, endpoint
        self.phase: Phase = "reading"
        self.streams = False
        self.key: KeyFacts | None = None
        self.route: Route | None = None
        self.upstream: Upstream | None = None
        self.answer: Failable | None = None
        # Seconds of perf_counter; `since` is when the answer last moved.
        self.since = 0.0
        self.asked_at = 0.0
        self.upstream_seconds = 0.0
        self.ttft: float | None = None
        self.queue_seconds: float | None = None
        self.overhead: float | None = None
        self.prompt_tokens: int | None = None
        self.completion_tokens: int | None = None
        self.cached_tokens: int | None = None
        self.prompt_text: str | None = None
        self.answer_text: list[str] = []
        self.grant: Grant | None = None
        self.running: RunningRequest | None = None
        self.span: Any = None
        self._task: asyncio.Task[Any] | None = None
        self._watcher: asyncio.Task[None] | None = None
        self._ended_by: ApiError | None = None
        self._client_gone = False
        self._over = False
        self._outcome = "ok"
        self._reason = ""

    async def serve(self) -> None:
        """Answer it. Raises ApiError, Refused or ClientGone."""
        raise ApiError(404, "not_found", _("There is nothing at this address."))

    async def run(self) -> None:
        """Serve it, turn whatever goes wrong into an answer, and keep a record."""
        self._task = asyncio.current_task()
        self.parts.calls.add(self)
        try:
            await self._guarded()
        except asyncio.CancelledError:
            if self._ended_by is None and not self._client_gone:
                self._end_as("interrupted", "shutting_down")
                await self._tell(errors.stopping())
                raise
            if self._task is not None:
                self._task.uncancel()
            await self._after_end()
        finally:
            self._over = True
            self.parts.calls.discard(self)
            if self._watcher is not None:
                self._watcher.cancel()
            if self.running is not None:
                self.parts.registry.remove(self.running.request_id)
            self._record()

    async def _guarded(self) -> None:
        try:
            await self.serve()
        except ClientGone:
            self._client_gone = True
            self._end_as("cancelled", "client_gone")
        except ApiError as error:
            self._end_as("refused" if error.status < 500 else "error", error.code)
            await self._tell(error)
        except Refused as refusal:
            self._end_as("refused", refusal.limit_name or refusal.code)
            await self._tell(
                errors.refused(
                    refusal.status,
                    refusal.code,
                    refusal.sentence,
                    refusal.limit_name,
                    refusal.retry_after_seconds,
                )
            )
        except Exception:
            log.exception("The request %s failed", self.exchange.request_id)
            self._end_as("error", "internal_error")
            await self._tell(errors.internal())

    # ------------------------------------------------------------ who asks, and for what

    def authenticate(self) -> KeyFacts:
        """The key of the call. Raises ApiError."""
        scheme, _space, token = self.exchange.text(b"authorization").partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            raise errors.no_key()
        digest = hashlib.sha256(token.strip().encode("latin-1")).hexdigest()
        key = self.parts.holder.table.keys.get(digest)
        if key is None:
            raise errors.wrong_key() if self.parts.holder.loaded else errors.stopping()
        if key.expires_at is not None and key.expires_at <= time.time():
            raise errors.wrong_key(_("This API key has expired."))
        self.key = key
        return key

    def find_route(self, key: KeyFacts, name: str) -> Route:
        """The route of a model's name that the key may use. Raises ApiError."""
        route = self.parts.holder.table.routes.get(name)
        if route is None or (key.routes is not None and name not in key.routes):
            raise errors.unknown_model(name)
        self.route = route
        return route

    def begin(self, key: KeyFacts, route: Route) -> None:
        """The request is read: list it as running, and notice from now on when its client leaves."""
        exchange, registry = self.exchange, self.parts.registry
        if exchange.request_id in registry:
            exchange.request_id = f"{exchange.request_id[:100]}-{time.monotonic_ns():x}"
        self.running = RunningRequest(
            request_id=exchange.request_id,
            key_id=key.key_id,
            key_name=key.name,
            route=route.name,
            endpoint=self.endpoint,
            priority=int(key.priority),
            streamed=self.streams,
            began=exchange.began_at,
        )
        registry.add(self.running, lambda: self.end(errors.cancelled()))
        self.phase = "waiting"
        self._watcher = asyncio.create_task(self._watch())
        traced = self.parts.tracing.begin(
            f"gateway {self.endpoint}", exchange.text(b"traceparent"), exchange.began_at
        )
        self.span = traced

    async def _watch(self) -> None:
        await self.exchange.gone()
        if not self._over and self._task is not None:
            self._client_gone = True
            self._task.cancel()

    # ------------------------------------------------------------ moments of an answer

    def asked(self, upstream: Upstream) -> None:
        """The request is about to be sent to an upstream."""
        self.upstream = upstream
        self.asked_at = self.since = time.perf_counter()
        self.phase = "started"
        if self.running is not None:
            self.running.phase, self.running.upstream = "started", upstream.uid

    def first_token(self) -> None:
        """The first token is here; what passed since the request began and was neither queue nor engine is ours."""
        now = time.perf_counter()
        self.since = now
        self.phase = "generating"
        self.upstream_seconds += now - self.asked_at
        self.ttft = now - self.exchange.began
        self.overhead = max(0.0, self.ttft - (self.queue_seconds or 0.0) - self.upstream_seconds)
        if self.running is not None:
            self.running.phase, self.running.ttft_seconds = "generating", self.ttft

    def headers(self) -> Headers:
        """What every answer says besides its body."""
        found: Headers = []
        if self.overhead is not None:
            found.append((b"x-inflight-overhead-ms", b"%.2f" % (self.overhead * 1000)))
        if self.queue_seconds is not None:
            found.append((b"x-inflight-queue-ms", b"%.2f" % (self.queue_seconds * 1000)))
        if self.upstream is not None:
            found.append((b"x-inflight-instance", self.upstream.uid.encode("latin-1", "replace")))
        if self.grant is not None:
            for name, left in (
                (b"requests", self.grant.requests_left),
                (b"tokens", self.grant.tokens_left),
            ):
                if left is not None:
                    found.append((b"x-ratelimit-remaining-" + name, b"%d" % max(0, left)))
        return found

    async def start_stream(self) -> None:
        """Send the head of a stream, unless a comment did."""
        if self.exchange.started:
            return
        await self.exchange.start(
            200,
            [
                (b"content-type", b"text/event-stream; charset=utf-8"),
                (b"cache-control", b"no-cache"),
                (b"x-accel-buffering", b"no"),
                (b"x-request-id", self.exchange.request_id.encode()),
                *self.headers(),
            ],
        )

    # ------------------------------------------------------------ ends

    def end(self, error: ApiError) -> None:
        """End it from outside, with this error."""
        if not self._over and self._ended_by is None and self._task is not None:
            self._ended_by = error
            self._task.cancel()

    def tick(self, now: float) -> None:
        """One look of the sweep; `now` is of perf_counter."""
        exchange = self.exchange
        if self.phase == "reading":
            if now - exchange.began > BODY_SECONDS:
                self.end(too_slow(BODY_SECONDS))
            return
        if exchange.sending_since:
            if now - exchange.sending_since > STALL_SECONDS:
                self._client_gone = True
                self._reason = "client_stalled"
                if self._task is not None:
                    self._task.cancel()
            return
        self._check_upstream(now)
        if self.streams:
            quiet = now - (exchange.last_write if exchange.started else exchange.began)
            if quiet > (COMMENT_SECONDS if exchange.started else FIRST_BYTE_SECONDS):
                self.parts.spawn(self._comment())

    def _check_upstream(self, now: float) -> None:
        if self.answer is None:
            return
        waited = now - self.since
        if self.phase == "started" and waited > FIRST_TOKEN_SECONDS:
            self.answer.fail(triton_errors.first_token_timeout(FIRST_TOKEN_SECONDS))
        elif self.phase == "generating" and waited > IDLE_SECONDS:
            self.answer.fail(triton_errors.idle_timeout(IDLE_SECONDS))

    async def _comment(self) -> None:
        if not self._over and not self.exchange.finished and not self.exchange.sending_since:
            await self.start_stream()
            await self.exchange.write(COMMENT)

    async def _after_end(self) -> None:
        """It was ended while it ran: by its client, the sweep or an operator."""
        if self._client_gone:
            self._end_as("cancelled", self._reason or "client_gone")
            abort = self.exchange.scope.get(ABORT)
            if self._reason and abort is not None:
                # Closing would wait until the client takes what is held for it.
                abort()
                await asyncio.sleep(0)
        elif self._ended_by is not None:
            self._end_as("cancelled" if self._ended_by.status < 500 else "error", self._ended_by.code)
            await self._tell(self._ended_by)

    async def _tell(self, error: ApiError) -> None:
        """Send an error, as a response or as the last event of a stream."""
        exchange = self.exchange
        if self._client_gone or exchange.finished:
            return
        with contextlib.suppress(OSError):
            if not exchange.started:
                await exchange.refuse(error, self.headers())
            elif self.streams:
                await exchange.write(b"data: " + error.body() + b"\n\n" + DONE, more=False)

    def _end_as(self, outcome: str, reason: str) -> None:
        self._outcome, self._reason = outcome, reason

    def _record(self) -> None:
        """What is kept of it; also settles what the limits counted."""
        if self.key is None or self.route is None:
            # Nobody known asked, or for nothing known: only counted.
            self.parts.metrics.ended(self._facts())
            return
        facts = self._facts()
        self.parts.metrics.ended(facts)
        self.parts.recorder.put(facts)
        self.parts.tracing.finish(
            self.span,
            {
                "gen_ai.request.model": facts.route,
                "inflight.upstream": facts.upstream,
                "inflight.request_id": facts.request_id,
                "http.response.status_code": facts.status,
                "gen_ai.usage.input_tokens": facts.prompt_tokens,
                "gen_ai.usage.output_tokens": facts.completion_tokens,
                "inflight.queue_seconds": facts.queue_seconds,
                "inflight.ttft_seconds": facts.ttft_seconds,
                "inflight.overhead_seconds": facts.overhead_seconds,
            },
            "" if facts.outcome == "ok" else facts.reason or facts.outcome,
        )

    def _facts(self) -> RequestRecord:
        key, route, upstream = self.key, self.route, self.upstream
        keeps = route is not None and route.record_bodies
        return RequestRecord(
            request_id=self.exchange.request_id,
            key_id=key.key_id if key else None,
            key_name=key.name if key else "",
            route=route.name if route else "",
            upstream=upstream.uid if upstream else "",
            revision=upstream.revision if upstream else None,
            endpoint=self.endpoint,
            at=self.exchange.began_at,
            status=self.exchange.status or errors.CLIENT_CLOSED,
            outcome=self._outcome,
            reason=self._reason,
            streamed=self.streams,
            priority=key.priority if key else Priority.NORMAL,
            prompt_tokens=self.prompt_tokens,
            completion_tokens=self.completion_tokens,
            cached_tokens=self.cached_tokens,
            queue_seconds=self.queue_seconds,
            ttft_seconds=self.ttft,
            total_seconds=time.perf_counter() - self.exchange.began,
            overhead_seconds=self.overhead,
            prompt=self.prompt_text if keeps else None,
            answer="".join(self.answer_text) if keeps else None,
        )
