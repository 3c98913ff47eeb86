"""`manage.py prepare`: database, static files, first account and alert rules in one process."""

from __future__ import annotations

import logging
from io import StringIO
from pathlib import Path
from typing import Any

from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandParser
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from apps.core.preparation import collect_static, migrate


class Command(BaseCommand):
    """Does what is needed before the processes start; says only what it did."""

    help = "Apply migrations, collect static files, create the first administrator: whatever is not done yet."

    def add_arguments(self, parser: CommandParser) -> None:
        """Options."""
        parser.add_argument(
            "--slots-file", type=Path, help="also write the indices of the worker slots, one a line"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        # Redis is started after this, and nobody looks yet: that news reaches nobody is no news.
        logging.getLogger("apps.realtime.publisher").setLevel(logging.ERROR)
        migrations = migrate()
        if migrations:
            self.stdout.write(
                ngettext("%(count)d migration applied.", "%(count)d migrations applied.", migrations)
                % {"count": migrations}
            )
        if collect_static():
            self.stdout.write(_("Static files collected."))
        for command in ("ensure_admin", "ensure_alert_rules"):
            call_command(command, stdout=self.stdout, verbosity=options["verbosity"])
        if options["slots_file"]:
            slots = StringIO()
            call_command("list_worker_slots", stdout=slots)
            options["slots_file"].write_text(slots.getvalue(), encoding="ascii")
