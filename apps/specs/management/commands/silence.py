"""`manage.py silence create|end|list`."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy as _l

from apps.core import clock
from apps.specs.management.command import ObjectCommand, Outcome, Verb, argument, listed
from apps.specs.services import Actor
from apps.telemetry.alerts import selectors, services
from apps.telemetry.alerts.serialize import silence_dict


def _create_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--rule", default="", help=_("name of a rule; * and ? as in file names"))
    parser.add_argument(
        "--object", dest="object_name", default="", help=_("name of a deployment, server or node")
    )
    parser.add_argument("--severity", choices=["info", "warning", "critical"])
    parser.add_argument("--minutes", type=int, required=True, help=_("how long"))
    parser.add_argument("--reason", required=True)


def _create(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    data = {key: options[key] for key in ("rule", "object_name", "severity", "reason")}
    row = services.create_silence(
        actor, {**data, "ends_at": clock.now() + timedelta(minutes=options["minutes"])}
    )
    return silence_dict(row), [
        _("Nobody is told of %(what)s until %(until)s.") % {"what": row, "until": row.ends_at.isoformat()}
    ]


def _end(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    row = services.end_silence(actor, selectors.silence(options["id"]))
    return silence_dict(row), [_("The silence of %(what)s is over.") % {"what": row}]


def _list(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    columns = {
        "id": _("ID"),
        "rule": _("RULE"),
        "object_name": _("OBJECT"),
        "severity": _("SEVERITY"),
        "ends_at": _("UNTIL"),
        "who": _("WHO"),
        "reason": _("REASON"),
    }
    return listed([silence_dict(row) for row in selectors.silences(options["all"])], columns)


class Command(ObjectCommand):
    """Silences."""

    help = "Tell nobody of some alerts for some time."
    verbs = (
        Verb("create", _l("begin a silence now"), _create, _create_arguments),
        Verb("end", _l("end a silence now"), _end, argument("id", type=int)),
        Verb(
            "list",
            _l("list silences"),
            _list,
            argument("--all", action="store_true", help=_l("also those that are over")),
        ),
    )
