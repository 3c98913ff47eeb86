"""How many tokens a prompt has, as its engine counts them."""

from __future__ import annotations

import contextlib

import orjson
from django.utils.translation import gettext as _

from apps.gateway import errors, prompting
from apps.gateway.call import Call
from apps.gateway.domain.facts import Route
from apps.gateway.errors import ApiError
from apps.gateway.generation import ended_by_engine, no_upstream
from apps.gateway.http import check_json
from apps.gateway.upstreams.http_client import Opening
from apps.gateway.upstreams.triton import StreamFailed
from apps.gateway.wire.requests import TokenizeRequest, plain_messages, read_json, read_tokenize
from apps.streaming.token_source import GenerationRequest, SamplingParams, StreamEnd


class Tokenize(Call):
    """POST /tokenize, in vLLM's form: `count`, `max_model_len`; `tokens` is null, as engines here tell no ids.

    The engine counts while it reads the prompt, so the prompt is computed once and one token generated.
    """

    async def serve(self) -> None:
        """See the class."""
        key = self.authenticate()
        check_json(self.exchange)
        request = read_tokenize(read_json(await self.exchange.body(self.parts.max_body_bytes)))
        route = self.find_route(key, request.model)
        self.begin(key, route)
        prompt = await self._prompt(route, request)
        grant = await self.parts.admission.admit(
            key,
            route,
            prompt_tokens=max(1, len(prompt) // 4),
            max_tokens=1,
            priority=key.priority,
            request_id=self.exchange.request_id,
            text=lambda: prompt,
        )
        async with grant:
            self.grant, self.queue_seconds = grant, grant.queue_seconds
            try:
                await self._count(route, prompt)
            except StreamFailed as problem:
                raise errors.of_stream(problem.error) from problem
            finally:
                grant.settle(self.prompt_tokens or 0, self.completion_tokens or 0)

    async def _prompt(self, route: Route, request: TokenizeRequest) -> str:
        if any(upstream.kind != "triton" for upstream in route.upstreams):
            raise errors.invalid(
                _("%(model)s is served elsewhere; its tokens are not counted here.") % {"model": route.name},
                "model",
                "unsupported_parameter",
            )
        if request.messages is None:
            return request.prompt or ""
        return await prompting.render(
            route,
            plain_messages(request.messages),
            request.tools,
            add_generation_prompt=request.add_generation_prompt,
        )

    async def _count(self, route: Route, prompt: str) -> None:
        upstream = self.grant.place if self.grant else None
        if upstream is None:
            raise no_upstream(route)
        self.asked(upstream)
        self.answer = opening = Opening()
        generation = GenerationRequest(prompt, SamplingParams(max_tokens=1), self.exchange.request_id)
        stream = await self.parts.triton.open(upstream, generation, opening)
        self.answer = stream
        try:
            end = None
            while end is None:
                end = next((one for one in await stream.read() if isinstance(one, StreamEnd)), None)
            if end.reason in ("error", "cancelled"):
                raise StreamFailed(end.error or ended_by_engine())
        finally:
            self.answer = None
            stream.close()
        self.first_token()
        self.prompt_tokens, self.completion_tokens = end.prompt_tokens, end.completion_tokens
        if end.prompt_tokens is None:
            raise ApiError(
                501, "not_supported", _("The engine of %(model)s counts no tokens.") % {"model": route.name}
            )
        body = {"count": end.prompt_tokens, "max_model_len": route.max_sequence_tokens, "tokens": None}
        with contextlib.suppress(OSError):
            await self.exchange.reply(200, orjson.dumps(body), self.headers())
