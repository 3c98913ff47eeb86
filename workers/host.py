"""What an engine's manifest says about the host that made it."""

from __future__ import annotations

from dataclasses import asdict
from functools import lru_cache
from typing import Any

from apps.fleet.devices import HostFacts, probe


@lru_cache(maxsize=1)
def _host() -> HostFacts:
    return probe()


def host_facts(node_id: str) -> dict[str, Any]:
    """Node id, host name, cores, memory, versions and devices as JSON values."""
    facts = asdict(_host())
    # What changes from minute to minute says nothing about an engine.
    for passing in ("folders", "report", "keep_known"):
        del facts[passing]
    return {"node_id": node_id, **facts}
