"""`manage.py backup FILE.tar`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils.translation import gettext as _

from apps.core.backup.archive import write_backup
from apps.core.exceptions import InflightError


class Command(BaseCommand):
    """Writes a backup; the installation may go on running."""

    help = "Write database, secret key, node id and manifests to a tar file (mode 600: it holds secrets)."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        """Options."""
        parser.add_argument("file", type=Path, help="the archive to write; must not exist")
        parser.add_argument(
            "--with-artefacts", action="store_true", help="the files of checkpoints and engines too"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Write it and say what is in it."""
        file: Path = options["file"].absolute()
        home = Path(settings.INFLIGHT_HOME)
        try:
            facts = write_backup(file, home, settings.INFLIGHT_NODE_ID, options["with_artefacts"])
        except InflightError as error:
            raise CommandError(f"{error.sentence} {error.remedy}") from error
        self.stdout.write(
            _("%(path)s: %(files)d files, %(bytes)d bytes. It holds secrets: keep it to yourself.")
            % {"path": facts.path, "files": facts.files, "bytes": facts.size}
        )
