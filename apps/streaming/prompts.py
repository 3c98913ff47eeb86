"""From messages to the prompt that an engine reads: the checkpoint's own chat template, for every engine alike."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.utils.translation import gettext as _

from apps.core.exceptions import NotPossibleNow
from apps.registry.models import Checkpoint
from apps.serving.domain.acting import EngineKind
from apps.serving.models import Deployment
from apps.streaming.domain.chat_template import ChatTemplate, Message, RenderedPrompt, SpecialTokens

Messages = Sequence[Message]


def conversation(
    question: str, *, system: str = "", earlier: Sequence[tuple[str, str]] = ()
) -> list[dict[str, str]]:
    """Messages of a chat: a system prompt if there is one, earlier (question, answer) pairs, the question."""
    messages = [{"role": "system", "content": system}] if system else []
    for asked, answered in earlier:
        messages.append({"role": "user", "content": asked})
        messages.append({"role": "assistant", "content": answered})
    return [*messages, {"role": "user", "content": question}]


def chat_template(checkpoint: Checkpoint) -> ChatTemplate:
    """The checkpoint's template with its special tokens. Raises TemplateFailure (missing, too large, unreadable)."""
    facts: dict[str, Any] = checkpoint.facts or {}
    special = SpecialTokens(bos=facts.get("bos_token") or "", eos=facts.get("eos_token") or "")
    return ChatTemplate(checkpoint.chat_template, special)


def render(checkpoint: Checkpoint, messages: Messages, **variables: Any) -> RenderedPrompt:
    """The prompt of a conversation, ending where the assistant's answer begins. Raises TemplateFailure.

    Its `add_bos` says whether the tokenizer must add one; `for_engine` makes that of it.
    """
    return chat_template(checkpoint).render(messages, **variables)


def for_engine(checkpoint: Checkpoint, rendered: RenderedPrompt, kind: EngineKind) -> str:
    """The prompt with which an engine of this kind reads exactly one BOS, or none where its tokenizer has none.

    The llama.cpp model adds one only where the prompt has none. The preprocessing model of our TensorRT-LLM
    repositories adds nothing (add_special_tokens is false there), so it must be in the text where the template left
    it out and the tokenizer would have added it. The llmapi model's tokenizer adds what it adds by itself.
    """
    facts: dict[str, Any] = checkpoint.facts or {}
    return with_bos(rendered, facts.get("bos_token") or "", facts.get("add_bos"), kind)


def with_bos(rendered: RenderedPrompt, bos: str, adds: bool | None, kind: EngineKind) -> str:
    """The same of plain values: the BOS token, empty for none, and whether its tokenizer adds one, null: unknown."""
    if not bos or kind == "llamacpp":
        return rendered.text
    if kind == "trtllm":
        return bos + rendered.text if rendered.add_bos and adds is True else rendered.text
    # A tokenizer's configuration often does not say it; the tokenizers whose templates print a BOS add one.
    return rendered.text if adds is False else rendered.text.removeprefix(bos)


def serving_checkpoint(deployment: Deployment) -> Checkpoint:
    """The checkpoint whose engine serves, or will serve: of the active revision, else of the build profile.

    Raises NotPossibleNow for a model repository, which has none and so no chat template.
    """
    revision = deployment.active_revision
    engine = revision.engine if revision is not None else None
    checkpoint = engine.checkpoint if engine is not None else deployment.checkpoint
    if checkpoint is None:
        raise NotPossibleNow(
            "no_chat_template",
            _("%(name)s serves a model repository, whose chat template nobody knows.")
            % {"name": deployment.name},
            remedy=_("Send completions with a prompt of your own through the gateway."),
        )
    return checkpoint
