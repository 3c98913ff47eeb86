"""`manage.py notification_channel create|test|delete|list`."""

from __future__ import annotations

import os
from argparse import ArgumentParser
from collections.abc import Mapping
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy as _l

from apps.core.exceptions import InvalidInput
from apps.specs.management.command import ObjectCommand, Outcome, Verb, argument, listed
from apps.specs.services import Actor
from apps.telemetry.alerts import selectors, services
from apps.telemetry.alerts.serialize import channel_dict, notification_dict


def _create_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("name")
    parser.add_argument("--url", help=_("of a webhook"))
    parser.add_argument("--mail", action="append", metavar="ADDRESS", help=_("of e-mail; may be repeated"))
    # A secret in argv would be seen by everybody on the machine.
    parser.add_argument(
        "--secret-env", metavar="NAME", help=_("environment variable with the signing secret")
    )
    parser.add_argument("--least-severity", choices=["info", "warning", "critical"])


def _create(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    data: dict[str, Any] = {"name": options["name"], "type": "email" if options["mail"] else "webhook"}
    data |= {"recipients": options["mail"]} if options["mail"] else {"url": options["url"] or ""}
    if options["least_severity"]:
        data["least_severity"] = options["least_severity"]
    if options["secret_env"]:
        secret = os.environ.get(options["secret_env"])
        if not secret:
            raise InvalidInput(
                "secret_missing",
                _("The environment variable %(name)s is not set.") % {"name": options["secret_env"]},
                field="secret",
                remedy=_("Set it to the secret, or leave --secret-env out."),
            )
        data["secret"] = secret
    row = services.save_channel(actor, data)
    return channel_dict(row), [_("%(name)s was created.") % {"name": row.name}]


def _test(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    row = services.test_channel(actor, selectors.channel(options["name"]))
    return notification_dict(row), [f"{row.state}: {row.answer}"]


def _delete(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    services.delete_channel(actor, selectors.channel(options["name"]))
    return {"deleted": options["name"]}, [_("%(name)s was deleted.") % {"name": options["name"]}]


def _list(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    columns = {
        "name": _("NAME"),
        "type": _("TYPE"),
        "enabled": _("ON"),
        "least_severity": _("FROM"),
        "signed": _("SIGNED"),
        "url": _("URL"),
    }
    return listed([channel_dict(row) for row in selectors.channels()], columns)


class Command(ObjectCommand):
    """Notification channels."""

    help = "Create, test, delete and list notification channels."
    verbs = (
        Verb("create", _l("create a channel"), _create, _create_arguments),
        Verb("test", _l("really send a test message"), _test, argument("name")),
        Verb("delete", _l("delete a channel that no rule names"), _delete, argument("name")),
        Verb("list", _l("list channels"), _list),
    )
