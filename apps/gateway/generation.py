"""chat/completions and completions: admitted, routed, relayed.

What can be tried again is tried again while nothing of an answer was sent: on another upstream of the route, then on
the route that stands in for it. Once a token is out an answer ends where its upstream ends.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import orjson
from django.utils.translation import gettext as _

from apps.gateway import errors, prompting
from apps.gateway.access.admission import Grant
from apps.gateway.access.bounds import allowed_max_tokens
from apps.gateway.call import Call
from apps.gateway.domain.facts import KeyFacts, Route, Upstream
from apps.gateway.errors import ApiError
from apps.gateway.http import check_json
from apps.gateway.relay import StreamRelay
from apps.gateway.upstreams.openai import ExternalAnswer
from apps.gateway.upstreams.triton import StreamFailed, TokenStream
from apps.gateway.wire.answers import DONE, ChatWriter, CompletionWriter, Writer
from apps.gateway.wire.requests import (
    ChatRequest,
    CompletionRequest,
    read_chat,
    read_completion,
    read_json,
)
from apps.streaming.http_client import Opening
from apps.streaming.token_source import (
    GenerationRequest,
    StreamEnd,
    StreamError,
    TokenEvent,
    TokenLogprob,
)
from apps.streaming.triton_messages import DEFAULT_MAX_TOKENS

ATTEMPTS = 3
# A request that has computed nothing waits for the return of the instance that died under it, so many times.
QUEUED_AGAIN = 3
DIED = frozenset({"unreachable", "engine_died", "not_ready"})
MOST_FALLBACKS = 3
# The upstream's own fault, which counts against its health; a full queue and a bad request do not.
FAULTS = frozenset(
    {
        *("unreachable", "not_ready", "engine_died", "connection_lost", "restricted", "protocol_error"),
        *("first_token_timeout", "idle_timeout", "engine_error"),
    }
)


class Generation(Call):
    """One chat or completion."""

    request: ChatRequest | CompletionRequest
    data: dict[str, Any]
    letters = 0
    # Tokens of the prompt as they are guessed from its length, until the engine counts them.
    _asked_tokens = 0
    _relay: StreamRelay | None = None

    async def serve(self) -> None:
        """See the module."""
        key = self.authenticate()
        check_json(self.exchange)
        body = await self.exchange.body(self.parts.max_body_bytes)
        self.data = read_json(body)
        self._read()
        route = self.find_route(key, self.request.model)
        self.streams = self.request.streams
        self.begin(key, route)
        failed: ApiError | None = None
        asleep: list[Route] = []
        for candidate in self._candidates(route, key):
            if self._sleeps(candidate) and self._another_answers(candidate, key):
                self.parts.registry.want(candidate.name)
                asleep.append(candidate)
                continue
            try:
                await self._until_it_returns(key, candidate)
                return
            except _Elsewhere as problem:
                failed = problem.error
        for candidate in asleep:
            # Nobody could stand in for it after all.
            try:
                await self._until_it_returns(key, candidate)
                return
            except _Elsewhere as problem:
                failed = problem.error
        raise failed or no_upstream(route)

    def _read(self) -> None:
        if self.endpoint == "chat":
            chat = read_chat(self.data)
            self.request = chat
            self.letters = prompting.letters(chat.messages)
        else:
            completion = read_completion(self.data)
            self.request = completion
            self.letters = len(completion.text)

    def _candidates(self, route: Route, key: KeyFacts) -> Iterator[Route]:
        """The route, then those that stand in for it, each once."""
        seen: set[str] = set()
        found: Route | None = route
        while found is not None and found.name not in seen and len(seen) <= MOST_FALLBACKS:
            seen.add(found.name)
            yield found
            found = self.parts.holder.table.routes.get(found.fallback) if found.fallback else None

    def _sleeps(self, route: Route) -> bool:
        now = self._now(route)
        return now.wakes and not now.upstreams

    def _another_answers(self, route: Route, key: KeyFacts) -> bool:
        """Whether a route that stands in for one that sleeps has a server now: nobody need wait for the start."""
        others = list(self._candidates(route, key))[1:]
        return any(self.parts.balancer.usable(self._now(one)) for one in others)

    # ------------------------------------------------------------ one route

    async def _until_it_returns(self, key: KeyFacts, route: Route) -> None:
        """On this route; where its last upstream has just died, in the queue again until it is back."""
        for again in range(QUEUED_AGAIN, -1, -1):
            try:
                await self._on_route(key, route)
                return
            except _Elsewhere as problem:
                gone = problem.error.code in DIED and self.parts.balancer.capacity(self._now(route)) == 0
                if not (again and gone) or route.fallback:
                    raise

    def _now(self, route: Route) -> Route:
        """The route as the newest table has it."""
        return self.parts.holder.table.routes.get(route.name, route)

    async def _on_route(self, key: KeyFacts, route: Route) -> None:
        gone = not route.upstreams and not route.wakes
        if gone and (route.fallback or not self.parts.served_lately(route.name)):
            raise _Elsewhere(no_upstream(route))
        generation = await self._generation(key, route)
        text = generation.prompt if generation else ""
        if self.route is not None and self.route.record_bodies:
            self.prompt_text = text or orjson.dumps(self.data.get("messages") or "").decode()
        self.phase = "waiting"
        self._asked_tokens = max(1, (len(text) or self.letters) // 4)
        grant = await self.parts.admission.admit(
            key,
            route,
            prompt_tokens=self._asked_tokens,
            max_tokens=self._wanted(key, route) or DEFAULT_MAX_TOKENS,
            priority=key.priority,
            request_id=self.exchange.request_id,
            text=lambda: self._routing_text(generation),
        )
        async with grant:
            self.grant = grant
            # The table may be another one by now.
            route = self._now(route)
            generation = generation or await self._generation(key, route)
            self.queue_seconds = (self.queue_seconds or 0.0) + grant.queue_seconds
            if self.running is not None:
                self.running.queue_seconds = self.queue_seconds
            try:
                await self._attempts(key, route, generation, grant)
            finally:
                self._settle()

    def _settle(self) -> None:
        """Tell the limits what was used. A stream that was cut off used what it had sent, though nobody told so."""
        sent = self.running.tokens if self.running is not None else 0
        if self.completion_tokens is None and self._relay is not None and self._relay.counts:
            self.completion_tokens = sent
        if self.grant is not None:
            began = self.ttft is not None
            prompt = self.prompt_tokens or (self._asked_tokens if began else 0)
            self.grant.settle(prompt, self.completion_tokens or (sent if began else 0))

    async def _attempts(
        self, key: KeyFacts, route: Route, generation: GenerationRequest | None, grant: Grant
    ) -> None:
        excluded: set[str] = set()
        failed: ApiError | None = None
        upstream = grant.place
        for _attempt in range(ATTEMPTS):
            if upstream is None:
                upstream = self.parts.balancer.choose(route, lambda: self._routing_text(generation), excluded)
                if upstream is None:
                    break
                grant.move(upstream)
            excluded.add(upstream.uid)
            try:
                await self._on_upstream(key, route, upstream, generation)
                return
            except StreamFailed as problem:
                failed = errors.of_stream(problem.error)
                if problem.error.code not in errors.TRY_ELSEWHERE:
                    raise failed from problem
                self.parts.metrics.retries.labels(route.name, problem.error.code).inc()
                upstream = None
        raise _Elsewhere(failed or no_upstream(route))

    async def _on_upstream(
        self, key: KeyFacts, route: Route, upstream: Upstream, generation: GenerationRequest | None
    ) -> None:
        """One attempt. Raises StreamFailed while nothing of an answer is out."""
        self.asked(upstream)
        trace = self.parts.tracing.parent_of(self.span) if self.span is not None else ""
        try:
            if upstream.kind == "openai":
                await self._relay_external(key, route, upstream, trace)
            elif generation is not None:
                await self._relay_triton(upstream, generation, trace)
        except StreamFailed as problem:
            self.upstream_seconds += time.perf_counter() - self.asked_at
            self._blame(upstream, problem.error)
            raise
        finally:
            self.answer = None

    def _blame(self, upstream: Upstream, error: StreamError) -> None:
        if error.code in FAULTS:
            at_once = error.code in ("unreachable", "engine_died")
            if self.parts.balancer.health.failed(upstream.uid, at_once):
                self.parts.metrics.ejections.labels(upstream.uid).inc()

    # ------------------------------------------------------------ Triton

    async def _relay_triton(self, upstream: Upstream, generation: GenerationRequest, trace: str) -> None:
        guide = prompting.guide_of(self.request) if isinstance(self.request, ChatRequest) else None
        self.answer = opening = Opening()
        stream = await self.parts.triton.open(upstream, generation, opening, guide, trace)
        self.answer = stream
        try:
            events = await stream.read()
            first = events[0]
            if isinstance(first, StreamEnd) and first.reason in ("error", "cancelled"):
                raise StreamFailed(first.error or ended_by_engine())
            self.parts.balancer.health.succeeded(upstream.uid)
            self.first_token()
            model = self.route.name if self.route else upstream.model
            kind = ChatWriter if self.endpoint == "chat" else CompletionWriter
            writer: Writer = kind(model, self.request.include_usage)
            if self.streams:
                await self._stream(stream, events, writer)
            else:
                await self._collect(stream, events, writer)
        finally:
            stream.close()

    async def _stream(self, stream: TokenStream, events: list[TokenEvent], writer: Writer) -> None:
        """What comes while this waits goes past it: see apps.gateway.relay."""
        exchange = self.exchange
        texts = self.answer_text if self.route and self.route.record_bodies else None
        self._relay = relay = StreamRelay(exchange, writer, self.running, texts, self._touched)
        await self.start_stream()
        relay.out.append(writer.opening())
        stream.divert(relay)
        while (end := relay.add(events)) is None:
            await exchange.write(relay.taken())
            events = await stream.read()
            self.since = exchange.last_write
        await self._finish(end, relay.out, writer)

    def _touched(self, moment: float) -> None:
        self.since = moment

    async def _finish(self, end: StreamEnd, out: list[bytes], writer: Writer) -> None:
        self._counted(end)
        if end.reason in ("error", "cancelled"):
            error = errors.of_stream(end.error or ended_by_engine())
            if self.upstream is not None and end.error is not None:
                self._blame(self.upstream, end.error)
            self._end_as("error", error.code)
            out.append(b"data: " + error.body() + b"\n\n" + DONE)
        else:
            out.append(writer.ending(end))
        await self.exchange.write(b"".join(out), more=False)

    async def _collect(self, stream: TokenStream, events: list[TokenEvent], writer: Writer) -> None:
        texts: list[str] = []
        logprobs: list[TokenLogprob] = []
        while True:
            for event in events:
                if isinstance(event, StreamEnd):
                    await self._reply(event, "".join(texts), logprobs, writer)
                    return
                texts.append(event.text)
                logprobs += event.logprobs or ()
                if self.running is not None:
                    self.running.tokens += 1 if event.tokens is None else event.tokens
            events = await stream.read()
            self.since = time.perf_counter()

    async def _reply(self, end: StreamEnd, text: str, logprobs: list[TokenLogprob], writer: Writer) -> None:
        self._counted(end)
        if end.reason in ("error", "cancelled"):
            # Nothing is out yet, so the whole request may be tried elsewhere.
            raise StreamFailed(end.error or ended_by_engine())
        self.answer_text = [text]
        await self.exchange.reply(200, writer.whole(text, logprobs, end), self.headers())

    def _counted(self, end: StreamEnd) -> None:
        self.prompt_tokens, self.completion_tokens = end.prompt_tokens, end.completion_tokens
        self.cached_tokens = end.cached_tokens

    # ------------------------------------------------------------ other OpenAI-style servers

    async def _relay_external(self, key: KeyFacts, route: Route, upstream: Upstream, trace: str) -> None:
        data = self.data
        wanted = self._wanted(key, route)
        if wanted is not None and self.request.wanted_tokens is None:
            data = {**data, "max_tokens": wanted}
        path = "/chat/completions" if self.endpoint == "chat" else "/completions"
        self.answer = opening = Opening()
        answer = await self.parts.external.open(
            upstream, path, data, opening, self.request.include_usage, trace
        )
        self.answer = answer
        if self.route is not None and self.route.record_bodies:
            answer.facts.texts = self.answer_text
        try:
            if self.streams:
                await self._pass_on(upstream, answer)
            else:
                body = await answer.whole()
                self.parts.balancer.health.succeeded(upstream.uid)
                self.first_token()
                self._told(answer)
                await self.exchange.reply(200, body, self.headers())
        finally:
            self._told(answer)
            answer.close()

    async def _pass_on(self, upstream: Upstream, answer: ExternalAnswer) -> None:
        exchange, running = self.exchange, self.running
        data = await answer.read()
        if answer.error is not None and not data:
            raise StreamFailed(answer.error)
        self.parts.balancer.health.succeeded(upstream.uid)
        self.first_token()
        await self.start_stream()
        while not answer.ended:
            await exchange.write(data)
            if running is not None:
                running.tokens = answer.facts.chunks
            data = await answer.read()
            self.since = exchange.last_write
        if answer.error is not None:
            error = errors.of_stream(answer.error)
            self._blame(upstream, answer.error)
            self._end_as("error", error.code)
            data += b"data: " + error.body() + b"\n\n"
        await exchange.write(data + DONE, more=False)

    def _told(self, answer: ExternalAnswer) -> None:
        facts = answer.facts
        self.prompt_tokens, self.completion_tokens = facts.prompt_tokens, facts.completion_tokens
        self.cached_tokens = facts.cached_tokens

    # ------------------------------------------------------------ what is asked for

    async def _generation(self, key: KeyFacts, route: Route) -> GenerationRequest | None:
        """The request for Triton; None where no upstream of the route is one."""
        if all(upstream.kind != "triton" for upstream in route.upstreams):
            return None
        if isinstance(self.request, ChatRequest):
            prompt = await prompting.chat_prompt(route, self.request)
        else:
            prompt = self.request.text
        sampling = self.request.sampling(self._wanted(key, route), self.request.wanted_logprobs)
        # Levels count from 1, as Triton's do.
        return GenerationRequest(prompt, sampling, self.exchange.request_id, key.priority + 1)

    def _wanted(self, key: KeyFacts, route: Route) -> int | None:
        """Tokens that the answer may have: asked for, or the limit where nothing was and the default is above it."""
        asked = self.request.wanted_tokens
        if asked is not None:
            return asked
        most = allowed_max_tokens(key, route)
        return most if most is not None and most < DEFAULT_MAX_TOKENS else None

    def _routing_text(self, generation: GenerationRequest | None) -> str:
        if generation is not None:
            return generation.prompt
        if isinstance(self.request, CompletionRequest):
            return self.request.text
        return "\n".join(str(message.get("content")) for message in self.request.messages)


class _Elsewhere(Exception):
    """Nothing on this route can answer; another route may."""

    def __init__(self, error: ApiError) -> None:
        super().__init__(error.message)
        self.error = error


def no_upstream(route: Route) -> ApiError:
    """Nothing serves."""
    return ApiError(
        503,
        "not_ready",
        _("Nothing serves %(model)s now. Wait until its deployment is ready.") % {"model": route.name},
        headers={"retry-after": "2"},
    )


def ended_by_engine() -> StreamError:
    """The engine says that it cancelled a request that nobody here cancelled."""
    return StreamError(
        "engine_died", _("The engine ended the request."), _("Its instance is stopping; send it again.")
    )
