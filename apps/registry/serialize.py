"""Checkpoints as plain JSON values, for pages, API, command line and live topics."""

from __future__ import annotations

from typing import Any

from apps.registry.models import Checkpoint


def checkpoint_dict(checkpoint: Checkpoint) -> dict[str, Any]:
    """One checkpoint. `facts` has the keys of registry.domain.gguf_facts.GgufFacts but the chat template."""
    return {
        "id": checkpoint.pk,
        "name": checkpoint.name,
        "state": checkpoint.state,
        "tone": checkpoint.tone,
        "reason": checkpoint.reason or None,
        "sentence": checkpoint.sentence or None,
        "remedy": checkpoint.remedy or None,
        "version": checkpoint.version,
        "state_since": checkpoint.state_since.isoformat(),
        "created_at": checkpoint.created_at.isoformat(),
        "source": checkpoint.source,
        "path": checkpoint.path or None,
        "format": checkpoint.format or None,
        "size_bytes": checkpoint.size_bytes,
        "sha256": checkpoint.sha256 or None,
        "facts": {
            key: value for key, value in checkpoint.facts.items() if key not in {"identity", "findings"}
        },
        "findings": checkpoint.facts.get("findings", []),
        "chat_template": checkpoint.chat_template or None,
    }
