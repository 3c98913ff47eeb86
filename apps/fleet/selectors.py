"""Reading nodes, slots and leases."""

from __future__ import annotations

from datetime import datetime

from django.conf import settings
from django.db.models import Q, QuerySet, Sum
from django.utils.translation import gettext as _

from apps.core import database_time
from apps.core.exceptions import NotFound
from apps.fleet import beats, states
from apps.fleet.models import Gpu, GpuLease, Node
from apps.fleet.policy import PROTOCOL_VERSION


def nodes() -> QuerySet[Node]:
    """All nodes with their slots and toolchains."""
    return Node.objects.prefetch_related("gpus", "toolchains")


def node(node_id: str) -> Node:
    """One node by its id. Raises NotFound."""
    found = nodes().filter(node_id=node_id).first()
    if found is None:
        raise NotFound(
            "node_unknown",
            _("There is no node %(id)s.") % {"id": node_id},
            remedy=_("Start its control worker, or run manage.py join on that host."),
        )
    return found


def slot(node_id: str, index: int) -> Gpu:
    """One slot of a node. Raises NotFound."""
    found = Gpu.objects.select_related("node").filter(node__node_id=node_id, index=index).first()
    if found is None:
        raise NotFound(
            "slot_unknown",
            _("Node %(id)s has no slot %(index)s.") % {"id": node_id, "index": index},
            remedy=_("Look at the slots on the page of the fleet."),
        )
    return found


def local_node() -> Node | None:
    """The node of this host and home, or None before it has joined."""
    return nodes().filter(node_id=settings.INFLIGHT_NODE_ID).first() if settings.INFLIGHT_NODE_ID else None


def slots_for_work() -> list[Gpu]:
    """Usable slots of nodes that are ready, not cordoned and speak our protocol, this host's first."""
    found = Gpu.objects.filter(
        node__state=states.READY,
        node__cordoned=False,
        node__protocol_version=PROTOCOL_VERSION,
        condition=Gpu.Condition.OK,
    ).select_related("node")
    return sorted(
        found, key=lambda gpu: (gpu.node.node_id != settings.INFLIGHT_NODE_ID, gpu.node_id, gpu.index)
    )


def all_open_leases(now: datetime | None = None) -> QuerySet[GpuLease]:
    """Leases of the whole fleet that count now: neither released nor run out, by the database's clock."""
    moment = now or database_time.now()
    runs = Q(expires_at__isnull=True) | Q(expires_at__gt=moment)
    return GpuLease.objects.filter(runs, released_at__isnull=True)


def open_leases(gpu: Gpu, now: datetime | None = None) -> QuerySet[GpuLease]:
    """Leases on one slot that count now."""
    return all_open_leases(now).filter(gpu=gpu)


def free_share(gpu: Gpu, now: datetime | None = None) -> int:
    """Hundredths of the slot that nobody holds."""
    taken = open_leases(gpu, now).aggregate(total=Sum("share"))["total"] or 0
    return max(0, gpu.total_share - int(taken))


def last_beat(node_id: str) -> beats.Ages:
    """Ages of a node's beat and echo. Raises redis.RedisError where Redis is gone."""
    return beats.ages([node_id])[node_id]


def earlier_leases(gpu: Gpu) -> QuerySet[GpuLease]:
    """Leases on a slot that were given back, the newest first."""
    return GpuLease.objects.filter(gpu=gpu, released_at__isnull=False).order_by("-released_at")
