"""`manage.py node cordon|uncordon|list`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy as _l

from apps.fleet import selectors, services
from apps.fleet.serialize import node_dict
from apps.specs.management.command import ObjectCommand, Outcome, Verb, argument, listed
from apps.specs.services import Actor


def _cordon(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    row = services.set_cordoned(actor, selectors.node(options["node_id"]), True)
    return node_dict(row), [_("%(name)s gets no new work.") % {"name": str(row)}]


def _uncordon(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    row = services.set_cordoned(actor, selectors.node(options["node_id"]), False)
    return node_dict(row), [_("%(name)s gets new work again.") % {"name": str(row)}]


def _list(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    columns = {
        "node_id": _("ID"),
        "hostname": _("HOST"),
        "state": _("STATE"),
        "cordoned": _("CORDONED"),
        "last_seen": _("LAST SEEN"),
    }
    return listed([node_dict(row) for row in selectors.nodes()], columns)


class Command(ObjectCommand):
    """Hosts with workers."""

    help = "Cordon, uncordon and list nodes."
    verbs = (
        Verb("cordon", _l("keep new work away from a node"), _cordon, argument("node_id")),
        Verb("uncordon", _l("let new work come to a node again"), _uncordon, argument("node_id")),
        Verb("list", _l("list nodes"), _list),
    )
