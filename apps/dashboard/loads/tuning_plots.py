"""Plots and rows of a tuning's page: the front so far, the best so far, and the table of trials."""

from __future__ import annotations

from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from apps.dashboard import formats
from apps.dashboard.loads.plots import Line, Plot, plot
from apps.loadtests import tuning_space
from apps.loadtests import tuning_states as states
from apps.loadtests.domain import tuner_goals
from apps.loadtests.domain.tuner_goals import FIGURES, Candidate, Goals, Tried
from apps.loadtests.domain.tuner_report import words
from apps.loadtests.domain.tuner_request import TuningFields
from apps.loadtests.tuning_models import Tuning

SOURCES = {
    "present": gettext_lazy("runs now"),
    "prior": gettext_lazy("rules of thumb"),
    "model": gettext_lazy("model"),
    "sampler": gettext_lazy("sampler"),
    "random": gettext_lazy("chance"),
    "repeat": gettext_lazy("repeat"),
}


def of(row: Tuning) -> dict[str, Any]:
    """{"plots", "trials", "names"}: what templates/pages/tuning.html draws besides the row."""
    goals = tuning_space.goals_of(row)
    told = tuning_space.tried(row)
    found = tuner_goals.candidates(told, goals)
    kept = tuner_goals.front(found, goals)
    plots = [_front(found, kept, goals), _best_so_far(told, goals, _most(row))] if found else []
    return {
        "plots": [each for each in plots if each is not None],
        "trials": _rows(row, goals, {number for each in kept for number in each.numbers}),
        "names": [(name, FIGURES[name]) for name in goals.needed],
    }


def _beside(goals: Goals) -> str | None:
    """What the first objective is drawn against: the second one, else the first bound, else a latency."""
    others = [name for name in goals.needed if name != goals.objectives[0]]
    if others:
        return others[0]
    return "latency_p99_ms" if goals.objectives[0] != "latency_p99_ms" else "output_tokens_per_second"


def _front(found: list[Candidate], kept: list[Candidate], goals: Goals) -> Plot | None:
    """Every configuration by the objective and what it costs; those that nothing beats are joined."""
    name, other = goals.objectives[0], _beside(goals)
    if other is None:
        return None
    on_front = {each.key for each in kept}
    groups = {
        _("keeps the bounds"): [each for each in found if each.feasible and each.key not in on_front],
        _("beaten by none"): kept,
        _("breaks a bound"): [each for each in found if not each.feasible],
    }
    # All three always, so that a colour keeps its meaning while the tuning goes on.
    lines = [
        Line(
            title,
            sorted(
                (float(x), each.figures.get(name))
                for each in members
                if (x := each.figures.get(other)) is not None and each.figures.get(name) is not None
            ),
            marks=True,
        )
        for title, members in groups.items()
    ]
    if not any(line.points for line in lines):
        return None
    limit = next((one.bound for one in goals.constraints if one.figure == name), None)
    drawn = plot(
        "front",
        FIGURES[name].title,
        FIGURES[name].unit,
        f"{FIGURES[other].title} ({FIGURES[other].unit})",
        lines,
        limit=limit,
    )
    for line in drawn.lines:
        if line["name"] != _("beaten by none"):
            # Points that have nothing to do with each other.
            line["path"] = ""
    return drawn


def _best_so_far(told: list[Tried], goals: Goals, most: float) -> Plot | None:
    """The best of what was measured up to each trial, and each trial beside it."""
    name = goals.objectives[0]
    tried: list[tuple[float, float | None]] = []
    best: list[tuple[float, float | None]] = []
    measured: list[Tried] = []
    for trial in told:
        if trial.state != "measured":
            continue
        measured.append(trial)
        tried.append((float(trial.number), trial.figures.get(name)))
        leader = tuner_goals.best(tuner_goals.candidates(measured, goals), goals)
        best.append((float(trial.number), leader.figures.get(name) if leader is not None else None))
    if not tried:
        return None
    lines = [Line(_("trial"), tried, marks=True), Line(_("best so far"), best, marks=len(best) < 3)]
    drawn = plot("best", _("Best so far"), FIGURES[name].unit, _("trial"), lines, x_from=0.0, x_to=most)
    drawn.lines[0]["path"] = ""
    return drawn


def _most(row: Tuning) -> float:
    """Where the axis of trials ends: at its budget, or beyond it where the plan refused some."""
    trials = TuningFields.model_validate(row.request).trials
    last = max((trial.number for trial in row.trials.all()), default=0)
    most = float(max(trials, last))
    # Ticks of nine and ten trials would be fractions.
    return 12.0 if 8 < most <= 10 else most


def _rows(row: Tuning, goals: Goals, on_front: set[int]) -> list[dict[str, Any]]:
    found = []
    space = tuning_space.space_of(row)
    for trial in row.trials.select_related("run").order_by("number"):
        figures = trial.figures or {}
        measured = trial.state == states.SUCCEEDED
        kept = measured and goals.violation(figures) <= 0 and goals.losses(figures) is not None
        found.append(
            {
                "trial": trial,
                "words": words(space.acting(trial.configuration)),
                "source": SOURCES.get(trial.source, trial.source),
                "cells": [
                    (FIGURES[name].title, formats.significant(figures.get(name))) for name in goals.needed
                ],
                "kept": kept,
                "broken": measured and not kept,
                "on_front": trial.number in on_front,
                "winner": trial.number == row.winner,
            }
        )
    return found
