"""`manage.py render_repository SPEC.yaml --out DIR`: write a model repository without a database or a server."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import yaml
from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils.translation import gettext as _

from apps.core.exceptions import InvalidInput
from apps.serving.domain import llamacpp_spec, repository
from apps.serving.domain.trtllm import launch, spec, templates
from apps.serving.domain.trtllm.render import Rendered, render

MOST_BYTES = 1_000_000
EMBEDDED_CODE = "workers/triton_models/llamacpp/1"


class Command(BaseCommand):
    """Exits 0 when it is written, 1 when the specification is refused, 2 at wrong usage. Needs no database."""

    help = _("Write the model repository that a specification describes.")
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        """The specification, where the repository goes, and where the node's templates are."""
        parser.add_argument("spec", help=_("the specification, a YAML file; examples/repositories has some"))
        parser.add_argument("--out", required=True, help=_("the folder to write; it must not exist"))
        parser.add_argument(
            "--templates", help=_("folder all_models of the node's TensorRT-LLM installation")
        )
        parser.add_argument(
            "--configuration-only", action="store_true", help=_("leave the python files of the templates out")
        )
        parser.add_argument("--json", action="store_true", help=_("print JSON"))

    def handle(self, *args: Any, **options: Any) -> None:
        """Read, render, write, and print what was written."""
        out = Path(options["out"]).absolute()
        if out.exists():
            raise CommandError(_("%(path)s exists; name a new folder.") % {"path": out}, returncode=2)
        values = _read(Path(options["spec"]))
        try:
            rendered, started = _render(values, options, out)
        except InvalidInput as error:
            self._refuse(error, as_json=options["json"])
            raise SystemExit(1) from error
        out.parent.mkdir(parents=True, exist_ok=True)
        repository.write(out, rendered.files)
        self._print(out, rendered, started, as_json=options["json"])

    def _refuse(self, error: InvalidInput, *, as_json: bool) -> None:
        findings = [found.as_dict() for found in error.findings] or [
            {"id": error.code, "severity": "error", "message": error.sentence, "where": error.field}
            | {"remedy": error.remedy}
        ]
        if as_json:
            self.stdout.write(json.dumps({"files": [], "findings": findings}, indent=2, ensure_ascii=False))
            return
        for found in findings:
            self.stderr.write(f"{found['message']}\n  {found['remedy']}")

    def _print(self, out: Path, rendered: Rendered, started: launch.Launch | None, *, as_json: bool) -> None:
        paths = [file.path for file in rendered.files]
        if as_json:
            answer = {
                "out": str(out),
                "files": paths,
                "findings": [found.as_dict() for found in rendered.findings],
                "launch": started.as_dict() if started is not None else None,
            }
            self.stdout.write(json.dumps(answer, indent=2, ensure_ascii=False))
            return
        for path in paths:
            self.stdout.write(f"{out}/{path}")
        for found in rendered.findings:
            self.stderr.write(f"{found.severity}: {found.message} {found.remedy}")
        if started is not None:
            words = [f"{key}={value}" for key, value in started.environment.items()]
            self.stdout.write("\n" + " ".join([*words, *started.argv]))


def _read(path: Path) -> Any:
    try:
        if path.stat().st_size > MOST_BYTES:
            raise CommandError(_("%(path)s is too large.") % {"path": path}, returncode=2)
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        message = _("%(path)s cannot be read: %(why)s") % {"path": path, "why": error}
        raise CommandError(message, returncode=2) from error


def _render(values: Any, options: dict[str, Any], out: Path) -> tuple[Rendered, launch.Launch | None]:
    if isinstance(values, dict) and values.get("recipe") == "llamacpp":
        model = llamacpp_spec.parse(values)
        folder = Path(options["templates"] or Path(settings.BASE_DIR) / EMBEDDED_CODE)
        code = {file.name: file.read_bytes() for file in sorted(folder.glob("*.py"))}
        return Rendered(repository.files(model, code)), None
    wanted = spec.parse(values)
    found = None
    if not options["configuration_only"]:
        place = options["templates"] or wanted.templates or templates.places_of(os.environ)
        found = templates.find(place)
        if found is None:
            raise InvalidInput(
                "templates_missing",
                _("There are no templates of TensorRT-LLM on this machine."),
                field="templates",
                remedy=_("Name them with --templates, or render with --configuration-only."),
            )
    return render(wanted, found), launch.launch(wanted, str(out))
