"""Live topics of this app: loadruns, loadrun:<number>, study:<number>, qualityruns, qualityrun:<number>, and logs."""

from __future__ import annotations

from typing import Any

from apps.accounts.roles import Action
from apps.loadtests import selectors, serialize, tuning_topics
from apps.loadtests.models import LoadRun, QualityRun, Study
from apps.realtime import groups, topics

NEWEST = 50


def register() -> None:
    """Register them; called once, from AppConfig.ready."""
    tuning_topics.register()
    topics.register("loadruns", permission=Action.VIEW, snapshot=runs_snapshot, keyed=False)
    topics.register("loadrun", permission=Action.VIEW, snapshot=run_snapshot)
    topics.register("study", permission=Action.VIEW, snapshot=study_snapshot)
    topics.register("qualityruns", permission=Action.VIEW, snapshot=quality_runs_snapshot, keyed=False)
    topics.register("qualityrun", permission=Action.VIEW, snapshot=quality_run_snapshot)
    topics.register_log("log:loadrun", permission=Action.VIEW, path=run_log)
    topics.register_log("log:qualityrun", permission=Action.VIEW, path=quality_run_log)
    groups.route(LoadRun.kind, _of_run)
    groups.route(QualityRun.kind, lambda row: [f"qualityrun:{row.number}", "qualityruns", "overview"])
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


def quality_runs_snapshot(key: int) -> dict[str, Any]:
    """The newest quality runs."""
    return {
        "runs": [serialize.quality_run_dict(row, short=True) for row in selectors.quality_runs()[:NEWEST]]
    }


def quality_run_snapshot(key: int) -> dict[str, Any]:
    """One quality run by its number. Raises NotFound."""
    return {"run": serialize.quality_run_dict(selectors.quality_run(key))}


def quality_run_log(key: int) -> str:
    """Path of a quality run's log; empty before it first runs."""
    return selectors.quality_run(key).log_path
