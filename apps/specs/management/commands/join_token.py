"""`manage.py join_token create|revoke|list`."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Mapping
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy as _l

from apps.accounts.roles import Action
from apps.core.exceptions import InvalidInput
from apps.fleet import join_tokens
from apps.fleet.join_api import token_dict
from apps.specs.management.command import ObjectCommand, Outcome, Verb, argument, listed
from apps.specs.services import Actor


def _create_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--minutes", type=int, default=join_tokens.USUAL, help=_("how long it is good (default 60)")
    )
    parser.add_argument(
        "--label", action="append", default=[], metavar="KEY=VALUE", help=_("may be repeated")
    )


def _create(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    labels = dict(_label(text) for text in options["label"])
    row, text = join_tokens.create_join_token(actor, labels=labels, minutes=options["minutes"])
    command = join_tokens.install_command(text)
    lines = [
        _("Copy it now; it is not kept and cannot be shown again:"),
        text,
        _("On the new host, in its account's home:"),
        command,
    ]
    return {**token_dict(row), "token": text, "command": command}, lines


def _label(text: str) -> tuple[str, str]:
    key, separator, value = text.partition("=")
    if not separator or not key:
        raise InvalidInput(
            "label_unreadable",
            _("“%(label)s” is no label.") % {"label": text[:60]},
            field="labels",
            remedy=_("Write KEY=VALUE, for example zone=a."),
        )
    return key, value


def _revoke(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    row = join_tokens.revoke_join_token(actor, join_tokens.join_token(options["id"]))
    return token_dict(row), [_("%(token)s lets no host in any more.") % {"token": str(row)}]


def _list(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    columns = {
        "id": _("ID"),
        "prefix": _("BEGINS WITH"),
        "state": _("STATE"),
        "expires_at": _("EXPIRES"),
        "used_by": _("NODE"),
        "used_from": _("HOST"),
    }
    return listed([token_dict(row) for row in join_tokens.join_tokens()], columns)


class Command(ObjectCommand):
    """Tokens that let a host join."""

    help = "Create, revoke and list tokens that let one host join."
    verbs = (
        Verb("create", _l("make a token; prints it once"), _create, _create_arguments),
        Verb("revoke", _l("end a token that no host has used"), _revoke, argument("id", type=int)),
        Verb("list", _l("list tokens"), _list, needs=Action.ADMINISTER),
    )
