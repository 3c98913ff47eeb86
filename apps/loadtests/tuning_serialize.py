"""Tunings as plain JSON values. Times are ISO 8601 text; what is not known is null."""

from __future__ import annotations

from typing import Any

from apps.loadtests import tuning_space, tuning_steps
from apps.loadtests import tuning_states as states
from apps.loadtests.domain import tuner_goals
from apps.loadtests.domain.tuner_request import TuningFields
from apps.loadtests.tuning_models import Trial, Tuning
from apps.serving.serialize import iso, status_dict


def tuning_dict(row: Tuning, short: bool = False) -> dict[str, Any]:
    """One tuning; `short` leaves out its trials, scenario and base."""
    request = TuningFields.model_validate(row.request)
    trials = list(row.trials.select_related("run").order_by("number"))
    found = {
        **status_dict(row),
        "number": row.number,
        "deployment": row.target,
        "objectives": request.objectives,
        "constraints": [each.model_dump(mode="json") for each in request.constraints],
        "trials_most": request.trials,
        "trials_run": sum(trial.state != states.INFEASIBLE and trial.is_terminal for trial in trials),
        "trials_refused": sum(trial.state == states.INFEASIBLE for trial in trials),
        "progress": progress_of(row, trials),
        "eta_seconds": tuning_steps.eta_seconds(row),
        "winner": row.winner,
        "report": row.report,
        "applied_trial": row.applied_trial,
        "applied_at": iso(row.applied_at),
        "applied_before": row.applied_before,
        "requested_by": row.requested_by.get_username() if row.requested_by else None,
        "cancel_requested": row.cancel_requested_at is not None,
        "finished_at": iso(row.finished_at),
        "actions": actions_of(row),
    }
    if short:
        return found
    kept = front_numbers(row)
    return {
        **found,
        "space": row.space,
        "scenario": row.scenario,
        "base": row.base,
        "seed": row.seed,
        "front": sorted(kept),
        "trials": [trial_dict(trial, trial.number in kept) for trial in trials],
    }


def trial_dict(row: Trial, on_front: bool) -> dict[str, Any]:
    """One trial."""
    return {
        **status_dict(row),
        "number": row.number,
        "configuration": row.configuration,
        "source": row.source,
        "figures": row.figures,
        "run": row.run.number if row.run is not None else None,
        "on_front": on_front,
        "finished_at": iso(row.finished_at),
    }


def front_numbers(row: Tuning) -> set[int]:
    """Numbers of the trials whose configurations nothing beats, repeats among them."""
    goals = tuning_space.goals_of(row)
    found = tuner_goals.front(tuner_goals.candidates(tuning_space.tried(row), goals), goals)
    return {number for each in found for number in each.numbers}


def progress_of(row: Tuning, trials: list[Trial]) -> float:
    """How much of its budget is used, 0 to 1: trials or time, whichever is further."""
    if row.is_terminal:
        return 1.0
    request = TuningFields.model_validate(row.request)
    done = 0.0
    for trial in trials:
        if trial.state == states.INFEASIBLE:
            continue
        run = trial.run
        done += 1.0 if trial.is_terminal else (run.progress or 0.0) if run is not None else 0.0
    time = 1 - tuning_steps.seconds_left(row) / (request.minutes * 60)
    return min(1.0, max(done / request.trials, time))


def actions_of(row: Tuning) -> list[str]:
    """What a person may do with it now."""
    if row.is_active:
        return ["cancel"] if row.cancel_requested_at is None else []
    return ["apply", "delete"] if row.winner is not None else ["delete"]
