"""`manage.py account roles|delete|list`."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Mapping
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy as _l

from apps.accounts import selectors, services
from apps.accounts.roles import GRANTS, Action
from apps.accounts.serialize import person_dict
from apps.specs.management.command import ObjectCommand, Outcome, Verb, argument, listed
from apps.specs.services import Actor


def _roles_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("name")
    parser.add_argument("roles", nargs="*", metavar="ROLE", help=", ".join(GRANTS))


def _roles(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    person = selectors.person(options["name"])
    held = services.set_roles(actor, person, options["roles"])
    line = _("%(name)s: %(roles)s.") % {
        "name": person.get_username(),
        "roles": ", ".join(sorted(held)) or _("no role"),
    }
    return person_dict(person), [line]


def _delete(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    services.delete_person(actor, selectors.person(options["name"]))
    return {"deleted": options["name"]}, [_("%(name)s was deleted.") % {"name": options["name"]}]


def _list(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    rows = [person_dict(row) for row in selectors.people()]
    _value, lines = listed(
        [{**row, "roles": ", ".join(row["roles"]) or None} for row in rows],
        {"username": _("NAME"), "roles": _("ROLES")},
    )
    return {"items": rows, "count": len(rows)}, lines


class Command(ObjectCommand):
    """People and their roles."""

    help = "Give roles to accounts, delete and list them; make them in the admin."
    verbs = (
        Verb("roles", _l("give an account exactly these roles"), _roles, _roles_arguments),
        Verb("delete", _l("delete an account with its tokens and conversations"), _delete, argument("name")),
        Verb("list", _l("list accounts that may sign in"), _list, needs=Action.ADMINISTER),
    )
