"""`manage.py external_deployment list|secret|delete`; they are made and changed with `apply`."""

from __future__ import annotations

import getpass
import sys
from collections.abc import Mapping
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy as _l

from apps.gateway import selectors, services
from apps.gateway.serialize import external_dict
from apps.specs.management.command import ObjectCommand, Outcome, Verb, argument, listed
from apps.specs.services import Actor


def _secret(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    external = selectors.external(options["name"])
    # Never as an argument: those are seen by everybody on the machine.
    text = getpass.getpass(_("Secret: ")) if sys.stdin.isatty() else sys.stdin.readline()
    row = services.set_external_secret(actor, external, text)
    said = _("The secret of %(name)s is kept.") if row.secret else _("%(name)s has no secret any more.")
    return external_dict(row), [said % {"name": row.name}]


def _delete(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    services.delete_external(actor, selectors.external(options["name"]))
    return {"deleted": options["name"]}, [_("%(name)s was deleted.") % {"name": options["name"]}]


def _list(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    columns = {
        "name": _("NAME"),
        "base_url": _("BASE URL"),
        "model": _("MODEL THERE"),
        "slots": _("AT ONCE"),
        "has_secret": _("SECRET"),
    }
    return listed([external_dict(row) for row in selectors.externals()], columns)


class Command(ObjectCommand):
    """Somebody else's OpenAI-style APIs."""

    help = "List external deployments, set their secrets, delete them; make and change them with apply."
    verbs = (
        Verb("list", _l("list external deployments"), _list),
        Verb("secret", _l("read the secret from the terminal or standard input"), _secret, argument("name")),
        Verb("delete", _l("delete one that no route names"), _delete, argument("name")),
    )
