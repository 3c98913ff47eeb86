"""A host writes itself into the fleet: when its control worker starts, by `manage.py join`, and as it changes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from django.conf import settings
from django.db import connection, transaction
from django.utils.translation import gettext as _

from apps.core import audit, database_time
from apps.core.exceptions import InvalidInput
from apps.core.transitions import amend, transition
from apps.fleet import states
from apps.fleet.devices import DeviceFacts, HostFacts, probe
from apps.fleet.inputs import check_labels
from apps.fleet.models import Gpu, Node
from apps.fleet.policy import PROTOCOL_VERSION
from apps.fleet.selectors import open_leases

STALE_NOTE = "The driver did not tell of it at the last look; what was known of it before is kept."
GONE_NOTE = "It is not there any more, and somebody still holds it."
# Columns of a slot that a look at the host sets.
_FOUND = (
    "device",
    "uuid",
    "product",
    "memory_bytes",
    "compute_capability",
    "condition",
    "condition_note",
    "unified_memory",
    "pci_bus_id",
    "mig_parent",
    "mig_profile",
    "nvlink_group",
    "numa_node",
)


def register_node(
    actor: audit.Actor,
    node_id: str | None = None,
    *,
    labels: Mapping[str, str] | None = None,
    facts: HostFacts | None = None,
) -> Node:
    """Write this host, its versions, folders and slots into the fleet, and make it ready.

    `node_id` defaults to INFLIGHT_NODE_ID; `labels` replace those it has, null keeps them. A cordoned node stays
    cordoned, one in maintenance stays there. Raises InvalidInput where the id is missing, a label is no word, or a
    second host would share an SQLite database.
    """
    name = node_id or settings.INFLIGHT_NODE_ID
    if not name:
        raise InvalidInput(
            "node_id_missing",
            _("This host has no node id."),
            field="INFLIGHT_NODE_ID",
            remedy=_("Set INFLIGHT_NODE_ID, or start Inflight with make up, which chooses one."),
        )
    checked = check_labels(labels) if labels is not None else None
    found = facts or probe()
    with transaction.atomic():
        _refuse_remote_on_sqlite(name, found.hostname)
        node, created = Node.objects.get_or_create(
            node_id=name, defaults={"state": states.NODE.initial, "hostname": found.hostname}
        )
        changes = _columns(found)
        if checked is not None:
            changes["labels"] = checked
        write_slots(node, found.devices, found.keep_known)
        if node.state in states.NODE.sources_of(states.READY) and node.state != states.MAINTENANCE:
            transition(
                node, states.READY, actor=actor, verb="node.joined" if created else "node.ready", **changes
            )
        else:
            amend(node, **changes)
    return node


def record_facts(node_id: str, facts: HostFacts | None = None) -> bool:
    """Write what this host has now, where it differs from its rows. False where nothing does, or it never joined.

    Called every minute by the control worker: GPUs fall off the bus, are cut into slices, come back.
    """
    node = Node.objects.prefetch_related("gpus").filter(node_id=node_id).first()
    if node is None:
        return False
    found = facts or probe()
    columns = _columns(found)
    Node.objects.filter(pk=node.pk).update(folders=columns["folders"])
    for volatile in ("last_seen", "folders", "protocol_version", "home"):
        columns.pop(volatile)
    same = all(getattr(node, name) == value for name, value in columns.items())
    if same and (found.keep_known or _same_slots(list(node.gpus.all()), found.devices)):
        return False
    with transaction.atomic():
        write_slots(node, found.devices, found.keep_known)
        amend(node, **columns)
        problem = found.report.get("status") if found.report else None
        audit.record("ctl", "node.facts", node, detail={"gpus": problem, "slots": len(found.devices)})
    return True


def saw_node(node_id: str) -> bool:
    """Write `last_seen` and the clock's skew; called every 15 s. False where the node is not registered (any more).

    The time is the database's, so that no host's clock decides. No disk is touched: one that hangs must not stop
    the heartbeat.
    """
    skew = round(database_time.skew_seconds(), 3)
    rows = Node.objects.filter(node_id=node_id)
    return bool(rows.update(last_seen=database_time.now(), clock_skew_seconds=skew))


def _columns(found: HostFacts) -> dict[str, Any]:
    versions = {**found.versions, "cores": str(found.cores), "memory_bytes": str(found.memory_bytes)}
    return {
        "hostname": found.hostname,
        "home": str(settings.INFLIGHT_HOME),
        "versions": versions,
        "protocol_version": PROTOCOL_VERSION,
        "folders": [folder.as_dict() for folder in found.folders],
        "gpu_report": found.report,
        "last_seen": database_time.now(),
    }


def write_slots(node: Node, devices: Iterable[DeviceFacts], keep_known: bool = False) -> None:
    """Make the node's slots those found.

    A slot that is gone stays, marked stale, while somebody holds it, and also where the driver said so little that
    its silence proves nothing (`keep_known`); then no CPU slot is made of a host that has GPUs.
    """
    found = list(devices)
    had_gpus = node.gpus.filter(device=Gpu.Device.GPU).exists()
    if keep_known and had_gpus:
        found = [device for device in found if device.device == Gpu.Device.GPU]
    seen = [device.index for device in found]
    for device in found:
        Gpu.objects.update_or_create(
            node=node, index=device.index, defaults={name: getattr(device, name) for name in _FOUND}
        )
    for gone in node.gpus.exclude(index__in=seen):
        if keep_known:
            _mark(gone, STALE_NOTE)
        elif open_leases(gone).exists():
            _mark(gone, GONE_NOTE)
        else:
            gone.delete()


def _mark(slot: Gpu, note: str) -> None:
    Gpu.objects.filter(pk=slot.pk).update(condition=Gpu.Condition.STALE, condition_note=note)


def _same_slots(rows: list[Gpu], found: Iterable[DeviceFacts]) -> bool:
    there = {row.index: tuple(getattr(row, name) for name in _FOUND) for row in rows}
    return there == {slot.index: tuple(getattr(slot, name) for name in _FOUND) for slot in found}


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
