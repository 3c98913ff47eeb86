"""Nodes join, beat and are set aside. Leases are in leases.py and exported here."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal, InvalidOperation
from typing import Any

from django.conf import settings
from django.db import connection, transaction
from django.utils.translation import gettext as _

from apps.accounts.roles import Action, require
from apps.core import audit, clock
from apps.core.exceptions import InvalidInput
from apps.core.transitions import amend, transition
from apps.fleet import beats, states
from apps.fleet.devices import DeviceFacts, HostFacts, probe
from apps.fleet.leases import (
    release_expired,
    release_lease,
    release_leases_of,
    renew_lease,
    take_lease,
)
from apps.fleet.models import Gpu, Node
from apps.fleet.policy import PROTOCOL_VERSION
from apps.fleet.selectors import open_leases
from apps.fleet.toolchains import probe_toolchains, record_toolchains

__all__ = [
    "beat",
    "echo",
    "probe_toolchains",
    "record_toolchains",
    "register_node",
    "release_expired",
    "release_lease",
    "release_leases_of",
    "renew_lease",
    "saw_node",
    "set_cordoned",
    "set_price",
    "take_lease",
]

# What the column holds: eight digits before the point.
MOST_PRICE = 100_000_000


def register_node(
    actor: audit.Actor,
    node_id: str | None = None,
    *,
    labels: dict[str, str] | None = None,
    facts: HostFacts | None = None,
) -> Node:
    """Write this host, its versions and its slots into the fleet, and make it ready.

    `node_id` defaults to INFLIGHT_NODE_ID. A cordoned node stays cordoned. Raises InvalidInput where the id is
    missing, or where a second host would share an SQLite database.
    """
    name = node_id or settings.INFLIGHT_NODE_ID
    if not name:
        raise InvalidInput(
            "node_id_missing",
            _("This host has no node id."),
            field="INFLIGHT_NODE_ID",
            remedy=_("Set INFLIGHT_NODE_ID, or start Inflight with make up, which chooses one."),
        )
    found = facts or probe()
    with transaction.atomic():
        _refuse_remote_on_sqlite(name, found.hostname)
        node, created = Node.objects.get_or_create(
            node_id=name, defaults={"state": states.NODE.initial, "hostname": found.hostname}
        )
        changes = _node_columns(found)
        if labels is not None:
            changes["labels"] = labels
        _write_slots(node, found.devices)
        if node.state in states.NODE.sources_of(states.READY) and node.state != states.MAINTENANCE:
            transition(
                node, states.READY, actor=actor, verb="node.joined" if created else "node.ready", **changes
            )
        else:
            amend(node, **changes)
    return node


def beat(node_id: str) -> None:
    """Say in Redis that the node is alive. Raises redis.RedisError."""
    beats.write("beat", node_id)


def echo(node_id: str) -> None:
    """Say in Redis that the node takes tasks from its queue; a task calls this. Raises redis.RedisError."""
    beats.write("echo", node_id)
    node = Node.objects.filter(node_id=node_id, state__in=[states.SUSPECT, states.LOST]).first()
    if node is not None:
        transition(node, states.READY, actor="ctl", verb="node.back", last_seen=clock.now())


def saw_node(node_id: str) -> bool:
    """Write `last_seen`; called every 15 s. False where the node is not registered (any more)."""
    return bool(Node.objects.filter(node_id=node_id).update(last_seen=clock.now()))


def set_cordoned(actor: audit.Actor, node: Node, cordoned: bool) -> Node:
    """Keep new work away from a node, or let it come again. What runs there goes on. Needs the role operator."""
    require(actor, Action.OPERATE)
    with transaction.atomic():
        if amend(node, cordoned=cordoned):
            audit.record(actor, "node.cordoned" if cordoned else "node.uncordoned", node)
    return node


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


def _node_columns(found: HostFacts) -> dict[str, Any]:
    versions = {**found.versions, "cores": str(found.cores), "memory_bytes": str(found.memory_bytes)}
    return {
        "hostname": found.hostname,
        "home": str(settings.INFLIGHT_HOME),
        "versions": versions,
        "protocol_version": PROTOCOL_VERSION,
        "last_seen": clock.now(),
    }


def _write_slots(node: Node, devices: Iterable[DeviceFacts]) -> None:
    """Make the node's slots those found. A slot that is gone stays while somebody still holds it."""
    seen = []
    for device in devices:
        seen.append(device.index)
        Gpu.objects.update_or_create(
            node=node,
            index=device.index,
            defaults={
                "device": device.device,
                "uuid": device.uuid,
                "product": device.product,
                "memory_bytes": device.memory_bytes,
                "compute_capability": device.compute_capability,
            },
        )
    for gone in node.gpus.exclude(index__in=seen):
        if not open_leases(gone).exists():
            gone.delete()


def _refuse_remote_on_sqlite(node_id: str, hostname: str) -> None:
    if connection.vendor != "sqlite":
        return
    other = (
        Node.objects.exclude(node_id=node_id).exclude(hostname=hostname).exclude(state=states.LOST).first()
    )
    if other is not None:
        raise InvalidInput(
            "sqlite_with_remote_node",
            _(
                "This database is an SQLite file and %(host)s already works on it; SQLite serves one machine only."
            )
            % {"host": other.hostname},
            field="DATABASE_URL",
            remedy=_("Use PostgreSQL for several hosts: set DATABASE_URL on each of them."),
        )
