"""The tokens of a prompt, out of its engine's own tokenizer. Nothing is generated and no slot is held."""

from __future__ import annotations

import contextlib

import orjson
from django.utils.translation import gettext as _

from apps.gateway import errors, prompting
from apps.gateway.access.admission import Grant
from apps.gateway.call import Call
from apps.gateway.domain.facts import KeyFacts, Route
from apps.gateway.generation import ATTEMPTS, no_upstream
from apps.gateway.http import check_json
from apps.gateway.upstreams.tokens import token_ids
from apps.gateway.upstreams.triton import StreamFailed
from apps.gateway.wire.requests import TokenizeRequest, plain_messages, read_json, read_tokenize


class Tokenize(Call):
    """POST /tokenize, in vLLM's form: `count`, `max_model_len`, `tokens` (ids)."""

    async def serve(self) -> None:
        """See the class."""
        key = self.authenticate()
        check_json(self.exchange)
        request = read_tokenize(read_json(await self.exchange.body(self.parts.max_body_bytes)))
        route = self.find_route(key, request.model)
        self.begin(key, route)
        prompt = await self._prompt(route, request)
        async with await self._admitted(key, route) as grant:
            self.grant, self.queue_seconds = grant, grant.queue_seconds
            # The table may be another one by now.
            route = self.parts.holder.table.routes.get(route.name, route)
            try:
                tokens = await self._tokens(route, prompt, request.add_special_tokens)
            except StreamFailed as problem:
                raise errors.of_stream(problem.error) from problem
        body = {"count": len(tokens), "max_model_len": route.max_sequence_tokens, "tokens": tokens}
        with contextlib.suppress(OSError):
            await self.exchange.reply(200, orjson.dumps(body), self.headers())

    async def _admitted(self, key: KeyFacts, route: Route) -> Grant:
        """Counted only, as no slot is needed; where the route sleeps it waits in the queue, which wakes it."""
        if not route.wakes or route.upstreams:
            return await self.parts.admission.count(key, route, self.exchange.request_id)
        return await self.parts.admission.admit(
            key,
            route,
            prompt_tokens=0,
            max_tokens=0,
            priority=key.priority,
            request_id=self.exchange.request_id,
        )

    async def _prompt(self, route: Route, request: TokenizeRequest) -> str:
        if any(upstream.kind != "triton" for upstream in route.upstreams):
            raise errors.invalid(
                _("%(model)s is served elsewhere; its tokens are not known here.") % {"model": route.name},
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

    async def _tokens(self, route: Route, prompt: str, special: bool | None) -> list[int]:
        """Of the least busy upstream that answers."""
        balancer = self.parts.balancer
        failed: StreamFailed | None = None
        usable = sorted(balancer.usable(route), key=lambda one: balancer.outstanding(one.uid))
        for upstream in usable[:ATTEMPTS]:
            self.asked(upstream)
            try:
                tokens = await token_ids(self.parts.triton, upstream, prompt, special)
            except StreamFailed as problem:
                failed = problem
                if problem.error.code not in errors.TRY_ELSEWHERE:
                    break
                continue
            self.first_token()
            return tokens
        raise failed or no_upstream(route)
