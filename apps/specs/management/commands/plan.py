"""`manage.py plan -f FILE`: what applying the documents would change."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.core.management.base import CommandParser
from django.utils.translation import gettext as _

from apps.specs import services
from apps.specs.management.command import InflightCommand, read_file
from apps.specs.planning import FieldChange, Plan, PlannedObject
from apps.specs.services import Actor

_SIGNS = {"create": "+", "update": "~", "unchanged": "="}


class Command(InflightCommand):
    """Shows the difference between YAML documents and the objects that exist."""

    help = "Show what applying YAML documents would change."

    def add_arguments(self, parser: CommandParser) -> None:
        """The file."""
        super().add_arguments(parser)
        parser.add_argument("-f", "--file", required=True, help=_("YAML file, or - for standard input"))

    def run(self, actor: Actor, options: Mapping[str, Any]) -> None:
        """Print the plan."""
        plan = services.plan(actor, *read_file(options["file"]))
        self.show(options, plan.as_dict(), plan_lines(plan))


def plan_lines(plan: Plan) -> list[str]:
    """A plan as a person reads it."""
    lines = [line for item in plan.objects for line in object_lines(item)]
    totals = _("%(create)d to create, %(update)d to change, %(unchanged)d unchanged.")
    return [*lines, totals % plan.as_dict()]


def object_lines(item: PlannedObject) -> list[str]:
    """One object: what would happen to it, field by field."""
    words = {"create": _("create"), "update": _("change"), "unchanged": _("unchanged")}
    lines = [f"{_SIGNS[item.action]} {item.document.kind} {item.document.name}: {words[item.action]}"]
    lines += [f"    {change_line(change)}" for change in item.changes]
    lines += [f"    ! {note}" for note in item.notes]
    if item.follow_up == "deploy":
        lines.append("    " + _("then deploy"))
    if item.follow_up == "stop":
        lines.append("    " + _("then stop"))
    return lines


def change_line(change: FieldChange) -> str:
    """One field: before and after."""
    if change.before is None:
        return f"{change.path}: {_plain(change.after)}"
    return f"{change.path}: {_plain(change.before)} -> {_plain(change.after)}"


def _plain(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_plain(inner)}" for key, inner in value.items()) + "}"
    return _("none") if value is None else str(value)
