"""Live topic of this app: checkpoints."""

from __future__ import annotations

from typing import Any

from apps.accounts.roles import Action
from apps.realtime import topics
from apps.registry import selectors, serialize


def register() -> None:
    """Register it; called once, from AppConfig.ready."""
    topics.register("checkpoints", permission=Action.VIEW, snapshot=checkpoints_snapshot, keyed=False)


def checkpoints_snapshot(key: int) -> dict[str, Any]:
    """Every checkpoint."""
    return {"checkpoints": [serialize.checkpoint_dict(row) for row in selectors.checkpoints()]}
