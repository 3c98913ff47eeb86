"""`manage.py alert list|ack|unack`."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Mapping
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy as _l

from apps.specs.management.command import ObjectCommand, Outcome, Verb, argument, listed
from apps.specs.services import Actor
from apps.telemetry.alerts import selectors, services
from apps.telemetry.alerts.serialize import alert_dict


def _ack_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("id", type=int)
    parser.add_argument("--note", default="", help=_("what the others should know"))


def _ack(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    row = services.acknowledge(actor, selectors.alert(options["id"]), options["note"])
    return alert_dict(row), [_("%(alert)s is acknowledged and not told again.") % {"alert": row}]


def _unack(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    row = services.unacknowledge(actor, selectors.alert(options["id"]))
    return alert_dict(row), [_("Nobody is on %(alert)s any more.") % {"alert": row}]


def _list(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    columns = {
        "id": _("ID"),
        "state": _("STATE"),
        "severity": _("SEVERITY"),
        "rule": _("RULE"),
        "object": _("OBJECT"),
        "sentence": _("WHAT"),
        "fired_at": _("FIRED"),
    }
    rows = selectors.alerts()[:100] if options["all"] else selectors.open_alerts()
    return listed([alert_dict(row) for row in rows], columns)


class Command(ObjectCommand):
    """Alerts."""

    help = "List and acknowledge alerts."
    verbs = (
        Verb(
            "list",
            _l("list open alerts"),
            _list,
            argument("--all", action="store_true", help=_l("the newest 100, those that are over included")),
        ),
        Verb("ack", _l("say that somebody is on it"), _ack, _ack_arguments),
        Verb("unack", _l("take that back"), _unack, argument("id", type=int)),
    )
