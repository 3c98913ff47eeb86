"""`manage.py token create|revoke|list`."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy as _l

from apps.accounts import selectors, services
from apps.accounts.roles import Action
from apps.accounts.serialize import token_dict
from apps.core import clock
from apps.core.exceptions import NotFound
from apps.specs.management.command import ObjectCommand, Outcome, Verb, argument, listed
from apps.specs.services import Actor


def _create_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("owner", help=_("account that the token acts as"))
    parser.add_argument("name", help=_("program or machine that will use it"))
    parser.add_argument("--days", type=int, help=_("days until it expires; without: never"))


def _create(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    days = options["days"]
    expires = clock.now() + timedelta(days=days) if days is not None else None
    owner = selectors.person(options["owner"])
    token, text = services.create_token(actor, options["name"], expires, owner)
    lines = [_("Copy it now; it is not kept and cannot be shown again:"), text]
    return {**token_dict(token), "token": text}, lines


def _revoke(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    row = selectors.any_token(options["id"])
    if row is None:
        raise NotFound("token_not_found", _("There is no token %(number)d.") % {"number": options["id"]})
    return token_dict(services.revoke_token(actor, row)), [_("%(token)s was revoked.") % {"token": str(row)}]


def _list(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    rows = selectors.all_tokens()
    if options["owner"]:
        rows = rows.filter(owner=selectors.person(options["owner"]))
    columns = {
        "id": _("ID"),
        "owner": _("OWNER"),
        "name": _("NAME"),
        "prefix": _("BEGINS WITH"),
        "state": _("STATE"),
        "last_used_at": _("LAST USED"),
    }
    return listed([token_dict(row) for row in rows], columns)


class Command(ObjectCommand):
    """API tokens."""

    help = "Create, revoke and list API tokens."
    verbs = (
        Verb("create", _l("create a token of an account; prints it once"), _create, _create_arguments),
        Verb("revoke", _l("end a token at once"), _revoke, argument("id", type=int)),
        Verb("list", _l("list tokens"), _list, argument("--owner", metavar="NAME"), needs=Action.ADMINISTER),
    )
