"""What is scraped: the servers of this installation that can answer."""

from __future__ import annotations

from dataclasses import dataclass

from django.conf import settings

from apps.serving import states
from apps.serving.models import Instance
from apps.serving.selectors import endpoint


@dataclass(frozen=True, slots=True)
class Target:
    """One server. `pid` is set only where the process runs on this host; `gpu_uuid` is empty on a CPU slot."""

    instance_id: int
    uid: str
    deployment_id: int
    url: str
    pid: int | None = None
    created: float | None = None
    gpu_uuid: str = ""


def targets() -> list[Target]:
    """Every server whose metrics can be read now; also those that drain. Reads the database."""
    rows = Instance.objects.select_related("deployment", "revision", "node", "gpu").filter(
        state__in=(states.SERVING, states.DRAINING), metrics_port__isnull=False
    )
    return [_target(row) for row in rows]


def _target(row: Instance) -> Target:
    here = row.node is not None and row.node.node_id == settings.INFLIGHT_NODE_ID
    return Target(
        instance_id=row.pk,
        uid=row.uid,
        deployment_id=row.deployment_id,
        url=endpoint(row).metrics_url,
        pid=row.pid if here else None,
        created=row.process_created if here else None,
        gpu_uuid=row.gpu.uuid if row.gpu is not None else "",
    )
