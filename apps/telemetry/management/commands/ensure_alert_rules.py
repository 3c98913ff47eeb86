"""`manage.py ensure_alert_rules`: the alert rules that come with Inflight, where they are missing; part of
prepare.
"""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand
from django.utils.translation import ngettext

from apps.telemetry.alerts.services import install_shipped_rules


class Command(BaseCommand):
    """Creates what is missing and renews what nobody changed."""

    help = "Install the alert rules that come with Inflight; what a person changed or switched off stays."

    def handle(self, *args: Any, **options: Any) -> None:
        touched = install_shipped_rules("prepare")
        if touched and options["verbosity"]:
            text = ngettext(
                "%(count)d alert rule installed.", "%(count)d alert rules installed.", len(touched)
            )
            self.stdout.write(text % {"count": len(touched)})
