"""`manage.py translate_command FILE|-`: a pasted TensorRT-LLM command as a profile, with what changed."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import yaml
from django.core.management.base import BaseCommand, CommandError, CommandParser

from apps.core.exceptions import Finding, InvalidInput
from apps.engines.domain.trtllm.translate import NEWEST, translate
from apps.engines.domain.trtllm.translated import Translated


class Command(BaseCommand):
    """Exits 0 with the profile, 1 when the text is refused (with the findings). Needs no database."""

    help = "Read trtllm-build, convert_checkpoint.py or quantize.py commands as a profile; nothing is run."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        """The text, the release it is read for, and how the outcome is printed."""
        parser.add_argument("file", metavar="FILE", help="a text file, or - for standard input")
        parser.add_argument("--release", default=NEWEST, help="TensorRT-LLM release whose flags count")
        parser.add_argument("--json", action="store_true", help="print JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        """Print the profile and the changes."""
        text = _text(str(options["file"]))
        try:
            found = translate(text, str(options["release"]))
        except InvalidInput as error:
            refusal = Finding(error.code, "error", error.sentence, error.field, error.remedy)
            if options["json"]:
                self.stdout.write(json.dumps({"findings": [refusal.as_dict()]}, indent=2, ensure_ascii=False))
            else:
                self.stdout.write(f"{refusal.message}\n  {refusal.remedy}")
            raise SystemExit(1) from error
        if options["json"]:
            self.stdout.write(json.dumps(found.as_dict(), indent=2, ensure_ascii=False))
        else:
            self._print(found)
        if any(finding.severity == "error" for finding in found.findings):
            raise SystemExit(1)

    def _print(self, found: Translated) -> None:
        if found.model:
            self.stdout.write(f"# checkpoint: {found.model}")
        self.stdout.write(yaml.safe_dump(found.profile, sort_keys=False, allow_unicode=True))
        for change in found.changes:
            self.stdout.write(f"{change.was} -> {change.now or '(left out)'}\n  {change.why}")
        for finding in found.findings:
            self.stdout.write(f"{finding.severity}  {finding.message}\n  {finding.remedy}")


def _text(name: str) -> str:
    if name == "-":
        return sys.stdin.read()
    try:
        return Path(name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"{name} cannot be read: {error}.", returncode=2) from error
