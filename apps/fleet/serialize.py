"""Nodes and slots as plain JSON values, for pages, API, command line and live topics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import redis

from apps.fleet import beats
from apps.fleet.inputs import policy_of
from apps.fleet.models import Gpu, GpuLease, Node, Toolchain
from apps.fleet.policy import PROTOCOL_VERSION, SKEW_TOLD_SECONDS
from apps.fleet.selectors import all_open_leases


def iso(moment: datetime | None) -> str | None:
    """ISO 8601 text of a row's time, or None."""
    return moment.isoformat() if moment else None


def gpu_dict(gpu: Gpu, leases: Sequence[GpuLease] | None = None) -> dict[str, Any]:
    """One slot with who holds it; shares are hundredths. `leases`: its open ones where the caller has read them."""
    held = list(all_open_leases().filter(gpu=gpu)) if leases is None else list(leases)
    return {
        "index": gpu.index,
        "device": gpu.device,
        "product": gpu.product,
        "uuid": gpu.uuid or None,
        "memory_bytes": gpu.memory_bytes,
        "compute_capability": gpu.compute_capability or None,
        "total_share": gpu.total_share,
        "price_per_hour": None if gpu.price_per_hour is None else float(gpu.price_per_hour),
        "condition": gpu.condition,
        "condition_note": gpu.condition_note or None,
        "unified_memory": gpu.unified_memory,
        "pci_bus_id": gpu.pci_bus_id or None,
        "mig_parent": gpu.mig_parent,
        "mig_profile": gpu.mig_profile or None,
        "nvlink_group": gpu.nvlink_group,
        "numa_node": gpu.numa_node,
        "free_share": max(0, gpu.total_share - sum(lease.share for lease in held)),
        "leases": [lease_dict(lease) for lease in held],
    }


def lease_dict(lease: GpuLease) -> dict[str, Any]:
    """One open lease."""
    return {
        "purpose": lease.purpose,
        "holder_kind": lease.holder_kind,
        "holder_id": lease.holder_id,
        "attempt": lease.attempt,
        "share": lease.share,
        "taken_at": iso(lease.taken_at),
        "expires_at": iso(lease.expires_at),
    }


def toolchain_dict(row: Toolchain) -> dict[str, Any]:
    """One toolchain as it was last probed. `sms` are compute capabilities times ten."""
    return {
        "name": row.name,
        "kind": row.how,
        "location": row.location,
        "examples": row.examples,
        "versions": row.versions,
        "recipes": row.recipes,
        "gpus": row.gpus,
        "sms": row.sms,
        "problem": row.problem or None,
        "remedy": row.remedy or None,
        "probed_at": iso(row.probed_at),
    }


def node_dict(node: Node) -> dict[str, Any]:
    """One node with its slots. Ages are seconds, null where Redis is gone or knows of no beat."""
    return node_dicts([node])[0]


def node_dicts(nodes: Sequence[Node]) -> list[dict[str, Any]]:
    """Several nodes: one query for their leases and one round trip for their ages, however many there are."""
    try:
        ages = beats.ages([node.node_id for node in nodes])
    except redis.RedisError:
        ages = {}
    leases: dict[int, list[GpuLease]] = {}
    for lease in all_open_leases().filter(gpu__node__in=[node.pk for node in nodes]):
        leases.setdefault(lease.gpu_id, []).append(lease)
    unknown = beats.Ages(None, None)
    return [_node(node, ages.get(node.node_id, unknown), leases) for node in nodes]


def _node(node: Node, ages: beats.Ages, leases: Mapping[int, Sequence[GpuLease]]) -> dict[str, Any]:
    skew = node.clock_skew_seconds
    return {
        "id": node.pk,
        "node_id": node.node_id,
        "hostname": node.hostname,
        "home": node.home,
        "state": node.state,
        "tone": node.tone,
        "reason": node.reason or None,
        "sentence": node.sentence or None,
        "remedy": node.remedy or None,
        "version": node.version,
        "state_since": iso(node.state_since),
        "cordoned": node.cordoned,
        "cordon_reason": node.cordon_reason or None,
        "drain_deadline": iso(node.drain_deadline),
        "labels": node.labels,
        "policy": policy_of(node.policy).model_dump(mode="json"),
        "versions": node.versions,
        "protocol_version": node.protocol_version,
        "protocol_differs": node.protocol_version != PROTOCOL_VERSION,
        "folders": node.folders,
        "gpu_report": node.gpu_report or None,
        "clock_skew_seconds": skew,
        "clock_is_off": skew is not None and abs(skew) > SKEW_TOLD_SECONDS,
        "last_seen": iso(node.last_seen),
        "beat_age_seconds": ages.beat,
        "echo_age_seconds": ages.echo,
        "gpus": [gpu_dict(gpu, leases.get(gpu.pk, ())) for gpu in node.gpus.all()],
        "toolchains": [toolchain_dict(row) for row in node.toolchains.all()],
        "toolchains_problem": node.toolchains_problem or None,
        "toolchains_probed_at": iso(node.probed_at),
    }
