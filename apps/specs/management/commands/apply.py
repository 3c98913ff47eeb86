"""`manage.py apply -f FILE`: make the objects as the documents describe them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.core.management.base import CommandParser
from django.utils.translation import gettext as _

from apps.specs import services
from apps.specs.management.command import REFUSED, InflightCommand, read_file
from apps.specs.services import Actor


class Command(InflightCommand):
    """Applies YAML documents; a second time changes nothing."""

    help = "Create and change objects as YAML documents describe them, and deploy what shall run."

    def add_arguments(self, parser: CommandParser) -> None:
        """The file."""
        super().add_arguments(parser)
        parser.add_argument("-f", "--file", required=True, help=_("YAML file, or - for standard input"))

    def run(self, actor: Actor, options: Mapping[str, Any]) -> None:
        """Apply and say what was done; exits 1 where a deployment could not be started."""
        done = services.apply(actor, *read_file(options["file"]))
        lines = []
        for item in done:
            lines.append(f"{item.planned.document.kind} {item.planned.document.name}: {item.sentence}")
            if item.error is not None and item.error.remedy:
                lines.append(f"    {item.error.remedy}")
        self.show(options, {"objects": [item.as_dict() for item in done]}, lines)
        if any(item.error is not None for item in done):
            raise SystemExit(REFUSED)
