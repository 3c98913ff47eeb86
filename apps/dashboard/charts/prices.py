"""What a deployment costs per hour: the slots that its servers hold, each by the share that is held."""

from __future__ import annotations

from dataclasses import dataclass

from apps.fleet.models import GpuLease
from apps.serving.models import Deployment, Instance


@dataclass(frozen=True, slots=True)
class Price:
    """Price per hour in the fleet's currency; None where a slot has none, `missing` names those slots."""

    per_hour: float | None
    missing: tuple[str, ...] = ()


def of(deployment: Deployment) -> Price:
    """Price of the slots that are held now; None also where nothing is held. Two queries."""
    servers = Instance.objects.filter(deployment=deployment).exclude(state__in=("gone", "failed"))
    leases = list(
        GpuLease.objects.filter(
            holder_kind=Instance.kind,
            holder_id__in=list(servers.values_list("pk", flat=True)),
            released_at__isnull=True,
        ).select_related("gpu__node")
    )
    missing = tuple(sorted({str(lease.gpu) for lease in leases if lease.gpu.price_per_hour is None}))
    if missing or not leases:
        return Price(None, missing)
    return Price(
        sum(float(lease.gpu.price_per_hour or 0) * lease.share / lease.gpu.total_share for lease in leases)
    )
