"""The live topic of tunings: tuning:<number>."""

from __future__ import annotations

from typing import Any

from apps.accounts.roles import Action
from apps.loadtests import tuning, tuning_serialize
from apps.loadtests.tuning_models import Trial, Tuning
from apps.realtime import groups, topics


def register() -> None:
    """Register it; called once, from AppConfig.ready."""
    topics.register("tuning", permission=Action.VIEW, snapshot=snapshot)
    groups.route(Tuning.kind, lambda row: [f"tuning:{row.number}", "loadruns", "overview"])
    groups.route(Trial.kind, lambda row: [f"tuning:{row.tuning.number}"])


def snapshot(key: int) -> dict[str, Any]:
    """One tuning by its number. Raises NotFound."""
    return {"tuning": tuning_serialize.tuning_dict(tuning.tuning(key))}
