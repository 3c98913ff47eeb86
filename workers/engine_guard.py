"""Before any start: an engine that its node cannot run is refused with the reason, not loaded to see it fail."""

from __future__ import annotations

import logging

from apps.engines.compatibility import engine_on_node
from apps.serving.models import Instance
from workers.runtimes.base import Failure

log = logging.getLogger(__name__)
REASON = "engine_does_not_fit"


def refusal(row: Instance) -> Failure | None:
    """Why the instance's engine cannot run on its node; None where it can, or where nothing tells that it cannot."""
    engine, node = row.revision.engine, row.node
    if engine is None or node is None:
        return None
    found = engine_on_node(engine, node)
    first = found.first
    if first is None:
        return None
    if found.verdict == "warn":
        log.warning("instance %s: %s", row.uid, first.message)
        return None
    return Failure(REASON, first.message, first.remedy) if found.verdict == "refuse" else None
