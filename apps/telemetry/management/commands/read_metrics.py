"""`manage.py read_metrics FILE`: what a server's metrics say, in the one vocabulary."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils.translation import gettext as _

from apps.telemetry.domain import report
from apps.telemetry.domain.vocabulary import BY_NAME

WRONG_USAGE = 2


class Command(BaseCommand):
    """Exits 0 when the text is an exposition, 1 when nothing in it is, 2 for wrong usage. Needs no database."""

    help = _("Read the metrics of a server (Prometheus text, or TensorRT-LLM's IterationStats as JSON).")
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        """The file, and how it is printed."""
        parser.add_argument("file", help=_("what /metrics answered; - reads the standard input"))
        parser.add_argument("--json", action="store_true", help=_("print JSON"))

    def handle(self, *args: Any, **options: Any) -> None:
        """Print families and derived figures."""
        found = report.report(_text(options["file"]))
        if options["json"]:
            self.stdout.write(json.dumps(found, indent=2, ensure_ascii=False))
        else:
            self._print(found)
        if any(finding["severity"] == "error" for finding in found["findings"]):
            raise SystemExit(1)

    def _print(self, found: dict[str, Any]) -> None:
        if found["dialects"]:
            self.stdout.write(_("Dialects: %(names)s") % {"names": ", ".join(found["dialects"])})
        for name, value in found["derived"].items():
            if value is not None and value != {} and value != []:
                unit = BY_NAME[name].unit if name in BY_NAME and BY_NAME[name].unit != "1" else ""
                self.stdout.write(f"{name:36} {value} {unit}".rstrip())
        for finding in found["findings"]:
            self.stdout.write(
                f"{finding['severity']}  [{finding['id']}]  {finding['message']}\n  {finding['remedy']}"
            )


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
