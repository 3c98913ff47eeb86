"""`manage.py hub_access show|set`."""

from __future__ import annotations

import getpass
import sys
from argparse import ArgumentParser
from collections.abc import Mapping
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy as _l

from apps.accounts.roles import Action
from apps.registry import selectors, services
from apps.registry.models import HubAccess
from apps.registry.serialize import hub_access_dict
from apps.specs.management.command import ObjectCommand, Outcome, Verb
from apps.specs.services import Actor


def _settings(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--endpoint", metavar="URL", help=_("address of a mirror; empty: the library's own hub")
    )
    token = parser.add_mutually_exclusive_group()
    token.add_argument(
        "--token", action="store_true", help=_("read a new token from the terminal or from standard input")
    )
    token.add_argument("--no-token", action="store_true", help=_("remove the token"))


def _shown(row: HubAccess) -> Outcome:
    shown = hub_access_dict(row)
    token = _("set") if row.has_token else _("none")
    return shown, [f"{_('mirror')}: {row.endpoint or '-'}", f"{_('token')}: {token}"]


def _show(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    return _shown(selectors.hub_access())


def _set(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    data: dict[str, Any] = {}
    if options["endpoint"] is not None:
        data["endpoint"] = options["endpoint"]
    if options["token"]:
        data["token"] = _read_token()
    if options["no_token"]:
        data["token"] = None
    return _shown(services.save_hub_access(actor, data))


def _read_token() -> str:
    """Never an argument: those are seen by everybody on the machine and kept by the shell."""
    return getpass.getpass(_("Token: ")) if sys.stdin.isatty() else sys.stdin.readline().strip()


class Command(ObjectCommand):
    """Mirror and token of hubs."""

    help = "How hubs are asked: a mirror's address and a token, which is never shown again."
    verbs = (
        Verb("show", _l("mirror, and whether there is a token"), _show),
        Verb("set", _l("change mirror or token"), _set, _settings, needs=Action.ADMINISTER),
    )
