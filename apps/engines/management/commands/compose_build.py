"""`manage.py compose_build SPEC.yaml`: the programs that a TensorRT-LLM build would run, as data."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import yaml
from django.core.management.base import BaseCommand, CommandError, CommandParser

from apps.core.exceptions import Finding
from apps.engines.domain.trtllm.compose import Composed, compose_documents

LARGEST = 1024 * 1024


class Command(BaseCommand):
    """Exits 0 with the steps, 1 when the specification is refused (with the findings). Needs no database."""

    help = "Compose a TensorRT-LLM build from a specification: recipe, steps, findings."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        """The file, where it would work, and how the outcome is printed."""
        parser.add_argument("spec", metavar="SPEC.yaml")
        parser.add_argument("--work", default="/build", help="the folder the build would work in")
        parser.add_argument("--json", action="store_true", help="print JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        """Print the steps."""
        composed = self._compose(Path(options["spec"]), str(options["work"]))
        if options["json"]:
            self.stdout.write(json.dumps(composed.as_dict(), indent=2, ensure_ascii=False))
        else:
            self._print(composed)
        if not composed.good:
            raise SystemExit(1)

    def _compose(self, path: Path, work: str) -> Composed:
        if not work.startswith("/"):
            raise CommandError("--work must be an absolute path.", returncode=2)
        try:
            if path.stat().st_size > LARGEST:
                raise CommandError(f"{path} is larger than {LARGEST} bytes.", returncode=2)
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise CommandError(f"{path} cannot be read: {error}.", returncode=2) from error
        try:
            documents = [document for document in yaml.safe_load_all(text) if document is not None]
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            first = str(error).splitlines()[0] if str(error) else type(error).__name__
            finding = Finding(
                "yaml_unreadable", "error", f"{path.name} is no YAML: {first}.", str(path), "Correct it."
            )
            return Composed("", (), (finding,))
        return compose_documents(documents, work)

    def _print(self, composed: Composed) -> None:
        if composed.recipe:
            self.stdout.write(f"recipe: {composed.recipe}")
        for step in composed.steps:
            self.stdout.write(f"\n{step.name}")
            words = [f"{key}={value}" for key, value in step.env.items()]
            self.stdout.write("  " + " ".join([*words, shlex.join(step.argv)]))
            self.stdout.write("  leaves " + ", ".join(step.outputs))
        for found in composed.findings:
            self.stdout.write(
                f"\n{found.severity}  {found.where}  [{found.id}]\n  {found.message}\n  {found.remedy}"
            )
