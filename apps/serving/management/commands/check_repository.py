"""`manage.py check_repository DIR`: what is in a model repository, and what is wrong with it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandParser
from django.utils.translation import gettext as _

from apps.core.exceptions import InvalidInput
from apps.serving.domain.repository_check.check import Report, check_repository

MARKS = {"error": "error  ", "warning": "warning", "info": "info   "}


class Command(BaseCommand):
    """Exits 0 when every model can load, 1 when one cannot or nothing is there. Needs no database."""

    help = _("Check a Triton model repository, one model's folder, or one config.pbtxt.")
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        """The folder, and how the outcome is printed."""
        parser.add_argument("path", help=_("the repository's folder"))
        parser.add_argument("--json", action="store_true", help=_("print JSON"))

    def handle(self, *args: Any, **options: Any) -> None:
        """Print models and findings."""
        try:
            report = check_repository(Path(options["path"]))
        except InvalidInput as error:
            self._refuse(error, as_json=options["json"])
            raise SystemExit(1) from error
        if options["json"]:
            self.stdout.write(json.dumps(report.as_dict(), indent=2, ensure_ascii=False))
        else:
            self._print(report)
        if not report.good:
            raise SystemExit(1)

    def _refuse(self, error: InvalidInput, *, as_json: bool) -> None:
        if as_json:
            finding = {
                "id": error.code,
                "severity": "error",
                "model": "",
                "where": error.field,
                "message": error.sentence,
                "remedy": error.remedy,
            }
            self.stdout.write(json.dumps({"models": [], "findings": [finding]}, indent=2, ensure_ascii=False))
        else:
            self.stderr.write(f"{error.sentence}\n{error.remedy}")

    def _print(self, report: Report) -> None:
        for model in report.models:
            state = _("can load") if model["loads"] else _("cannot load")
            versions = ", ".join(map(str, model["versions"])) or "-"
            self.stdout.write(
                f"{model['name']}  {model['kind']}  "
                + _("versions %(list)s") % {"list": versions}
                + f"  {state}"
            )
        for name in report.not_models:
            self.stdout.write(f"{name}  " + _("no model"))
        for found in report.findings:
            self.stdout.write(f"\n{MARKS[found.severity]}  {found.model}  {found.where}  [{found.id}]")
            self.stdout.write(f"  {found.message}")
            if found.remedy:
                self.stdout.write(f"  {found.remedy}")
        if not report.findings:
            self.stdout.write(_("Nothing is wrong with it."))
