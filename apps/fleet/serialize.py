"""Nodes and slots as plain JSON values, for pages, API, command line and live topics."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import redis

from apps.fleet import beats
from apps.fleet.models import Gpu, GpuLease, Node, Toolchain
from apps.fleet.selectors import free_share, open_leases


def iso(moment: datetime | None) -> str | None:
    """ISO 8601 text of a row's time, or None."""
    return moment.isoformat() if moment else None


def gpu_dict(gpu: Gpu) -> dict[str, Any]:
    """One slot with who holds it. Shares are hundredths."""
    return {
        "index": gpu.index,
        "device": gpu.device,
        "product": gpu.product,
        "uuid": gpu.uuid or None,
        "memory_bytes": gpu.memory_bytes,
        "compute_capability": gpu.compute_capability or None,
        "total_share": gpu.total_share,
        "price_per_hour": None if gpu.price_per_hour is None else float(gpu.price_per_hour),
        "free_share": free_share(gpu),
        "leases": [lease_dict(lease) for lease in open_leases(gpu)],
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
    try:
        ages = beats.ages([node.node_id])[node.node_id]
    except redis.RedisError:
        ages = beats.Ages(None, None)
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
        "labels": node.labels,
        "versions": node.versions,
        "last_seen": iso(node.last_seen),
        "beat_age_seconds": ages.beat,
        "echo_age_seconds": ages.echo,
        "gpus": [gpu_dict(gpu) for gpu in node.gpus.all()],
        "toolchains": [toolchain_dict(row) for row in node.toolchains.all()],
        "toolchains_problem": node.toolchains_problem or None,
        "toolchains_probed_at": iso(node.probed_at),
    }
