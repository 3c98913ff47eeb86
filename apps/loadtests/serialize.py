"""Rows of this app as plain JSON values. Times are ISO 8601 text; what is not known is null."""

from __future__ import annotations

from typing import Any

from apps.loadtests import generators, states
from apps.loadtests.models import LoadRun, LoadTest, QualityGate, QualityRun, Study
from apps.serving.serialize import iso, status_dict


def load_test_dict(row: LoadTest) -> dict[str, Any]:
    """One load test."""
    return {
        "id": row.pk,
        "name": row.name,
        "scenario": row.scenario,
        "created_at": iso(row.created_at),
        "updated_at": iso(row.updated_at),
    }


def run_dict(row: LoadRun, short: bool = False) -> dict[str, Any]:
    """One run; `short` leaves out its series, scenario, environment and the steps of its summary."""
    found = {
        **status_dict(row),
        "number": row.number,
        "test": row.test.name if row.test else None,
        "study": row.study.number if row.study else None,
        "arm": row.arm,
        "repeat": row.repeat,
        "target": row.target,
        "seed": row.seed,
        "generator": row.generator,
        "requested_by": row.requested_by.get_username() if row.requested_by else None,
        "progress": row.progress,
        "eta_seconds": row.eta_seconds,
        "cancel_requested": row.cancel_requested_at is not None,
        "started_at": iso(row.started_at),
        "finished_at": iso(row.finished_at),
        "figures": first_figures(row),
        "generator_bound": generator_bound(row),
        "actions": ["stop"] if row.is_active and row.cancel_requested_at is None else _again(row),
    }
    if short:
        return found
    return {
        **found,
        "scenario": row.scenario,
        "environment": row.environment,
        "summary": row.summary,
        "series": row.series,
        "has_log": bool(row.log_path),
        "beside": generators.beside(row),
    }


def _again(row: LoadRun) -> list[str]:
    return ["repeat"] if row.is_terminal and row.study_id is None else []


def first_figures(row: LoadRun) -> dict[str, Any] | None:
    """Figures of a run's first step, or None before it has measured."""
    steps = (row.summary or {}).get("steps") or []
    return steps[0]["figures"] if steps else None


def generator_bound(row: LoadRun) -> bool | None:
    """Whether the generator was the bottleneck; None before it is known."""
    told = (row.summary or {}).get("generator")
    return bool(told["bound"]) if told else None


def study_dict(row: Study) -> dict[str, Any]:
    """One study with its runs."""
    runs = list(row.runs.select_related("test", "study", "deployment", "requested_by").order_by("number"))
    return {
        **status_dict(row),
        "number": row.number,
        "kind": row.study_kind,
        "title": row.title,
        "arms": row.arms,
        "repeats": row.repeats,
        "scenario": row.scenario,
        "primary": row.primary,
        "seed": row.seed,
        "verdict": row.verdict,
        "progress": study_progress(row, runs),
        "requested_by": row.requested_by.get_username() if row.requested_by else None,
        "started_at": iso(row.started_at),
        "finished_at": iso(row.finished_at),
        "runs": [run_dict(run, short=True) for run in runs],
        "actions": ["cancel"] if row.state in (states.PREPARING, states.RUNNING) else [],
    }


def study_progress(row: Study, runs: list[LoadRun]) -> float:
    """How much of a study's runs is done, 0 to 1."""
    if row.is_terminal:
        return 1.0
    done = sum(1.0 if run.is_terminal else run.progress or 0.0 for run in runs)
    return min(1.0, done / max(1, len(row.arms) * row.repeats))


def quality_run_dict(row: QualityRun, short: bool = False) -> dict[str, Any]:
    """One quality run; `short` leaves out its answers and passages."""
    result = row.result
    if short and result is not None:
        result = {key: value for key, value in result.items() if key not in ("answers", "passages")}
    return {
        **status_dict(row),
        "number": row.number,
        "method": row.method,
        "title": row.title,
        "engine": row.engine.fingerprint if row.engine else None,
        "baseline": row.baseline.fingerprint if row.baseline else None,
        "deployment": row.deployment.name if row.deployment else None,
        "baseline_deployment": row.baseline_deployment.name if row.baseline_deployment else None,
        "settings": row.settings,
        "result": result,
        "requested_by": row.requested_by.get_username() if row.requested_by else None,
        "progress": row.progress,
        "eta_seconds": row.eta_seconds,
        "cancel_requested": row.cancel_requested_at is not None,
        "started_at": iso(row.started_at),
        "finished_at": iso(row.finished_at),
        "actions": ["repeat"] if row.is_terminal else [] if row.cancel_requested_at else ["cancel"],
    }


GATE_KEYS = ("max_perplexity_ratio", "max_divergence", "min_top1", "min_agreement", "blocking")


def quality_gate_dict(row: QualityGate) -> dict[str, Any]:
    """One gate, as the API and documents spell it."""
    return {
        "name": row.name,
        "build": row.build_profile.name,
        **{key: getattr(row, key) for key in GATE_KEYS},
    }
