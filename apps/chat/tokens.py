"""What a question will be to the engine, before it is asked: its prompt by the chat template, and its tokens."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from apps.chat import selectors
from apps.chat.models import Conversation, Turn
from apps.chat.targets import own
from apps.core.exceptions import InflightError
from apps.realtime import pool
from apps.serving.domain.acting import EngineKind
from apps.streaming import capabilities, prompts, tokenizing
from apps.streaming.selectors import pick_endpoint
from apps.streaming.token_source import Endpoint


@dataclass(frozen=True, slots=True)
class Counted:
    """`tokens` of the whole prompt and what prompt and answer may have together; null where nobody knows.

    `prompt` is what the engine would read; `problem` says why there is none.
    """

    tokens: int | None
    context_tokens: int | None
    prompt: str = ""
    problem: str = ""


@dataclass(frozen=True, slots=True)
class _Prepared:
    prompt: str
    kind: EngineKind
    context_tokens: int | None
    endpoint: Endpoint | None


async def count(conversation: Conversation, system_prompt: str, after: Turn | None, question: str) -> Counted:
    """Render the prompt that the question would make after `after`, and have the engine count it."""
    if conversation.external is not None:
        return Counted(None, conversation.external.max_sequence_tokens)
    try:
        found = await pool.run(_prepare, conversation.pk, system_prompt, after, question)
    except InflightError as error:
        return Counted(None, None, problem=f"{error.sentence} {error.remedy}".strip())
    tokens = None
    if found.endpoint is not None:
        tokens = await tokenizing.count_tokens(found.endpoint, found.kind, found.prompt)
    return Counted(tokens, found.context_tokens, found.prompt)


def _prepare(conversation_id: int, system_prompt: str, after: Turn | None, question: str) -> _Prepared:
    # Read anew: a page stays open for longer than a revision serves.
    deployment = own(Conversation.objects.select_related("deployment", "external").get(pk=conversation_id))
    earlier: Iterable[Turn] = [*selectors.before(after), after] if after is not None else ()
    messages = selectors.messages(system_prompt, earlier, question)
    known = capabilities.of(deployment)
    checkpoint = prompts.serving_checkpoint(deployment)
    prompt = prompts.for_engine(checkpoint, prompts.render(checkpoint, messages), known.kind)
    try:
        endpoint = pick_endpoint(deployment) if known.tokenizes else None
    except InflightError:
        # Nothing serves; the prompt can be shown all the same.
        endpoint = None
    return _Prepared(prompt, known.kind, known.context_tokens, endpoint)
