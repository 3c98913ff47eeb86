"""`manage.py export_vocabulary`."""

from __future__ import annotations

import json
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand
from django.utils.translation import gettext as _

from apps.telemetry.domain import documentation, grafana


class Command(BaseCommand):
    """Writes what is made of the vocabulary: its table in docs/telemetry.md, and deploy/grafana/."""

    help = _("Write the table of metric names to docs/telemetry.md, and the Grafana dashboards.")
    requires_system_checks: list[str] = []

    def handle(self, *args: Any, **options: Any) -> None:
        """Write the files."""
        path = settings.BASE_DIR / "docs/telemetry.md"
        path.write_text(documentation.replaced(path.read_text(encoding="utf-8")), encoding="utf-8")
        self.stdout.write(str(path))
        folder = settings.BASE_DIR / "deploy/grafana"
        folder.mkdir(exist_ok=True)
        for dashboard in grafana.DASHBOARDS:
            file = folder / f"{dashboard.uid}.json"
            file.write_text(json.dumps(grafana.render(dashboard), indent=1) + "\n", encoding="utf-8")
            self.stdout.write(str(file))
