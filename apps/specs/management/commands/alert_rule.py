"""`manage.py alert_rule list|enable|disable|delete`; rules are made and changed with `apply`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy as _l

from apps.specs.management.command import ObjectCommand, Outcome, Verb, argument, listed
from apps.specs.services import Actor
from apps.telemetry.alerts import selectors, services
from apps.telemetry.alerts.serialize import rule_dict


def _enable(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    row = services.save_alert_rule(actor, {"enabled": True}, selectors.rule(options["name"]))
    return rule_dict(row), [_("%(name)s is on.") % {"name": row.name}]


def _disable(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    row = services.save_alert_rule(actor, {"enabled": False}, selectors.rule(options["name"]))
    return rule_dict(row), [_("%(name)s is off; its alerts end.") % {"name": row.name}]


def _delete(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    services.delete_alert_rule(actor, selectors.rule(options["name"]))
    return {"deleted": options["name"]}, [_("%(name)s was deleted.") % {"name": options["name"]}]


def _list(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    columns = {
        "name": _("NAME"),
        "enabled": _("ON"),
        "severity": _("SEVERITY"),
        "target": _("ABOUT"),
        "selector": _("NAMES"),
        "description": _("WHEN"),
        "for_seconds": _("FOR (S)"),
    }
    return listed([rule_dict(row) for row in selectors.rules()], columns)


class Command(ObjectCommand):
    """Alert rules."""

    help = "List, switch and delete alert rules; make and change them with apply."
    verbs = (
        Verb("list", _l("list alert rules"), _list),
        Verb("enable", _l("switch a rule on"), _enable, argument("name")),
        Verb("disable", _l("switch a rule off; its alerts end"), _disable, argument("name")),
        Verb("delete", _l("delete a rule of one's own"), _delete, argument("name")),
    )
