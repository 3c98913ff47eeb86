"""What is scraped: the servers of this installation that can answer."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from django.conf import settings
from django.db.models import QuerySet

from apps.fleet.models import Gpu, Node
from apps.serving import states
from apps.serving.models import Instance
from apps.serving.selectors import endpoint
from apps.telemetry.target import Target

__all__ = ["Address", "Device", "Target", "addresses", "devices", "targets"]


@dataclass(frozen=True, slots=True)
class Device:
    """One GPU of this host."""

    gpu_id: int
    node_id: int
    uuid: str


def targets() -> list[Target]:
    """Every server whose metrics can be read now; also those that drain. Reads the database."""
    return [_target(row) for row in _rows()]


def _rows() -> QuerySet[Instance]:
    return Instance.objects.select_related("deployment", "revision", "node__door", "gpu").filter(
        state__in=(states.SERVING, states.DRAINING), metrics_port__isnull=False
    )


@dataclass(frozen=True, slots=True)
class Address:
    """One server for another scraper."""

    address: str
    uid: str
    deployment: str
    revision: int
    node: str


def addresses() -> list[Address]:
    """Where each server that can answer has its metrics: host and port. Reads the database."""
    return [
        Address(
            urlsplit(endpoint(row).metrics_url).netloc,
            row.uid,
            row.deployment.name,
            row.revision.number,
            row.node.node_id if row.node is not None else "",
        )
        for row in _rows()
    ]


def devices() -> tuple[int | None, list[Device]]:
    """This host's node and its GPUs. Reads the database."""
    rows = Gpu.objects.filter(node__node_id=settings.INFLIGHT_NODE_ID).exclude(uuid="").order_by("index")
    found = [Device(row.pk, row.node_id, row.uuid) for row in rows if row.device == Gpu.Device.GPU]
    node = Node.objects.filter(node_id=settings.INFLIGHT_NODE_ID).values_list("pk", flat=True).first()
    return node, found


def _target(row: Instance) -> Target:
    here = row.node is not None and row.node.node_id == settings.INFLIGHT_NODE_ID
    address = endpoint(row)
    return Target(
        instance_id=row.pk,
        uid=row.uid,
        deployment_id=row.deployment_id,
        url=address.metrics_url,
        pid=row.pid if here else None,
        created=row.process_created if here else None,
        gpu_uuid=row.gpu.uuid if row.gpu is not None else "",
        statistics_url=f"{address.http_url}/v2/models/stats" if here and row.http_port else "",
        secret_path=str(Path(row.folder) / "secret") if here and row.folder else "",
        remote=row.node is not None and not here,
    )
