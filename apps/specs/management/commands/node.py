"""`manage.py node cordon|uncordon|price|probe|list`."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Mapping
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy as _l

from apps.fleet import selectors, services
from apps.fleet.serialize import gpu_dict, node_dict
from apps.specs.management.command import ObjectCommand, Outcome, Verb, argument, listed
from apps.specs.services import Actor


def _cordon(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    row = services.set_cordoned(actor, selectors.node(options["node_id"]), True)
    return node_dict(row), [_("%(name)s gets no new work.") % {"name": str(row)}]


def _uncordon(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    row = services.set_cordoned(actor, selectors.node(options["node_id"]), False)
    return node_dict(row), [_("%(name)s gets new work again.") % {"name": str(row)}]


def _probe(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    row = services.probe_toolchains(actor, selectors.node(options["node_id"]))
    return node_dict(row), [_("%(name)s was asked to look at its toolchains.") % {"name": str(row)}]


def _price(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    slot = selectors.slot(options["node_id"], options["index"])
    row = gpu_dict(services.set_price(actor, slot, options["price"]))
    shown = "-" if row["price_per_hour"] is None else row["price_per_hour"]
    return row, [_("%(slot)s: price per hour %(price)s") % {"slot": str(slot), "price": shown}]


def _price_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("node_id")
    parser.add_argument("index", type=int, help=_("number of the slot"))
    parser.add_argument("price", nargs="?", help=_("for example 2.49; left out: not known"))


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

    help = "Cordon, uncordon, price, probe and list nodes."
    verbs = (
        Verb("cordon", _l("keep new work away from a node"), _cordon, argument("node_id")),
        Verb("uncordon", _l("let new work come to a node again"), _uncordon, argument("node_id")),
        Verb("price", _l("say what a slot costs per hour"), _price, _price_arguments),
        Verb("probe", _l("look at its toolchains again"), _probe, argument("node_id")),
        Verb("list", _l("list nodes"), _list),
    )
