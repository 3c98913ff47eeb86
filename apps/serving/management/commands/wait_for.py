"""`manage.py wait_for --deployment NAME --timeout S`."""

from __future__ import annotations

import socket
import time
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils.translation import gettext as _

from apps.core.exceptions import NotFound
from apps.fleet.selectors import local_node
from apps.serving import selectors, states
from apps.serving.models import Deployment

EVERY_SECONDS = 0.5


class Command(BaseCommand):
    """Waits until a deployment is ready, saying what it does meanwhile."""

    help = (
        "Wait until a deployment is ready. Exit 0 when it is, 1 with the cause when it failed or time is up."
    )
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        """Options."""
        parser.add_argument("--deployment", required=True, help="public name")
        parser.add_argument("--timeout", type=float, default=300.0, help="seconds (default 300)")
        parser.add_argument(
            "--if-wanted",
            action="store_true",
            help="one that was deleted or stopped is not waited for: exit 0",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Print a line at each change."""
        deadline = time.monotonic() + options["timeout"]
        said = ""
        while True:
            try:
                row = selectors.deployment(options["deployment"])
            except NotFound as error:
                if options["if_wanted"]:
                    return
                raise CommandError(f"{error.sentence} {error.remedy}") from error
            line = describe(row)
            if line != said:
                self.stdout.write(line)
                self.stdout.flush()
                said = line
            if row.state == states.READY and answers(row):
                return
            if row.state in (states.FAILED, states.STOPPED) and row.waiting_build_id is None:
                if options["if_wanted"] and row.state == states.STOPPED:
                    return
                raise CommandError(failure_of(row))
            if time.monotonic() >= deadline:
                message = _("%(name)s is not ready after %(seconds)d s: %(line)s")
                raise CommandError(message % {"name": row.name, "seconds": options["timeout"], "line": line})
            time.sleep(EVERY_SECONDS)


def answers(row: Deployment) -> bool:
    """Whether a serving instance takes connections.

    After a reboot the rows still say what was true before it, until the control worker has looked.
    """
    here = local_node()
    for instance in selectors.serving_instances(row):
        if here is None or instance.node_id != here.pk:
            return True  # its port is on another host's loopback
        try:
            with socket.create_connection(("127.0.0.1", instance.http_port or 0), timeout=1.0):
                return True
        except OSError:
            continue
    return False


def describe(row: Deployment) -> str:
    """One line: what the deployment is, and how far its build or its servers are."""
    parts = [f"{row.name}: {row.state}"]
    build = row.waiting_build
    if build is not None:
        stage = next((stage for stage in build.stages if stage.get("state") == "running"), None)
        share = f" {build.progress:.0%}" if build.progress is not None else ""
        title = f", {stage.get('title') or stage.get('name')}" if stage else ""
        parts.append(f"build #{build.number} {build.state}{share}{title}")
    elif row.sentence:
        parts.append(row.sentence)
    parts += [f"{instance.uid} {instance.state}" for instance in selectors.live_instances(row)]
    return "; ".join(parts)


def failure_of(row: Deployment) -> str:
    """Why it will not become ready, in one line."""
    if row.state == states.STOPPED:
        return _("%(name)s is stopped. Deploy it first.") % {"name": row.name}
    return f"{row.name}: {row.sentence or _('it failed')} {row.remedy}".strip()
