"""`manage.py read_gpus FILE`: the GPUs that an output of nvidia-smi tells of, or why there are none."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils.translation import gettext as _

from apps.fleet.domain import gpu_query
from apps.fleet.domain.gpu_query import GpuReport

WRONG_USAGE = 2


class Command(BaseCommand):
    """Exits 0 when the GPUs (or that there are none) are known, 1 when the answer is an error. Needs no database."""

    help = _("Read the output of nvidia-smi (-q -x, --query-gpu, -L, or plain), or of NVML on this host.")
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        """The file, and how it is read."""
        parser.add_argument(
            "file",
            help=_(
                "the output, or JSON of runs {stdout, stderr, returncode}; - reads the standard input; "
                "nvml asks this host's driver"
            ),
        )
        parser.add_argument("--exit-code", type=int, help=_("nvidia-smi's exit code, where it is known"))
        parser.add_argument("--fields", help=_("columns of a CSV without headings, as given to --query-gpu"))
        parser.add_argument("--json", action="store_true", help=_("print JSON"))

    def handle(self, *args: Any, **options: Any) -> None:
        """Print what is known."""
        fields = [part.strip() for part in options["fields"].split(",")] if options["fields"] else None
        if options["file"] == "nvml":
            import pynvml

            reports = {"": gpu_query.from_nvml(pynvml)}
        else:
            runs = gpu_query.runs_of(_text(options["file"]))
            if options["exit_code"] is not None and len(runs) == 1:
                runs = [gpu_query.Run(runs[0].stdout, runs[0].stderr, options["exit_code"])]
            reports = {
                run.name or str(number): gpu_query.read(run, fields) for number, run in enumerate(runs)
            }
        if options["json"]:
            self.stdout.write(json.dumps(document(reports), indent=2, ensure_ascii=False))
        else:
            for report in reports.values():
                self._print(report)
        if not all(report.good for report in reports.values()):
            raise SystemExit(1)

    def _print(self, report: GpuReport) -> None:
        versions = {
            _("driver"): report.driver_version,
            "CUDA": report.cuda_version,
            "NVML": report.nvml_version,
        }
        told = [f"{name} {version}" for name, version in versions.items() if version]
        if told:
            self.stdout.write(", ".join(told))
        for gpu in report.gpus:
            memory = (
                f"{gpu.memory_total_bytes / 2**30:.1f} GiB"
                if gpu.memory_total_bytes
                else _("no memory of its own")
            )
            name = gpu.product or _("not answering")
            self.stdout.write(
                f"{gpu.index if gpu.index is not None else '-'}  {name}  {memory}  {gpu.uuid or ''}"
            )
            for part in gpu.mig_devices:
                self.stdout.write(f"   MIG {part.index}  {part.profile or ''}  {part.uuid or ''}")
        if not report.gpus and report.status == "no_gpus":
            self.stdout.write(_("No GPUs."))
        for finding in report.findings:
            self.stdout.write(
                f"{finding.severity}  {finding.where}  [{finding.id}]\n  {finding.message}\n  {finding.remedy}"
            )


def document(reports: dict[str, GpuReport]) -> dict[str, Any]:
    """JSON of the reports: one report's fields, or of several runs all GPUs and each run's status by its name."""
    if len(reports) == 1:
        report = next(iter(reports.values()))
        return report.as_dict() | {"diagnosis": _diagnosis(report)}
    return {
        "gpus": [gpu.as_dict() for report in reports.values() for gpu in report.gpus],
        "status": {name: report.status for name, report in reports.items()},
        "runs": {
            name: report.as_dict() | {"diagnosis": _diagnosis(report)} for name, report in reports.items()
        },
        "findings": [
            {"run": name, **finding}
            for name, report in reports.items()
            for finding in report.as_dict()["findings"]
        ],
    }


def _diagnosis(report: GpuReport) -> str | None:
    return None if report.status == "ok" else report.status


def _text(name: str) -> str:
    if name == "-":
        return sys.stdin.read()
    try:
        return Path(name).read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise CommandError(
            _("%(file)s cannot be read: %(why)s") % {"file": name, "why": error.strerror},
            returncode=WRONG_USAGE,
        ) from error
