"""`manage.py run_door`."""

from __future__ import annotations

import asyncio
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.utils.translation import gettext as _

from workers.door import process


class Command(BaseCommand):
    """The node's proxy: its door for other hosts, and their servers' addresses on this one."""

    help = "Let other hosts reach this node's servers and logs, and this host reach theirs."
    # `manage.py prepare` has made them; they import all pages, while servers wait for this process.
    requires_system_checks: list[str] = []

    def handle(self, *args: Any, **options: Any) -> None:
        """Run until SIGTERM or SIGINT."""
        if not settings.INFLIGHT_NODE_ID:
            raise CommandError(_("This host has no node id. Set INFLIGHT_NODE_ID, or start with make up."))
        try:
            asyncio.run(process.run())
        except OSError as error:
            raise CommandError(
                _("The door cannot be opened on %(host)s:%(port)d: %(why)s. Set INFLIGHT_DOOR_HOST or _PORT.")
                % {"host": settings.INFLIGHT_DOOR_HOST, "port": settings.INFLIGHT_DOOR_PORT, "why": error}
            ) from error
