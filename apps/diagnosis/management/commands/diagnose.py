"""`manage.py diagnose LOG`: what the log of a build, a server or a request says of the cause. Needs no database."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, NoReturn, get_args

from django.core.management.base import BaseCommand, CommandParser
from django.utils.translation import gettext as _

from apps.diagnosis.domain.circumstances import BadCircumstance, Circumstances, read_circumstances
from apps.diagnosis.domain.rule import Kind
from apps.diagnosis.domain.rules import Verdict, diagnose

REFUSED = 1
# Of a larger file its end is read: that is where a run's failure stands.
MOST_BYTES = 64 * 1024 * 1024
# What is known besides the log: the option, and how its file is called beside LOG (`run.log`: `run.cmd`, ...).
BESIDE = {
    "command": ("cmd", "the command that was run"),
    "engine": ("engine_config.json", "the engine's config.json"),
    "params": ("params.json", "a JSON object of figures, such as engine_max_batch_size and vocab_size"),
    "model": ("config.pbtxt", "the model's config.pbtxt"),
    "files": ("files.txt", "the names in the engine's folder, one a line"),
}
EXIT_CODE = "exit_code"


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
        for name, (ending, what) in BESIDE.items():
            parser.add_argument(
                f"--{name}",
                metavar="FILE",
                help=f"{what}; default: the log's name with .{ending}, if it is there",
            )
        parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")

    def handle(self, *args: Any, **options: Any) -> None:
        """Print the verdict, or why there is none."""
        try:
            text = _read(options["log"])
            known = _known(options)
            code = options["exit_code"] if options["exit_code"] is not None else _exit_code(options["log"])
        except OSError as error:
            self._refuse(options, "log_unreadable", str(error.filename), error.strerror or "", "log")
        except BadCircumstance as error:
            self._refuse(options, "circumstance_unreadable", error.field, error.why, error.field)
        verdict = diagnose(text, options["kind"], code, known)
        if options["json"]:
            self.stdout.write(json.dumps(verdict.as_dict()))
        else:
            self._print(verdict)

    def _refuse(self, options: dict[str, Any], id: str, what: str, why: str, where: str) -> NoReturn:
        message = _("%(what)s cannot be read: %(why)s.") % {"what": what, "why": why}
        finding = {
            "id": id,
            "severity": "error",
            "message": message,
            "where": where,
            "remedy": _("Check its path, its form and who may read it."),
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


def _known(options: dict[str, Any]) -> Circumstances:
    texts = {}
    for name, (ending, _what) in BESIDE.items():
        given = options[name]
        beside = _beside(options["log"], ending)
        if given:
            texts[name] = _read(given)
        elif beside is not None:
            texts[name] = _read(str(beside))
    return read_circumstances(**texts)


def _exit_code(log: str) -> int | None:
    """Of the file beside the log, where there is one; a shell wrote it there."""
    beside = _beside(log, EXIT_CODE)
    if beside is None:
        return None
    text = beside.read_text(encoding="utf-8", errors="replace").strip()
    if not text.removeprefix("-").isdecimal():
        raise BadCircumstance("exit-code", text[:40])
    return int(text)


def _beside(log: str, ending: str) -> Path | None:
    path = Path(log)
    found = path.with_name(f"{path.stem}.{ending}")
    return found if log != "-" and found != path and found.is_file() else None
