"""Which program sends a run's load, where it is to be had, and the figures of both beside each other."""

from __future__ import annotations

from typing import Any

from django.utils.translation import gettext as _

from apps.core.exceptions import Finding, InvalidInput, NotPossibleNow
from apps.fleet.models import Node
from apps.loadtests import dispatch
from apps.loadtests.domain import aiperf
from apps.loadtests.domain.aiperf_plan import refusals
from apps.loadtests.domain.scenario import Scenario
from apps.loadtests.models import LoadRun
from apps.loadtests.states import SUCCEEDED
from apps.serving.models import Deployment

PROGRAM = "aiperf"
# What makes two scenarios the same load; time, seed and processes are each generator's own.
SAME = ("target", "via", "load", "prompts", "slo")
# Runs that are looked through for one of the other generator.
LOOKED_AT = 100


def check(name: str, scenario: Scenario, deployment: Deployment | None) -> None:
    """Refuse a generator that cannot send this load. Raises InvalidInput (naming each field), NotPossibleNow."""
    if name not in LoadRun.Generator.values:
        raise InvalidInput(
            "generator_unknown",
            _("There is no generator %(name)s.") % {"name": name},
            field="generator",
            remedy=_("Choose one of: %(names)s.") % {"names": ", ".join(LoadRun.Generator.values)},
        )
    if name != LoadRun.Generator.AIPERF:
        return
    found = tuple(
        Finding("aiperf_cannot", "error", each.sentence, each.field, each.remedy)
        for each in refusals(scenario)
    )
    if found:
        first = found[0]
        raise InvalidInput(first.id, first.message, field=first.where, remedy=first.remedy, findings=found)
    node = dispatch.node_serving(deployment)
    if version_on(node) is None:
        raise NotPossibleNow(
            "no_aiperf",
            _("There is no AIPerf on the node %(node)s.") % {"node": node},
            field="generator",
            remedy=_(
                "Install it there in a virtual environment of its own and name its program in "
                "INFLIGHT_AIPERF_BIN; the node's page shows its version within a minute."
            ),
        )


def version_on(node_id: str) -> str | None:
    """AIPerf's version on a node; None where it has none."""
    row = Node.objects.filter(node_id=node_id).first()
    found = row.versions.get(PROGRAM) if row is not None else None
    return str(found) if found else None


def installed() -> dict[str, str]:
    """AIPerf's version by the name of each node that has it."""
    return {str(row): row.versions[PROGRAM] for row in Node.objects.all() if row.versions.get(PROGRAM)}


def for_the_other(row: LoadRun) -> dict[str, Any]:
    """The scenario of a run as the other generator is to send it: for exactly as long as this run measured."""
    steps = (row.summary or {}).get("steps") or []
    timing = dict(row.scenario["timing"])
    if steps:
        seconds = max(1.0, round(steps[0]["end"] - steps[0]["begin"], 1))
        timing |= {"seconds": seconds, "most_seconds": seconds, "until_steady": False}
    return {**row.scenario, "timing": timing}


def other_of(row: LoadRun) -> LoadRun | None:
    """The newest run of the other generator under the same load that has figures; None where there is none."""
    wanted = {key: row.scenario.get(key) for key in SAME}
    candidates = LoadRun.objects.filter(state=SUCCEEDED, target=row.target).exclude(generator=row.generator)
    return next(
        (
            each
            for each in candidates.order_by("-number")[:LOOKED_AT]
            if {key: each.scenario.get(key) for key in SAME} == wanted and each.summary
        ),
        None,
    )


def beside(row: LoadRun) -> dict[str, Any] | None:
    """Our figures and AIPerf's under the same load: {"ours", "aiperf" (numbers of runs), "version", "steps":
    [{"value", "rows": [{"figure", "ours", "aiperf", "apart"}]}]}; None before there are both."""
    if row.state != SUCCEEDED or not row.summary:
        return None
    other = other_of(row)
    if other is None:
        return None
    ours, theirs = (other, row) if row.generator == LoadRun.Generator.AIPERF else (row, other)
    mine = {step["value"]: step["figures"] for step in (ours.summary or {})["steps"]}
    return {
        "ours": ours.number,
        "aiperf": theirs.number,
        "version": ((theirs.summary or {}).get("aiperf") or {}).get("version"),
        "steps": [
            {
                "value": step["value"],
                "rows": aiperf.figures_beside(mine[step["value"]], step["figures"]),
            }
            for step in (theirs.summary or {})["steps"]
            if step["value"] in mine
        ],
    }
