"""GPUs of a host out of what a tool printed: nvidia-smi in any of its formats, with its exit code where it is known.

Errors arrive on standard output as often as on the other stream, so the exit code is looked at first and the text of
both streams then; a line of the driver between the rows is no GPU.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from apps.fleet.domain import gpu_csv, gpu_nvml, gpu_xml
from apps.fleet.domain.gpu_errors import note_failure, take_lost
from apps.fleet.domain.gpu_facts import Finding, GpuFacts, GpuReport, MigSlice

__all__ = ["Finding", "GpuFacts", "GpuReport", "MigSlice", "Run", "from_nvml", "read", "runs_of"]

from_nvml = gpu_nvml.read

MOST_CHARACTERS = 32 * 1_048_576


@dataclass(frozen=True, slots=True)
class Run:
    """One run of nvidia-smi. `returncode` None: not known, only the text is there. `name`: as a file names it."""

    stdout: str
    stderr: str = ""
    returncode: int | None = None
    name: str = ""


def runs_of(text: str) -> list[Run]:
    """The runs that a text holds: JSON of one or a list of {stdout, stderr, returncode}, else the output itself."""
    if text.lstrip()[:1] in ("{", "["):
        try:
            document = json.loads(text)
        except ValueError:
            document = None
        rows = document if isinstance(document, list) else [document]
        if rows and all(_is_run(row) for row in rows):
            return [_run(row) for row in rows]
    return [Run(text)]


def _is_run(row: Any) -> bool:
    return isinstance(row, dict) and ("stdout" in row or "stderr" in row or "returncode" in row)


def _run(row: dict[str, Any]) -> Run:
    code = row.get("returncode", row.get("exit_code"))
    known = isinstance(code, int) and not isinstance(code, bool)
    name = row.get("case", row.get("name", ""))
    return Run(str(row.get("stdout") or ""), str(row.get("stderr") or ""), code if known else None, str(name))


def read(run: Run, fields: Sequence[str] | None = None) -> GpuReport:
    """The GPUs of one run, and what is wrong with it. `fields` names the columns of a CSV without headings."""
    report = GpuReport(source="nvidia-smi")
    if len(run.stdout) + len(run.stderr) > MOST_CHARACTERS:
        report.status = "gpu_query_failed"
        report.findings.append(
            Finding(
                "gpu_query_failed", "error", "", "The output is too large to be nvidia-smi's.", "Ask again."
            )
        )
        return report
    text = take_lost(f"{run.stdout}\n{run.stderr}", report)
    understood = _take(text, report, fields)
    answering = [gpu for gpu in report.gpus if gpu.state == "ok"]
    if answering:
        _note_code(run.returncode, report)
    elif not report.gpus:
        _note_nothing(text, run, report, understood)
    else:
        report.status = "gpu_lost"
    return report


def _take(text: str, report: GpuReport, fields: Sequence[str] | None) -> bool:
    if gpu_xml.is_xml(text):
        gpu_xml.read(text, report)
        return True
    return (
        gpu_csv.read_list(text, report)
        or gpu_csv.read_csv(text, report, fields)
        or gpu_csv.read_table(text, report)
    )


def _note_nothing(text: str, run: Run, report: GpuReport, understood: bool) -> None:
    """No GPU at all: because there is none, or because of an error that the text or the exit code names."""
    # Rows that are no GPUs were the error's own lines.
    rows = [finding for finding in report.findings if finding.id != "gpu_row_unreadable"]
    understood = understood and rows == report.findings
    report.findings = rows
    if understood and not run.returncode and not report.findings and not _says_failure(text):
        report.status = "no_gpus"
        return
    if report.findings:
        report.status = report.findings[0].id
        return
    note_failure(report, text, run.returncode)


def _says_failure(text: str) -> bool:
    from apps.fleet.domain.gpu_errors import classify

    return classify(text, None) is not None


def _note_code(code: int | None, report: GpuReport) -> None:
    lost = any(gpu.state == "lost" for gpu in report.gpus)
    if code and not lost:
        report.findings.append(
            Finding(
                "gpu_query_incomplete",
                "warning",
                f"exit code {code}",
                "nvidia-smi named GPUs and still says that it failed: the list may be incomplete.",
                "Keep GPUs that were known before, and look at the kernel's log (dmesg).",
            )
        )
        report.keep_last_known = True
    if lost:
        report.keep_last_known = True
