"""Comparisons of runs that there are: out of their records, for pages, API and studies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.utils.translation import gettext as _

from apps.core.exceptions import InvalidInput, NotPossibleNow
from apps.loadtests import inputs, selectors
from apps.loadtests.domain.capacity import Point, plan
from apps.loadtests.domain.compare import DEFAULT_PRIMARY, Arm, Sample, compare, sample
from apps.loadtests.domain.metrics import Window, lost_share
from apps.loadtests.domain.scenario import Scenario
from apps.loadtests.models import LoadRun, Study
from apps.loadtests.policy import MOST_ARMS, MOST_REPEATS


def sample_of(row: LoadRun, step: int = 0) -> Sample:
    """A run's sample of one step. Raises NotPossibleNow where it has none."""
    steps = (row.summary or {}).get("steps") or []
    if step >= len(steps):
        raise NotPossibleNow(
            "not_measured",
            _("Run #%(number)s has measured nothing that could be compared.") % {"number": row.number},
            remedy=_("Choose another run."),
        )
    scenario = Scenario.model_validate(row.scenario)
    window = Window(steps[step]["begin"], steps[step]["end"])
    data = selectors.columns(row).of_step(step)
    return sample(data, window, scenario.load.metrics_mode, scenario.slo.as_slo())


def compare_runs(
    groups: Sequence[Sequence[LoadRun]], labels: Sequence[str], primary: str = DEFAULT_PRIMARY, seed: int = 0
) -> dict[str, Any]:
    """Groups of runs against the first group, as plain values. Raises InvalidInput, NotPossibleNow."""
    if not 2 <= len(groups) <= MOST_ARMS or any(not 1 <= len(group) <= MOST_REPEATS for group in groups):
        raise InvalidInput(
            "arms",
            _("A comparison needs 2 to %(arms)s groups of 1 to %(runs)s runs.")
            % {"arms": MOST_ARMS, "runs": MOST_REPEATS},
            field="arm",
            remedy=_("Choose runs in the list of load tests, then press Compare."),
        )
    arms = [
        Arm(label, [sample_of(row) for row in group]) for label, group in zip(labels, groups, strict=True)
    ]
    return compare(arms, inputs.primary(primary), seed).as_dict()


def verdict_of(row: Study) -> dict[str, Any]:
    """The comparison of a study whose runs have all ended."""
    groups = [list(row.runs.filter(arm=index).order_by("repeat")) for index in range(len(row.arms))]
    return compare_runs(groups, [arm["label"] for arm in row.arms], row.primary, row.seed)


def capacity_of(row: LoadRun, rate: float, metric: str, bound: float) -> dict[str, Any]:
    """How many instances a load needs, out of a run's steps. Raises InvalidInput, NotPossibleNow."""
    scenario = Scenario.model_validate(row.scenario)
    steps = (row.summary or {}).get("steps") or []
    if scenario.load.mode != "open" or not steps:
        raise NotPossibleNow(
            "no_curve",
            _("Run #%(number)s has no rates of arrival, so it has no curve to answer from.")
            % {"number": row.number},
            remedy=_("Run a load test of mode open with several rates, as 1, 2, 4, 8."),
        )
    if rate <= 0 or bound <= 0:
        raise InvalidInput(
            "not_positive",
            _("The rate and the bound must be above 0."),
            field="rate" if rate <= 0 else "bound",
            remedy=_("Give requests per second and milliseconds."),
        )
    points = [
        Point(float(step["value"]), sample_of(row, index), lost_share(step["figures"]) or 0.0)
        for index, step in enumerate(steps)
    ]
    instances = max(1, len(row.environment.get("instances") or [None]))
    return plan(points, rate, metric, bound, instances, row.seed).as_dict()


def groups_of(arms: Sequence[str]) -> tuple[list[list[LoadRun]], list[str]]:
    """Runs and labels of texts such as 3,5,7 or label:3,5,7. Raises InvalidInput, NotFound."""
    groups, labels = [], []
    for text in arms:
        label, found, numbers = text.rpartition(":")
        words = [word for word in (numbers if found else text).replace(" ", "").split(",") if word]
        if any(not word.isdecimal() or len(word) > 9 for word in words):
            raise InvalidInput(
                "arms",
                _("%(text)s names no runs.") % {"text": text[:60]},
                field="arm",
                remedy=_("Write numbers of runs with commas, as 3,5,7."),
            )
        group = [selectors.run(int(word)) for word in words]
        groups.append(group)
        labels.append(label[:60] or _label(group))
    return groups, [
        label if labels.count(label) == 1 else f"{label} ({chr(65 + index)})"
        for index, label in enumerate(labels)
    ]


def _label(group: Sequence[LoadRun]) -> str:
    if not group:
        return "-"
    names = dict.fromkeys(str(row.target) for row in group)
    numbers = ", ".join(f"#{row.number}" for row in group)
    return f"{' '.join(names)} {numbers}"
