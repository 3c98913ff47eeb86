"""`manage.py stop_instances [--reason TEXT]`."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils.translation import gettext as _

from workers.reconcile import stop_node


class Command(BaseCommand):
    """Ends this node's servers in order; what is desired stays, so they start again with the next control worker."""

    help = "Drain and end every server of this node, without changing what its deployments should do."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        """Options."""
        parser.add_argument("--reason", default="", help="sentence that the deployments show meanwhile")
        parser.add_argument(
            "--drain-seconds",
            type=float,
            default=10.0,
            help="how long requests in flight may go on (default 10)",
        )
        parser.add_argument("--timeout", type=float, default=60.0, help="seconds in all (default 60)")

    def handle(self, *args: Any, **options: Any) -> None:
        """End them and say which."""
        sentence = options["reason"] or _(
            "The servers of this node were ended; they start again with make up."
        )
        left = stop_node(sentence, options["drain_seconds"], options["timeout"], self.stdout.write)
        if left:
            names = ", ".join(f"{row.uid} ({row.state})" for row in left)
            raise CommandError(_("These servers could not be ended in time: %(names)s.") % {"names": names})
