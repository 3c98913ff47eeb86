"""The context of a comparison: verdict, intervals, curves, what differed, the raw table; and its exports."""

from __future__ import annotations

import csv
import io
import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from django.utils.translation import gettext as _

from apps.dashboard import formats
from apps.dashboard.loads import plots, run_figures
from apps.loadtests.domain.batching_study import ABSENT
from apps.loadtests.domain.compare import METRICS
from apps.loadtests.models import LoadRun

Arms = Sequence[tuple[str, Sequence[LoadRun]]]


def context(found: Mapping[str, Any], arms: Arms) -> dict[str, Any]:
    """What templates/pages/load_compared.html draws."""
    return {
        "found": found,
        "primary": METRICS[found["primary"]],
        "intervals": plots.intervals(found["arms"], found["primary"]),
        "edge": plots.scale(found["arms"]),
        "curves": run_figures.curves(arms),
        "cdfs": run_figures.distributions(arms),
        "differs": differing(arms),
        "raw": raw(arms),
        "seconds": seconds(arms),
    }


def seconds(arms: Arms) -> list[dict[str, Any]]:
    """The seconds of the first run of each arm, its engine's own figures beneath."""
    return [
        {
            "label": label,
            "plots": [replace(plot, id=f"{index}-{plot.id}") for plot in run_figures.seconds(runs[0])],
        }
        for index, (label, runs) in enumerate(arms)
        if runs
    ]


def differing(arms: Arms) -> dict[str, Any]:
    """Configuration and environment, only what is not the same everywhere; and what is the same, counted."""
    flat = [_flat({"scenario": runs[0].scenario, **runs[0].environment}) for _label, runs in arms if runs]
    keys = list(dict.fromkeys(key for values in flat for key in values))
    rows = []
    for key in keys:
        values = [values.get(key) for values in flat]
        if len({json.dumps(value, sort_keys=True) for value in values}) > 1 and not key.endswith("uid"):
            rows.append({"key": key, "values": [ABSENT if value is None else str(value) for value in values]})
    return {"labels": [label for label, _runs in arms], "rows": rows, "same": len(keys) - len(rows)}


def _flat(value: Any, path: str = "") -> dict[str, Any]:
    if isinstance(value, dict):
        found: dict[str, Any] = {}
        for key, inner in value.items():
            found |= _flat(inner, f"{path}.{key}" if path else str(key))
        return found
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return _flat({str(index): inner for index, inner in enumerate(value)}, path)
    return {path: value}


def raw(arms: Arms) -> dict[str, Any]:
    """A line a run: its arm, its repeat, its figures."""
    names = [
        name
        for name in METRICS
        if any(_figure(run, name) is not None for _label, runs in arms for run in runs)
    ]
    return {
        "names": names,
        "head": [f"{METRICS[name].title} ({METRICS[name].unit})" for name in names],
        "rows": [
            {
                "arm": label,
                "number": run.number,
                "bound": bool(((run.summary or {}).get("generator") or {}).get("bound")),
                "cells": [formats.significant(_figure(run, name)) for name in names],
                "values": [_figure(run, name) for name in names],
            }
            for label, runs in arms
            for run in runs
        ],
    }


def _figure(run: LoadRun, name: str) -> float | None:
    steps = run_figures.steps_of(run)
    return steps[0]["figures"].get(name) if steps else None


def as_csv(found: Mapping[str, Any], arms: Arms) -> str:
    """The raw table, a line a run, values unrounded."""
    table = raw(arms)
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(["configuration", "run", *table["names"]])
    for row in table["rows"]:
        writer.writerow(
            [row["arm"], row["number"], *("" if value is None else value for value in row["values"])]
        )
    return out.getvalue()


def as_json(found: Mapping[str, Any], arms: Arms) -> str:
    """The comparison with every run's figures."""
    runs = [
        {
            "configuration": label,
            "run": run.number,
            "steps": run_figures.steps_of(run),
            "environment": run.environment,
        }
        for label, members in arms
        for run in members
    ]
    return json.dumps({"comparison": found, "runs": runs}, indent=1)


def as_markdown(title: str, found: Mapping[str, Any], arms: Arms) -> str:
    """The comparison as Markdown: verdict, intervals, what differed, raw table."""
    lines = [f"# {title}", "", f"**{found['verdict']}**", ""]
    lines += [f"- {note}" for note in found["notes"]]
    baseline = found["baseline"]
    lines += [
        "",
        f"| {_('metric')} | {_('against')} {baseline} | {_('change')} | 95% | p |",
        "|---|---|---|---|---|",
    ]
    for row in plots.intervals(found["arms"], found["primary"]):
        lines.append(
            f"| {row['metric']} ({row['unit']}) | {row['arm']} | {row['change']} | {row['interval']} | {row['p']} |"
        )
    differs = differing(arms)
    if differs["rows"]:
        lines += ["", f"## {_('What differed')}", "", "| | " + " | ".join(differs["labels"]) + " |"]
        lines.append("|---" * (len(differs["labels"]) + 1) + "|")
        lines += [f"| `{row['key']}` | " + " | ".join(row["values"]) + " |" for row in differs["rows"]]
    table = raw(arms)
    lines += ["", f"## {_('Runs')}", "", "| | " + " | ".join(["#", *table["head"]]) + " |"]
    lines.append("|---" * (len(table["head"]) + 2) + "|")
    lines += [
        f"| {row['arm']} | {row['number']} | " + " | ".join(row["cells"]) + " |" for row in table["rows"]
    ]
    return "\n".join(lines) + "\n"


def command(arms: Arms, primary: str) -> list[str]:
    """The command that prints the same comparison."""
    groups = [f"{label}:{','.join(str(run.number) for run in runs)}" for label, runs in arms]
    return ["manage.py", "load_run", "compare", *groups, "--primary", primary]


def command_text(arms: Arms, primary: str) -> str:
    """The same as text to copy."""
    return shlex.join(command(arms, primary))
