"""`manage.py diagnose LOG`: what the log of a build, a server or a request says of the cause. Needs no database."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, get_args

from django.core.management.base import BaseCommand, CommandParser
from django.utils.translation import gettext as _

from apps.diagnosis.domain.rule import Kind
from apps.diagnosis.domain.rules import Verdict, diagnose

REFUSED = 1
# Of a larger file its end is read: that is where a run's failure stands.
MOST_BYTES = 64 * 1024 * 1024


class Command(BaseCommand):
    """Reads one log; nothing of it is run."""

    help = "Say why a run failed, from its log. Exit 0 with an answer, 1 when the log cannot be read."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        """Options."""
        parser.add_argument("log", help="a text file, or - for standard input")
        parser.add_argument(
            "--kind", choices=get_args(Kind), default="build", help="what wrote the log; default build"
        )
        parser.add_argument(
            "--exit-code",
            type=int,
            metavar="N",
            help="exit code of the run; negative: the signal that ended it",
        )
        parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")

    def handle(self, *args: Any, **options: Any) -> None:
        """Print the verdict, or why there is none."""
        try:
            text = _read(options["log"])
        except OSError as error:
            self._refuse(options, error)
        verdict = diagnose(text, options["kind"], options["exit_code"])
        if options["json"]:
            self.stdout.write(json.dumps(verdict.as_dict()))
        else:
            self._print(verdict)

    def _refuse(self, options: dict[str, Any], error: OSError) -> None:
        message = _("%(path)s cannot be read: %(why)s.") % {"path": options["log"], "why": error.strerror}
        finding = {
            "id": "log_unreadable",
            "severity": "error",
            "message": message,
            "where": "log",
            "remedy": _("Check its path and who may read it."),
        }
        if options["json"]:
            self.stdout.write(json.dumps({"status": "unknown", "diagnosis": None, "findings": [finding]}))
        else:
            self.stderr.write(message)
        sys.exit(REFUSED)

    def _print(self, verdict: Verdict) -> None:
        found = verdict.diagnosis
        self.stdout.write(f"{verdict.status}: {found.title if found else _('no known cause in this log.')}")
        for name, value in verdict.limits.items():
            self.stdout.write(f"  {name}  {value}")
        if found is None:
            return
        self.stdout.write(f"  {found.id}")
        for item in found.evidence:
            self.stdout.write(f"  {item.line:>6}  {item.text}")
        for name, value in found.facts.items():
            self.stdout.write(f"  {name}  {value}")
        for remedy in found.remedies:
            self.stdout.write(f"- {remedy}")


def _read(name: str) -> str:
    if name == "-":
        return sys.stdin.buffer.read(MOST_BYTES).decode("utf-8", "replace")
    with Path(name).open("rb") as file:
        size = file.seek(0, 2)
        file.seek(max(0, size - MOST_BYTES))
        return file.read().decode("utf-8", "replace")
