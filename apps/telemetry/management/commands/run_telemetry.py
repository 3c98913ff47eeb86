"""Scrape all servers every second, keep an hour of samples and publish them live; runs until it is ended."""

from __future__ import annotations

import asyncio
from typing import Any

from django.core.management.base import BaseCommand

from apps.telemetry import process


class Command(BaseCommand):
    """See the module docstring."""

    help = "Scrape all servers every second, keep an hour of samples and publish them live."

    def handle(self, *args: Any, **options: Any) -> None:
        """Run until SIGTERM or SIGINT."""
        asyncio.run(process.run())
