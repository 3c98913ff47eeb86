"""`manage.py export`: the objects that exist as YAML documents."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError, CommandParser
from django.utils.translation import gettext as _

from apps.specs import services
from apps.specs.documents import KINDS
from apps.specs.management.command import WRONG_USAGE, InflightCommand
from apps.specs.services import Actor


class Command(InflightCommand):
    """Writes configuration back; applying it again changes nothing."""

    help = "Write the objects that exist as YAML documents."

    def add_arguments(self, parser: CommandParser) -> None:
        """Kinds and the file to write."""
        super().add_arguments(parser)
        parser.add_argument(
            "--kind", action="append", choices=list(KINDS), help=_("only this kind; may be given repeatedly")
        )
        parser.add_argument("-o", "--output", help=_("file to write instead of standard output"))

    def run(self, actor: Actor, options: Mapping[str, Any]) -> None:
        """Print or write the documents."""
        text = services.export(actor, options["kind"] or ())
        if not options["output"]:
            self.show(options, {"documents": text}, [text.rstrip("\n")])
            return
        try:
            Path(options["output"]).write_text(text, encoding="utf-8")
        except OSError as error:
            raise CommandError(
                _("%(name)s cannot be written: %(reason)s.")
                % {"name": options["output"], "reason": error.strerror},
                returncode=WRONG_USAGE,
            ) from error
