"""One run as a file: JSON (all that REST tells of it), CSV (a line a figure), Markdown (the table)."""

from __future__ import annotations

import csv
import io
import json

from django.utils.translation import gettext as _

from apps.dashboard.loads import run_figures
from apps.loadtests import serialize
from apps.loadtests.models import LoadRun

KINDS = {"json": "application/json", "csv": "text/csv", "md": "text/markdown"}


def as_text(row: LoadRun, kind: str) -> str:
    """The file of a kind of KINDS."""
    return {"json": _json, "csv": _csv, "md": _markdown}[kind](row)


def _json(row: LoadRun) -> str:
    return json.dumps(serialize.run_dict(row), indent=1)


def _csv(row: LoadRun) -> str:
    """Unrounded; `other` is the other generator's figure under the same load, empty where there is none."""
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(["step", "figure", "unit", row.generator, "other"])
    beside = serialize.run_dict(row)["beside"] or {"steps": []}
    theirs = "ours" if row.generator == LoadRun.Generator.AIPERF else "aiperf"
    other = {
        (step["value"], line["figure"]): line[theirs] for step in beside["steps"] for line in step["rows"]
    }
    for step in run_figures.steps_of(row):
        for key, _title, unit in run_figures.FIGURES:
            value = step["figures"].get(key)
            if value is not None:
                writer.writerow([step["value"], key, unit, value, other.get((step["value"], key), "")])
    return out.getvalue()


def _markdown(row: LoadRun) -> str:
    table = run_figures.table(row)
    title = _("Run #%(number)s of %(target)s") % {"number": row.number, "target": row.target}
    who = row.get_generator_display()
    lines = [f"# {title}", "", f"{row.state}. {row.sentence}".strip(), "", who, ""]
    lines.append("| | " + " | ".join(table["head"]) + " |")
    lines.append("|---" * (len(table["head"]) + 1) + "|")
    lines += [
        f"| {line['title']} {line['unit']} | " + " | ".join(map(str, line["cells"])) + " |"
        for line in table["rows"]
    ]
    found = run_figures.beside(row)
    for step in found["steps"] if found else []:
        lines += ["", f"## {_('Beside another generator')}: {step['load']}", ""]
        lines += [f"| | {_('Ours')} | AIPerf | {_('Apart')} |", "|---|---|---|---|"]
        lines += [
            f"| {line['title']} {line['unit']} | {line['ours']} | {line['aiperf']} | {line['apart'] or '-'} |"
            for line in step["rows"]
        ]
    return "\n".join(lines) + "\n"
