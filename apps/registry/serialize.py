"""Checkpoints as plain JSON values, for pages, API, command line and live topics."""

from __future__ import annotations

from typing import Any

from apps.registry.models import Checkpoint, HubAccess


def hub_access_dict(row: HubAccess) -> dict[str, Any]:
    """How hubs are asked; of the token only whether there is one."""
    return {
        "endpoint": row.endpoint or None,
        "has_token": row.has_token,
        "token_set_at": row.token_set_at.isoformat() if row.token_set_at else None,
    }


def _fetch(row: Checkpoint) -> dict[str, Any] | None:
    if not row.is_fetched:
        return None
    return {
        "commit": row.commit or None,
        "folder": row.folder or None,
        "bytes_done": row.bytes_done,
        "bytes_total": row.bytes_total,
        "progress": row.progress,
        "rate_bytes_per_second": row.rate_bytes_per_second,
        "eta_seconds": row.eta_seconds,
        "attempt": row.attempt,
        "retries": row.retries,
        "not_before": row.not_before.isoformat() if row.not_before else None,
        "cancelling": row.cancel_requested_at is not None and row.is_active,
        "offered": row.offered,
    }


def checkpoint_dict(checkpoint: Checkpoint) -> dict[str, Any]:
    """One checkpoint. `facts` has the keys of registry.domain.model_facts.ModelFacts but the findings."""
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
        "fetch": _fetch(checkpoint),
    }
