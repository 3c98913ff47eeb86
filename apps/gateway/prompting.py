"""From a request to the prompt that an engine reads, by the chat template in the table. No row is touched."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, cast

import orjson
from django.utils.translation import gettext as _

from apps.core.exceptions import InflightError
from apps.gateway import errors
from apps.gateway.domain.facts import Route
from apps.gateway.upstreams.triton import GUIDE, GUIDE_TYPE
from apps.gateway.wire.requests import ChatRequest, plain_messages
from apps.serving.domain.acting import EngineKind
from apps.streaming.domain.chat_template import ChatTemplate, SpecialTokens
from apps.streaming.prompts import with_bos

# Longer conversations are rendered on a thread, so that no stream waits for them.
INLINE_LETTERS = 20_000
_ADDS = {"yes": True, "no": False}
# What a request's own variables may not replace.
RESERVED = frozenset({"messages", "tools", "add_generation_prompt", "bos_token", "eos_token"})


async def chat_prompt(route: Route, request: ChatRequest) -> str:
    """The rendered conversation. Raises ApiError for messages, tools and variables that the template cannot take."""
    messages = plain_messages(request.messages)
    return await render(route, messages, _tools(route, request), _variables(request))


async def render(
    route: Route,
    messages: Sequence[Mapping[str, Any]],
    tools: list[dict[str, Any]] | None = None,
    variables: Mapping[str, Any] | None = None,
    add_generation_prompt: bool = True,
) -> str:
    """Messages by a route's template. Raises ApiError."""
    special = SpecialTokens(route.tokens.get("bos", ""), route.tokens.get("eos", ""))

    def rendered() -> str:
        template = ChatTemplate(route.template, special)
        found = template.render(
            messages, tools=tools, add_generation_prompt=add_generation_prompt, **(variables or {})
        )
        kind, adds = route.tokens.get("kind", "llamacpp"), route.tokens.get("adds", "")
        return with_bos(found, special.bos, _ADDS.get(adds), cast(EngineKind, kind))

    try:
        if letters(messages) > INLINE_LETTERS or tools:
            return await asyncio.to_thread(rendered)
        return rendered()
    except InflightError as error:
        raise errors.of_input(error, "messages") from error


def letters(messages: Sequence[Mapping[str, Any]]) -> int:
    """Letters of all contents, parts included."""
    total = 0
    for message in messages:
        content = message.get("content")
        if isinstance(content, str):
            total += len(content)
        elif isinstance(content, list):
            total += sum(len(str(part.get("text", ""))) for part in content if isinstance(part, dict))
    return total


def guide_of(request: ChatRequest) -> dict[str, str] | None:
    """Inputs of guided decoding for a response_format, null for plain text. Raises ApiError."""
    wanted = request.response_format
    if wanted is None or wanted.type == "text":
        return None
    if wanted.type == "json_object":
        return {GUIDE_TYPE: "json", GUIDE: ""}
    schema = wanted.json_schema.schema_ if wanted.json_schema else None
    if not schema:
        field = "response_format.json_schema.schema"
        raise errors.invalid(_("%(field)s is missing.") % {"field": field}, field)
    return {GUIDE_TYPE: "json_schema", GUIDE: orjson.dumps(schema).decode()}


def _tools(route: Route, request: ChatRequest) -> list[dict[str, Any]] | None:
    if not request.tools or request.tool_choice == "none":
        return None
    if "tools" not in route.template:
        raise errors.invalid(
            _("The chat template of %(model)s knows no tools. Leave them out.") % {"model": route.name},
            "tools",
            "unsupported_parameter",
        )
    return request.tools


def _variables(request: ChatRequest) -> dict[str, Any]:
    given = request.chat_template_kwargs or {}
    for name in given:
        if name in RESERVED or not name.isidentifier():
            raise errors.invalid(
                _("chat_template_kwargs may not set %(name)s.") % {"name": name[:100]},
                "chat_template_kwargs",
            )
    return given
