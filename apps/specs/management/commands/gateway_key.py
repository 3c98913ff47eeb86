"""`manage.py gateway_key create|change|revoke|list`."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy as _l

from apps.accounts import selectors as accounts
from apps.core import clock
from apps.gateway import selectors, services
from apps.gateway.models import PriorityClass
from apps.gateway.serialize import key_dict
from apps.specs.management.command import ObjectCommand, Outcome, Verb, argument, listed
from apps.specs.services import Actor

_LIMITS = {
    "requests_per_minute": _l("requests in any 60 seconds"),
    "tokens_per_minute": _l("tokens in any 60 seconds, prompt and answer"),
    "concurrent_requests": _l("requests at once"),
    "max_tokens": _l("tokens that an answer may have"),
}


def _settings(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--model", action="append", metavar="NAME", help=_("may use this model; repeat; without: all")
    )
    parser.add_argument("--priority", choices=PriorityClass.values, help=_("who goes first"))
    parser.add_argument("--days", type=int, help=_("days until it expires"))
    for name, text in _LIMITS.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, metavar="N", help=str(text))


def _create_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("owner", help=_("account that answers for it"))
    parser.add_argument("name", help=_("application that will use it"))
    _settings(parser)


def _change_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("id", type=int)
    parser.add_argument("--name", help=_("another name"))
    _settings(parser)
    parser.add_argument(
        "--no", action="append", choices=[*_LIMITS, "expiry", "model"], help=_("take this limit away; repeat")
    )


def _given(options: Mapping[str, Any]) -> dict[str, Any]:
    found = {name: options[name] for name in _LIMITS if options[name] is not None}
    if options["model"]:
        found["routes"] = options["model"]
    if options["priority"]:
        found["priority"] = options["priority"]
    if options["days"] is not None:
        found["expires_at"] = clock.now() + timedelta(days=options["days"])
    return found


def _create(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    owner = accounts.person(options["owner"])
    row, text = services.create_key(actor, {"name": options["name"], **_given(options)}, owner)
    lines = [_("Copy it now; it is not kept and cannot be shown again:"), text]
    return {**key_dict(row), "key": text}, lines


def _change(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    data = _given(options)
    if options["name"]:
        data["name"] = options["name"]
    columns = {"expiry": "expires_at", "model": "routes"}
    data |= {columns.get(name, name): None for name in options["no"] or []}
    row = services.change_key(actor, selectors.key(options["id"]), data)
    return key_dict(row), [_("%(key)s is changed.") % {"key": row}]


def _revoke(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    row = services.revoke_key(actor, selectors.key(options["id"]))
    return key_dict(row), [_("%(key)s is revoked; gateways refuse it within 2 s.") % {"key": row}]


def _list(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    rows = selectors.keys()
    if options["owner"]:
        rows = rows.filter(owner=accounts.person(options["owner"]))
    columns = {
        "id": _("ID"),
        "owner": _("OWNER"),
        "name": _("NAME"),
        "prefix": _("BEGINS WITH"),
        "state": _("STATE"),
        "priority": _("PRIORITY"),
        "last_used_at": _("LAST USED"),
    }
    return listed([key_dict(row) for row in rows], columns)


class Command(ObjectCommand):
    """Keys of applications."""

    help = "Create, change, revoke and list keys of the gateway."
    verbs = (
        Verb("create", _l("create a key; prints it once"), _create, _create_arguments),
        Verb("change", _l("change limits, models, priority or expiry"), _change, _change_arguments),
        Verb("revoke", _l("end a key"), _revoke, argument("id", type=int)),
        Verb("list", _l("list keys"), _list, argument("--owner", metavar="NAME")),
    )
