"""`manage.py restore FILE.tar --home DIR`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils.translation import gettext as _

from apps.core.backup.restore import restore_backup
from apps.core.exceptions import InflightError


class Command(BaseCommand):
    """Restores a backup into an empty home."""

    help = "Restore a backup into an empty folder; every file is verified first, a failure leaves nothing behind."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        """Options."""
        parser.add_argument("file", type=Path, help="an archive that manage.py backup wrote")
        parser.add_argument(
            "--home", type=Path, required=True, help="an empty folder, or one that does not exist"
        )
        parser.add_argument(
            "--new-node", action="store_true", help="do not take over the node id of the original"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Restore and say how to start it."""
        try:
            facts = restore_backup(options["file"], options["home"].absolute(), options["new_node"])
        except InflightError as error:
            raise CommandError(f"{error.sentence} {error.remedy}") from error
        self.stdout.write(
            _("Restored %(files)d files of %(made)s into %(home)s. Start it: INFLIGHT_HOME=%(home)s make up")
            % {"files": facts.files, "made": facts.made_at, "home": facts.home}
        )
