"""`manage.py list_worker_slots`: indices of this host's worker slots, one a line. Needs no database."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand

from apps.fleet.devices import slot_indices


class Command(BaseCommand):
    """Print 0 to n-1 for n GPUs, or 0 for the CPU slot of a host without GPU."""

    help = "Print the indices of this host's worker slots, one a line."
    requires_system_checks: list[str] = []

    def handle(self, *args: Any, **options: Any) -> None:
        """Print the indices."""
        for index in slot_indices():
            self.stdout.write(str(index))
