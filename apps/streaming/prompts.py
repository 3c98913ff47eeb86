"""From messages to the prompt that an engine reads: the checkpoint's own chat template, for every engine alike."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.utils.translation import gettext as _

from apps.core.exceptions import NotPossibleNow
from apps.registry.models import Checkpoint
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

    The llama.cpp model adds its BOS only where the prompt has none; for a TensorRT-LLM ensemble `add_bos` is the
    preprocessing model's parameter add_special_tokens.
    """
    return chat_template(checkpoint).render(messages, **variables)


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
