"""`manage.py join`: write this host and its slots into the fleet."""

from __future__ import annotations

import json
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from apps.core.exceptions import InflightError
from apps.fleet.serialize import node_dict
from apps.fleet.services import register_node


class Command(BaseCommand):
    """Register this host as the node that INFLIGHT_NODE_ID or --node-id names."""

    help = "Write this host and its GPUs (or its CPU slot) into the fleet."

    def add_arguments(self, parser: CommandParser) -> None:
        """Options."""
        parser.add_argument("--node-id", default=None, help="instead of INFLIGHT_NODE_ID")
        parser.add_argument(
            "--label", action="append", default=[], metavar="KEY=VALUE", help="may be repeated"
        )
        parser.add_argument("--json", action="store_true", help="print the node as JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        """Register and say what was found."""
        labels = dict(_label(text) for text in options["label"])
        try:
            node = register_node("cli", options["node_id"], labels=labels or None)
        except InflightError as error:
            raise CommandError(f"{error.sentence} {error.remedy}") from error
        if options["json"]:
            self.stdout.write(json.dumps(node_dict(node), indent=2))
            return
        slots = ", ".join(f"{gpu.device}{gpu.index} ({gpu.product})" for gpu in node.gpus.all())
        self.stdout.write(f"{node.node_id}: {node.hostname}, {slots}")


def _label(text: str) -> tuple[str, str]:
    key, separator, value = text.partition("=")
    if not separator or not key:
        raise CommandError(f"--label {text!r}: expected KEY=VALUE.", returncode=2)
    return key, value
