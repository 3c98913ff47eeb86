"""Rows of this app as plain JSON values, for the socket, pages, API and command line."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from apps.chat.models import Conversation, Turn


def _epoch(moment: datetime | None) -> float | None:
    return moment.timestamp() if moment else None


def turn_dict(turn: Turn, siblings: Sequence[str] | None = None) -> dict[str, Any]:
    """One turn. Times are epoch seconds, so that the page marks the answer on the charts' own axis.

    `siblings` are the ids of all turns after the same parent, oldest first, this one included; read from the
    database where they are not given.

    `metrics`: ttft_ms, itl_p50_ms, itl_p99_ms, tokens, tokens_per_second, prompt_tokens, cached_tokens, queue_ms;
    null where the engine does not tell.
    """
    return {
        "uid": turn.uid,
        "conversation": turn.conversation_id,
        "position": turn.position,
        "state": turn.state,
        "tone": turn.tone,
        "prompt": turn.prompt,
        "answer": turn.answer,
        "params": turn.params,
        "metrics": turn.metrics,
        "instance": turn.instance_uid or None,
        "revision": turn.revision_number,
        "replaces": turn.replaces.uid if turn.replaces else None,
        "parent": turn.parent.uid if turn.parent else None,
        "siblings": list(siblings) if siblings is not None else _siblings(turn),
        "reason": turn.reason or None,
        "sentence": turn.sentence or None,
        "remedy": turn.remedy or None,
        "started_at": _epoch(turn.started_at),
        "first_token_at": _epoch(turn.first_token_at),
        "finished_at": _epoch(turn.finished_at),
    }


def _siblings(turn: Turn) -> list[str]:
    rows = Turn.objects.filter(conversation_id=turn.conversation_id, parent_id=turn.parent_id)
    return list(rows.order_by("id").values_list("uid", flat=True))


def conversation_dict(conversation: Conversation) -> dict[str, Any]:
    """One conversation without its turns."""
    return {
        "id": conversation.pk,
        "title": conversation.title or None,
        "owner": conversation.owner.get_username(),
        "deployment": conversation.deployment.name if conversation.deployment else None,
        "deployment_id": conversation.deployment_id,
        "external": conversation.external.name if conversation.external else None,
        "system_prompt": conversation.system_prompt,
        "params": conversation.params,
        "created_at": _epoch(conversation.created_at),
        "updated_at": _epoch(conversation.updated_at),
    }
