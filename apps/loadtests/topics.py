"""Live topics of this app: loadruns, loadrun:<number>, study:<number>, log:loadrun:<number>."""

from __future__ import annotations

from typing import Any

from apps.accounts.roles import Action
from apps.loadtests import selectors, serialize, tuning_topics
from apps.loadtests.models import LoadRun, Study
from apps.realtime import groups, topics

NEWEST = 50


def register() -> None:
    """Register them; called once, from AppConfig.ready."""
    tuning_topics.register()
    topics.register("loadruns", permission=Action.VIEW, snapshot=runs_snapshot, keyed=False)
    topics.register("loadrun", permission=Action.VIEW, snapshot=run_snapshot)
    topics.register("study", permission=Action.VIEW, snapshot=study_snapshot)
    topics.register_log("log:loadrun", permission=Action.VIEW, path=run_log)
    groups.route(LoadRun.kind, _of_run)
    groups.route(Study.kind, lambda row: [f"study:{row.number}", "loadruns", "overview"])


def _of_run(row: Any) -> list[str]:
    found = [f"loadrun:{row.number}", "loadruns", "overview"]
    return [*found, f"study:{row.study.number}"] if row.study_id else found


def runs_snapshot(key: int) -> dict[str, Any]:
    """The newest runs."""
    return {"runs": [serialize.run_dict(row, short=True) for row in selectors.runs()[:NEWEST]]}


def run_snapshot(key: int) -> dict[str, Any]:
    """One run by its number. Raises NotFound."""
    return {"run": serialize.run_dict(selectors.run(key))}


def study_snapshot(key: int) -> dict[str, Any]:
    """One study by its number. Raises NotFound."""
    return {"study": serialize.study_dict(selectors.study(key))}


def run_log(key: int) -> str:
    """Path of a run's log; empty before it first runs."""
    return selectors.run(key).log_path
