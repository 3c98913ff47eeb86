"""Answers of somebody else's OpenAI-style server (an external deployment of the gateway) as a token source.

The request goes straight there from this process, as to a server of ours: to addresses of INFLIGHT_UPSTREAM_ALLOW
alone, each looked at when it is connected to, with the kept credential decrypted for this one request. What such a
server does not tell (queue, cache, the prompt as its model reads it) is null.
"""

from __future__ import annotations

import asyncio
import time
import weakref
from collections.abc import AsyncGenerator, Coroutine, Mapping, Sequence
from typing import Any, TypeVar

from django.utils.translation import gettext as _

from apps.chat.external_chunks import ChunkReader
from apps.gateway import upstream_urls
from apps.gateway.domain.facts import Upstream
from apps.gateway.errors import ApiError
from apps.gateway.models import ExternalDeployment
from apps.gateway.table import external_upstream
from apps.gateway.upstreams.openai import ExternalAnswer, OpenAIUpstreams
from apps.gateway.upstreams.triton import StreamFailed
from apps.streaming import triton_errors
from apps.streaming.http_client import Opening, Pool
from apps.streaming.token_source import GenerationRequest, StreamEnd, StreamError, TokenEvent

# Turn.instance_uid of an answer from elsewhere; no revision goes with it.
EXTERNAL = "external"
# Sampling parameters that OpenAI's chat completions have, by our names, with theirs.
PARAMS = {
    "max_tokens": "max_tokens",
    "temperature": "temperature",
    "top_p": "top_p",
    "presence_penalty": "presence_penalty",
    "frequency_penalty": "frequency_penalty",
    "seed": "seed",
    "stop_words": "stop",
    "logprobs": "top_logprobs",
}
FIRST_TOKEN_SECONDS = 120.0
IDLE_SECONDS = 60.0
# OpenAI's newer models refuse the one name, other servers do not know the other.
_OLDER, _NEWER = "max_tokens", "max_completion_tokens"

Result = TypeVar("Result")
_pools: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Pool] = weakref.WeakKeyDictionary()


def body_of(model: str, messages: Sequence[Mapping[str, Any]], params: Mapping[str, Any]) -> dict[str, Any]:
    """The body of a chat completion; what is not set is left to the server."""
    found: dict[str, Any] = {
        "model": model,
        "messages": list(messages),
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    found |= {theirs: params[ours] for ours, theirs in PARAMS.items() if params.get(ours) is not None}
    if "top_logprobs" in found:
        found["logprobs"] = True
    return found


def source_of(
    row: ExternalDeployment, messages: Sequence[Mapping[str, Any]], params: Mapping[str, Any]
) -> ExternalSource:
    """A source that asks an external deployment. Raises InvalidInput where its address is not allowed any more, or
    SecretUnreadable.
    """
    upstream_urls.check(row.base_url)
    return ExternalSource(external_upstream(row), body_of(row.model, messages, params))


class ExternalSource:
    """A TokenSource of one request; belongs to the event loop that runs it. The request's own prompt is not sent."""

    def __init__(
        self,
        upstream: Upstream,
        body: Mapping[str, Any],
        *,
        first_token_seconds: float = FIRST_TOKEN_SECONDS,
        idle_seconds: float = IDLE_SECONDS,
    ) -> None:
        self._upstream = upstream
        self._body = body
        self._first_token_seconds, self._idle_seconds = first_token_seconds, idle_seconds

    async def stream(self, request: GenerationRequest) -> AsyncGenerator[TokenEvent, None]:
        """Deltas, then one StreamEnd; see TokenSource."""
        seconds, late = self._first_token_seconds, triton_errors.first_token_timeout
        reader = ChunkReader(self._body["messages"])
        try:
            answer = await _within(seconds, late, self._open(self._body))
        except StreamFailed as failed:
            yield StreamEnd("error", time.perf_counter(), error=_of_elsewhere(failed.error))
            return
        error: StreamError | None = None
        try:
            if not answer.streams:
                body = await _within(seconds, late, answer.whole())
                for event in reader.feed(body, time.perf_counter()):
                    yield event
            while answer.streams and not (answer.ended or reader.ended):
                data = await _within(seconds, late, answer.read())
                seconds, late = self._idle_seconds, triton_errors.idle_timeout
                for event in reader.feed_events(data, time.perf_counter()):
                    yield event
            error = answer.error
        except StreamFailed as failed:
            error = failed.error
        finally:
            answer.close()
        error = None if error is None else _of_elsewhere(error)
        for event in reader.finish(answer.facts, answer.rest(), error, time.perf_counter()):
            yield event

    async def close(self) -> None:
        """Nothing is kept: connections are those of the loop."""

    async def _open(self, body: Mapping[str, Any]) -> ExternalAnswer:
        upstreams = OpenAIUpstreams(_pool())
        try:
            return await upstreams.open(self._upstream, "/chat/completions", body, Opening(), True)
        except ApiError as refused:
            if _OLDER in body and _NEWER in refused.message:
                other = {_NEWER if name == _OLDER else name: value for name, value in body.items()}
                return await self._open(other)
            raise StreamFailed(_refusal(refused)) from refused


def _pool() -> Pool:
    """The loop's connections to foreign servers, without what was idle for too long."""
    pool = _pools.setdefault(asyncio.get_running_loop(), Pool(allowed=upstream_urls.address_fits))
    pool.sweep()
    return pool


async def _within(seconds: float, late: Any, work: Coroutine[Any, Any, Result]) -> Result:
    try:
        async with asyncio.timeout(seconds):
            return await work
    except TimeoutError as error:
        raise StreamFailed(late(seconds)) from error


def _refusal(refused: ApiError) -> StreamError:
    return StreamError(
        refused.code,
        refused.message,
        _("Change the request as the message says."),
    )


# Sentences of servers of ours name a Triton and its deployment's page; the codes say the same of any server.
def _of_elsewhere(error: StreamError) -> StreamError:
    found = {
        "unreachable": (
            _("The external server does not answer."),
            _("Check its base URL on the gateway's page, and that it may be reached from here."),
        ),
        "connection_lost": (
            _("The connection to the external server broke before the answer was complete."),
            _("Ask again."),
        ),
        "restricted": (error.sentence, _("Check the secret of the external deployment.")),
        "first_token_timeout": (error.sentence, _("Ask again later; the external server may be overloaded.")),
        "idle_timeout": (error.sentence, _("Ask again; the external server stopped in the middle.")),
        "protocol_error": (
            error.sentence,
            _("Check that its base URL leads to an OpenAI-style API."),
        ),
    }.get(error.code)
    if found is None:
        return error
    return StreamError(error.code, found[0], found[1], error.cause)
