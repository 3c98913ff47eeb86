"""The fleet as placement sees it: every node, its slots and what is free of them, in three queries."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from django.conf import settings
from django.db.models import Sum

from apps.fleet.domain.placement import Host, Slot
from apps.fleet.inputs import policy_of
from apps.fleet.models import Gpu, Node
from apps.fleet.policy import PROTOCOL_VERSION
from apps.fleet.selectors import all_open_leases

Devices = Literal["gpu", "cpu"]


def hosts(nodes: Iterable[int] | None = None) -> list[Host]:
    """All nodes, or those of these ids, with what is free now. Three queries whatever there is."""
    rows = Node.objects.all() if nodes is None else Node.objects.filter(pk__in=list(nodes))
    slots: dict[int, list[Slot]] = {}
    held = _held()
    columns = (
        "pk",
        "node_id",
        "index",
        "device",
        "product",
        "memory_bytes",
        "compute_capability",
        "total_share",
        "condition",
        "mig_parent",
        "nvlink_group",
        "numa_node",
        "uuid",
    )
    gpus = Gpu.objects.order_by("node_id", "index")
    if nodes is not None:
        gpus = gpus.filter(node__in=rows)
    for row in gpus.values_list(*columns, named=True):
        share, purposes = held.get(row.pk, (0, frozenset()))
        slots.setdefault(row.node_id, []).append(
            Slot(
                gpu=row.pk,
                index=row.index,
                device="cpu" if row.device == Gpu.Device.CPU else "gpu",
                product=row.product,
                memory_bytes=row.memory_bytes,
                sm=sm_of(row.compute_capability),
                total=row.total_share,
                free=max(0, row.total_share - share),
                usable=row.condition == Gpu.Condition.OK,
                is_slice=row.mig_parent is not None,
                nvlink_group=row.nvlink_group,
                numa_node=row.numa_node,
                uuid=row.uuid,
                held_for=purposes,
            )
        )
    return [_host(node, tuple(slots.get(node.pk, ()))) for node in rows]


def _held() -> dict[int, tuple[int, frozenset[str]]]:
    """By slot: hundredths that are leased now, and for what."""
    found: dict[int, tuple[int, frozenset[str]]] = {}
    rows = all_open_leases().order_by().values_list("gpu_id", "purpose").annotate(total=Sum("share"))
    for gpu, purpose, total in rows:
        share, purposes = found.get(gpu, (0, frozenset()))
        found[gpu] = (share + int(total or 0), purposes | {purpose})
    return found


def _host(node: Node, slots: tuple[Slot, ...]) -> Host:
    policy = policy_of(node.policy)
    return Host(
        node=node.pk,
        node_id=node.node_id,
        name=node.hostname or node.node_id,
        state=node.state,
        cordoned=node.cordon_reason if node.cordoned else None,
        speaks=None if node.protocol_version == PROTOCOL_VERSION else node.protocol_version,
        purposes=frozenset(policy.purposes),
        share_gpus=policy.share_gpus,
        labels={str(key): str(value) for key, value in node.labels.items()},
        versions={str(key): str(value) for key, value in node.versions.items()},
        slots=slots,
        here=node.node_id == settings.INFLIGHT_NODE_ID,
    )


def sm_of(compute_capability: str) -> int | None:
    """9.0 as 90; null where it is not known."""
    digits = compute_capability.replace(".", "")
    return int(digits) if digits.isdigit() else None
