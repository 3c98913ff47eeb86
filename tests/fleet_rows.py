"""A fleet of rows without a process: nodes with GPUs, deployments whose instances hold them."""

from __future__ import annotations

from dataclasses import dataclass

from apps.core import clock
from apps.fleet.models import Gpu, GpuLease, Node
from apps.fleet.policy import PROTOCOL_VERSION
from apps.serving import states
from apps.serving.models import Deployment, Instance, Revision
from tests import objects

GIB = 2**30


@dataclass(frozen=True, slots=True)
class Fleet:
    """What was made; the last deployment lacks one server, for which there is a free GPU."""

    nodes: list[Node]
    deployments: list[Deployment]


def many_nodes(count: int, gpus: int = 8) -> list[Node]:
    """Ready nodes; GPUs of two NVLink groups each."""
    moment = clock.now()
    Node.objects.bulk_create(
        [
            Node(
                node_id=f"sim-{number:04}",
                hostname=f"sim-{number:04}.example",
                home="/srv/inflight",
                state="ready",
                labels={"rack": str(number % 25)},
                versions={"driver": "580.1", "memory_bytes": str(512 * GIB)},
                protocol_version=PROTOCOL_VERSION,
                last_seen=moment,
            )
            for number in range(count)
        ]
    )
    nodes = list(Node.objects.filter(node_id__startswith="sim-").order_by("node_id"))
    Gpu.objects.bulk_create(
        [
            Gpu(
                node=node,
                index=index,
                product="NVIDIA H200",
                uuid=f"GPU-{node.pk}-{index}",
                memory_bytes=141 * GIB,
                compute_capability="9.0",
                nvlink_group=4 * (index // 4),
                numa_node=index // 4,
            )
            for node in nodes
            for index in range(gpus)
        ],
        batch_size=500,
    )
    return nodes


def many_servers(nodes: list[Node], servers: int, per_deployment: int = 8) -> list[Deployment]:
    """Ready deployments whose servers hold a free GPU each; of the last one a server is missing."""
    slots = list(Gpu.objects.filter(node__in=nodes, leases__isnull=True).order_by("index", "node_id"))
    known = Deployment.objects.count()
    deployments = []
    rows: list[Instance] = []
    for number in range(known, known + servers // per_deployment):
        deployment = objects.deployment(
            f"model-{number:04}", replicas=per_deployment, placement={"device": "gpu"}
        )
        revision = objects.revision(deployment)
        Revision.objects.filter(pk=revision.pk).update(replicas=per_deployment, placement={"device": "gpu"})
        deployments.append(deployment)
        for replica in range(per_deployment):
            slot = slots[len(rows)]
            rows.append(
                Instance(
                    deployment=deployment,
                    revision=revision,
                    uid=f"i-sim{number:04}-{replica}",
                    replica=replica,
                    node_id=slot.node_id,
                    gpu=slot,
                    state=states.SERVING,
                    serving_since=clock.now(),
                    http_port=20_000,
                    grpc_port=20_001,
                    metrics_port=20_002,
                    placement={"why": "least loaded", "gpus": [{"index": slot.index, "uuid": slot.uuid}]},
                )
            )
        Deployment.objects.filter(pk=deployment.pk).update(
            state=states.READY, desired=Deployment.Desired.RUNNING, active_revision=revision
        )
    rows.pop()
    Instance.objects.bulk_create(rows, batch_size=500)
    kept = Instance.objects.filter(deployment__in=deployments)
    GpuLease.objects.bulk_create(
        [
            GpuLease(
                gpu_id=row.gpu_id, purpose="serve", holder_kind=Instance.kind, holder_id=row.pk, share=100
            )
            for row in kept
            if row.gpu_id is not None
        ],
        batch_size=500,
    )
    return deployments


def fleet(nodes: int, servers: int, gpus: int = 8) -> Fleet:
    """So many nodes and servers."""
    made = many_nodes(nodes, gpus)
    return Fleet(made, many_servers(made, servers))
