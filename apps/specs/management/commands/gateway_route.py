"""`manage.py gateway_route list|delete`; routes are made and changed with `apply`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy as _l

from apps.gateway import selectors, services
from apps.gateway.serialize import route_dict
from apps.specs.management.command import ObjectCommand, Outcome, Verb, argument, listed
from apps.specs.services import Actor


def _delete(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    services.delete_route(actor, selectors.route(options["name"]))
    return {"deleted": options["name"]}, [_("%(name)s was deleted.") % {"name": options["name"]}]


def _list(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    columns = {
        "name": _("NAME"),
        "to": _("TARGETS"),
        "fallback": _("FALLBACK"),
        "requests_per_minute": _("REQUESTS/MIN"),
        "tokens_per_minute": _("TOKENS/MIN"),
        "concurrent_requests": _("AT ONCE"),
    }
    rows = [
        {**route_dict(row), "to": ", ".join(_target(item) for item in row.targets) or row.name}
        for row in selectors.routes()
    ]
    return listed(rows, columns)


def _target(item: Mapping[str, Any]) -> str:
    name = item.get("deployment") or f"external:{item.get('external')}"
    return f"{name} x{item.get('weight', 1.0):g}"


class Command(ObjectCommand):
    """Public model names with settings of their own."""

    help = "List and delete routes of the gateway; make and change them with apply."
    verbs = (
        Verb("list", _l("list routes"), _list),
        Verb("delete", _l("forget a route's settings"), _delete, argument("name")),
    )
