"""Write static/js/realtime/schema.js out of apps/realtime/schema.py."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.utils.translation import gettext as _

from apps.realtime import export


class Command(BaseCommand):
    """See the module docstring."""

    help = "Write static/js/realtime/schema.js out of apps/realtime/schema.py."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add --check."""
        parser.add_argument("--check", action="store_true", help="Only say whether the file is up to date.")

    def handle(self, *args: Any, **options: Any) -> None:
        """Write the file, or compare it; exit 1 where --check finds a difference."""
        path, text = export.schema_path(), export.render()
        if options["check"]:
            if not path.is_file() or path.read_text(encoding="utf-8") != text:
                raise CommandError(
                    _("%(path)s is not up to date; run manage.py export_realtime_schema.") % {"path": path}
                )
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        self.stdout.write(str(path))
