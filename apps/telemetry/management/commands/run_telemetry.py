"""Scrape all servers every second, keep an hour of samples and publish them live; runs until it is ended."""

from __future__ import annotations

import asyncio
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from apps.telemetry import process


class Command(BaseCommand):
    """See the module docstring."""

    help = "Scrape all servers every second, keep an hour of samples and publish them live."
    # `manage.py prepare` has made them; they import all pages, while servers wait for this process.
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        """Options."""
        parser.add_argument(
            "--node",
            action="store_true",
            help="only this host's own figures: its GPUs, memory and server processes (docs/several-hosts.md)",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Run until SIGTERM or SIGINT."""
        asyncio.run(process.run_node() if options["node"] else process.run())
