"""Nodes beat and have a price. Joining, setting aside and leases have modules of their own, exported here."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation

from django.db import transaction
from django.utils.translation import gettext as _

from apps.accounts.roles import Action, require
from apps.core import audit, database_time
from apps.core.exceptions import InvalidInput
from apps.core.transitions import transition
from apps.fleet import beats, states
from apps.fleet.join_tokens import create_join_token, redeem_join_token, revoke_join_token
from apps.fleet.leases import (
    release_expired,
    release_lease,
    release_leases_of,
    renew_lease,
    take_lease,
    take_leases,
)
from apps.fleet.models import Gpu, Node
from apps.fleet.registration import record_facts, register_node, saw_node
from apps.fleet.setting_aside import (
    end_maintenance,
    forget_node,
    set_cordoned,
    set_labels,
    set_policy,
    start_maintenance,
)
from apps.fleet.toolchains import probe_toolchains, record_toolchains

__all__ = [
    "beat",
    "create_join_token",
    "echo",
    "end_maintenance",
    "forget_node",
    "probe_toolchains",
    "record_facts",
    "record_toolchains",
    "redeem_join_token",
    "register_node",
    "release_expired",
    "release_lease",
    "release_leases_of",
    "renew_lease",
    "revoke_join_token",
    "saw_node",
    "set_cordoned",
    "set_labels",
    "set_policy",
    "set_price",
    "start_maintenance",
    "take_lease",
    "take_leases",
]

# What the column holds: eight digits before the point.
MOST_PRICE = 100_000_000


def beat(node_id: str) -> None:
    """Say in Redis that the node is alive. Raises redis.RedisError."""
    beats.write("beat", node_id)


def echo(node_id: str) -> None:
    """Say in Redis that the node takes tasks from its queue; a task calls this. Raises redis.RedisError."""
    beats.write("echo", node_id)
    node = Node.objects.filter(node_id=node_id, state__in=[states.SUSPECT, states.LOST]).first()
    if node is not None:
        transition(node, states.READY, actor="ctl", verb="node.back", last_seen=database_time.now())


def set_price(actor: audit.Actor, slot: Gpu, price: object) -> Gpu:
    """Say what a slot costs per hour, in one currency for the whole fleet; None: not known. Needs configure.

    Cost per token is computed from it. Raises InvalidInput for anything but a number from 0 to 99 999 999.
    """
    require(actor, Action.CONFIGURE)
    before = slot.price_per_hour
    slot.price_per_hour = _price(price)
    with transaction.atomic():
        Gpu.objects.filter(pk=slot.pk).update(price_per_hour=slot.price_per_hour)
        change = {"slot": str(slot), "from": _plain(before), "to": _plain(slot.price_per_hour)}
        audit.record(actor, "node.priced", slot.node, detail=change)
    return slot


def _plain(price: Decimal | None) -> str | None:
    return None if price is None else f"{price.normalize():f}"


def _price(given: object) -> Decimal | None:
    text = "" if given is None else str(given).strip().replace(",", ".")
    if not text:
        return None
    try:
        price = Decimal(text)
    except InvalidOperation:
        price = Decimal("NaN")
    if not price.is_finite() or not 0 <= price < MOST_PRICE:
        raise InvalidInput(
            "price_unreadable",
            _("“%(text)s” is no price per hour.") % {"text": text[:40]},
            field="price_per_hour",
            remedy=_("Give a number such as 2.49, or nothing where the price is not known."),
        )
    return price.quantize(Decimal("0.0001"))
