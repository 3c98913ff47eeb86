"""Live topics of this app: builds, build:<number>, log:build:<number>."""

from __future__ import annotations

from typing import Any

from apps.accounts.roles import Action
from apps.engines import selectors, serialize
from apps.realtime import topics

# The list shows the newest; older ones are on their pages.
NEWEST = 100


def register() -> None:
    """Register them; called once, from AppConfig.ready."""
    topics.register("builds", permission=Action.VIEW, snapshot=builds_snapshot, keyed=False)
    topics.register("build", permission=Action.VIEW, snapshot=build_snapshot)
    topics.register_log("log:build", permission=Action.VIEW, path=build_log)


def builds_snapshot(key: int) -> dict[str, Any]:
    """The newest builds and all engines."""
    return {
        "builds": [serialize.build_dict(row) for row in selectors.builds()[:NEWEST]],
        "engines": [serialize.engine_dict(row) for row in selectors.engines()],
    }


def build_snapshot(key: int) -> dict[str, Any]:
    """One build by its number. Raises NotFound."""
    return {"build": serialize.build_dict(selectors.build(key))}


def build_log(key: int) -> str:
    """Where a build's log is read; empty before it first runs. A new attempt has a new one."""
    return selectors.log_address(selectors.build(key))
