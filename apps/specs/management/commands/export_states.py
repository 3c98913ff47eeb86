"""`manage.py export_states`."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand

from apps.specs.state_diagrams import document


class Command(BaseCommand):
    """Writes docs/states.md."""

    help = "Write the diagrams of all state machines to docs/states.md."
    requires_system_checks: list[str] = []

    def handle(self, *args: Any, **options: Any) -> None:
        """Write the file."""
        path = settings.BASE_DIR / "docs/states.md"
        path.write_text(document(), encoding="utf-8")
        self.stdout.write(str(path))
