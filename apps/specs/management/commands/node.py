"""`manage.py node cordon|uncordon|maintenance|resume|label|policy|forget|price|probe|list`."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from collections.abc import Mapping
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy as _l

from apps.fleet import selectors, services
from apps.fleet.serialize import gpu_dict, node_dict, node_dicts
from apps.fleet.setting_aside import DRAIN_SECONDS
from apps.specs.management.command import ObjectCommand, Outcome, Verb, argument, listed
from apps.specs.services import Actor


def _cordon(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    row = services.set_cordoned(actor, selectors.node(options["node_id"]), True, options["reason"])
    return node_dict(row), [_("%(name)s gets no new work.") % {"name": str(row)}]


def _uncordon(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    row = services.set_cordoned(actor, selectors.node(options["node_id"]), False)
    return node_dict(row), [_("%(name)s gets new work again.") % {"name": str(row)}]


def _reason_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("node_id")
    parser.add_argument("--reason", default="", help=_("shown where something waits because of it"))


def _maintenance(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    node = selectors.node(options["node_id"])
    row = services.start_maintenance(actor, node, options["reason"], options["drain_seconds"])
    return node_dict(row), [_("%(name)s is in maintenance; its servers move away.") % {"name": str(row)}]


def _maintenance_arguments(parser: ArgumentParser) -> None:
    _reason_arguments(parser)
    parser.add_argument(
        "--drain-seconds",
        default=str(DRAIN_SECONDS),
        help=_("servers that find no other place end after this long; default %(default)s"),
    )


def _resume(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    row = services.end_maintenance(actor, selectors.node(options["node_id"]))
    return node_dict(row), [_("%(name)s takes work again.") % {"name": str(row)}]


def _label(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    row = selectors.node(options["node_id"])
    labels = dict(row.labels)
    for text in options["labels"]:
        key, separator, value = text.partition("=")
        if separator:
            labels[key] = value
        else:
            labels.pop(key.removesuffix("-"), None)
    row = services.set_labels(actor, row, labels)
    told = ", ".join(f"{key}={value}" for key, value in sorted(row.labels.items())) or "-"
    return node_dict(row), [f"{row}: {told}"]


def _label_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("node_id")
    parser.add_argument("labels", nargs="+", metavar="KEY=VALUE", help=_("KEY- takes a label away"))


def _policy(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    row = selectors.node(options["node_id"])
    try:
        given = json.loads(options["policy"])
    except ValueError:
        given = options["policy"]
    row = services.set_policy(actor, row, given)
    return node_dict(row), [f"{row}: {json.dumps(row.policy)}"]


def _policy_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("node_id")
    parser.add_argument("policy", help=_('JSON, for example {"purposes": ["serve"]}; {} for the defaults'))


def _forget(actor: Actor, options: Mapping[str, Any]) -> Outcome:
    row = selectors.node(options["node_id"])
    services.forget_node(actor, row)
    return {"node_id": options["node_id"]}, [_("%(name)s is forgotten.") % {"name": str(row)}]


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
    return listed(node_dicts(list(selectors.nodes())), columns)


class Command(ObjectCommand):
    """Hosts with workers."""

    help = "Set nodes aside, describe, price, probe, forget and list them."
    verbs = (
        Verb("cordon", _l("keep new work away from a node"), _cordon, _reason_arguments),
        Verb("uncordon", _l("let new work come to a node again"), _uncordon, argument("node_id")),
        Verb("maintenance", _l("empty a node"), _maintenance, _maintenance_arguments),
        Verb("resume", _l("let work come to a node in maintenance again"), _resume, argument("node_id")),
        Verb("label", _l("set and take away labels"), _label, _label_arguments),
        Verb("policy", _l("say what Inflight may do with a host"), _policy, _policy_arguments),
        Verb("forget", _l("remove a node that will not come back"), _forget, argument("node_id")),
        Verb("price", _l("say what a slot costs per hour"), _price, _price_arguments),
        Verb("probe", _l("look at its toolchains again"), _probe, argument("node_id")),
        Verb("list", _l("list nodes"), _list),
    )
