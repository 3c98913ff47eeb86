"""What the commands of Inflight share: who acts, JSON output, errors with a remedy, exit codes."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils.functional import Promise
from django.utils.translation import gettext as _

from apps.accounts.roles import Action, require
from apps.accounts.selectors import person
from apps.core.exceptions import InflightError, InvalidInput
from apps.specs.errors import error_body
from apps.specs.services import Actor

# Who a command acts as when no --user is given: whoever may run commands on this machine.
DEFAULT_ACTOR = "cli"
REFUSED, WRONG_USAGE = 1, 2


class Refused(CommandError):
    """The input is refused; the class's name is what the terminal shows before the sentences."""

    def __init__(self, error: InflightError) -> None:
        super().__init__("\n".join(error_lines(error)), returncode=REFUSED)


class InflightCommand(BaseCommand):
    """Exits 0 when done, 1 when the input is refused (with the findings), 2 for wrong usage."""

    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        """Options of every command."""
        add_common_options(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        """Run the command; an error of ours becomes its sentences and the exit code."""
        try:
            actor: Actor = person(options["user"]) if options["user"] else DEFAULT_ACTOR
            self.run(actor, options)
        except InflightError as error:
            if options["json"]:
                self.print_json(error_body(error))
                raise SystemExit(REFUSED) from error
            raise Refused(error) from error

    def run(self, actor: Actor, options: Mapping[str, Any]) -> None:
        """What the command does."""
        raise CommandError(_("This command does nothing by itself."), returncode=WRONG_USAGE)

    def print_json(self, value: Any) -> None:
        """Print a value as JSON."""
        self.stdout.write(json.dumps(value, indent=2, ensure_ascii=False, default=str))

    def show(self, options: Mapping[str, Any], value: Any, lines: list[str]) -> None:
        """Print the value with --json, else the lines."""
        if options["json"]:
            self.print_json(value)
        else:
            for line in lines:
                self.stdout.write(line)


# What a verb gives: the value that --json prints, and the lines for a person.
Outcome = tuple[Any, list[str]]


def _no_arguments(parser: ArgumentParser) -> None:
    return None


@dataclass(frozen=True, slots=True)
class Verb:
    """One thing that a command does with its kind of object: `manage.py build start f16`."""

    name: str
    help: str | Promise
    run: Callable[[Actor, Mapping[str, Any]], Outcome]
    arguments: Callable[[ArgumentParser], None] = _no_arguments
    # The least that the verb asks for; the service that it calls asks for more.
    needs: Action = Action.VIEW


class ObjectCommand(InflightCommand):
    """A command whose first word says what to do."""

    verbs: tuple[Verb, ...] = ()

    def add_arguments(self, parser: CommandParser) -> None:
        """One parser for each verb; the common options stand after it."""
        below = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
        for verb in self.verbs:
            inner = below.add_parser(verb.name, help=str(verb.help))
            verb.arguments(inner)
            add_common_options(inner)

    def run(self, actor: Actor, options: Mapping[str, Any]) -> None:
        """Run the verb and print what it gives."""
        verb = next(verb for verb in self.verbs if verb.name == options["verb"])
        require(actor, verb.needs)
        value, lines = verb.run(actor, options)
        self.show(options, value, lines)


def argument(*names: str, **keywords: Any) -> Callable[[ArgumentParser], None]:
    """Adds one argument to the parser of a verb."""

    def add(parser: ArgumentParser) -> None:
        parser.add_argument(*names, **keywords)

    return add


def add_common_options(parser: ArgumentParser) -> None:
    """Who acts, and how the outcome is printed."""
    parser.add_argument("--user", metavar="NAME", help=_("act as this account, with its roles"))
    parser.add_argument("--json", action="store_true", help=_("print JSON"))


def error_lines(error: InflightError) -> list[str]:
    """An error as a person reads it: every finding, then the remedy."""
    findings = error.findings if isinstance(error, InvalidInput) else ()
    if not findings:
        return [error.sentence, *([error.remedy] if error.remedy else [])]
    return [
        line
        for found in findings
        for line in (found.message, *([f"  {found.remedy}"] if found.remedy else []))
    ]


def read_file(name: str) -> tuple[str, str]:
    """Text of a file, or of standard input for `-`, and what to call it in errors."""
    if name == "-":
        return sys.stdin.read(), _("standard input")
    try:
        return Path(name).read_text(encoding="utf-8"), Path(name).name
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else _("it is not UTF-8 text")
        raise CommandError(
            _("%(name)s cannot be read: %(reason)s.") % {"name": name, "reason": reason},
            returncode=WRONG_USAGE,
        ) from error


def listed(rows: Sequence[Mapping[str, Any]], columns: Mapping[str, str]) -> Outcome:
    """The outcome of a verb that lists."""
    return {"items": list(rows), "count": len(rows)}, table(rows, columns)


def table(rows: Sequence[Mapping[str, Any]], columns: Mapping[str, str]) -> list[str]:
    """Rows as aligned text: `columns` maps keys to headings; what is absent is a dash."""
    cells = [list(columns.values())]
    cells += [["-" if row.get(key) is None else str(row[key]) for key in columns] for row in rows]
    widths = [max(len(line[index]) for line in cells) for index in range(len(columns))]
    return [
        "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip()
        for line in cells
    ]
