"""REST: nodes."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.http import HttpRequest
from ninja import Query, Router, Schema
from pydantic import ConfigDict, Field

from apps.accounts.rest import REFUSALS, Page, PageQuery, StatusFields, actor_of
from apps.accounts.roles import Action, require
from apps.fleet import selectors, serialize, services
from apps.fleet.setting_aside import DRAIN_SECONDS, MOST_DRAIN_SECONDS

router = Router(tags=["nodes"])
EARLIER_SHOWN = 20


class Lease(Schema):
    """A claim on a share (hundredths) of a slot."""

    purpose: str
    holder_kind: str
    holder_id: int
    attempt: int
    share: int
    taken_at: datetime
    expires_at: datetime | None


class Gpu(Schema):
    """One GPU, or a CPU slot. Shares are hundredths."""

    index: int
    device: str
    product: str
    uuid: str | None
    memory_bytes: int | None
    compute_capability: str | None
    total_share: int
    price_per_hour: float | None = Field(description="What the slot costs; null where nobody has said it.")
    condition: str = Field(
        description="ok; lost: the driver cannot reach it; stale: not seen at the last look."
    )
    condition_note: str | None
    unified_memory: bool = Field(description="It shares the host's memory, which memory_bytes then is.")
    pci_bus_id: str | None
    mig_parent: int | None = Field(description="The GPU of which this is a MIG slice.")
    mig_profile: str | None
    nvlink_group: int | None = Field(description="GPUs of one group reach each other over NVLink.")
    numa_node: int | None
    free_share: int
    leases: list[Lease]


class Toolchain(Schema):
    """A TensorRT-LLM installation of a node, as it was last probed. `sms` are compute capabilities times ten."""

    name: str
    kind: str = Field(description="native, docker or podman")
    location: str = Field(description="Path of its Python, or the image by digest.")
    examples: str
    versions: dict[str, str]
    recipes: list[str] = Field(description="engine, checkpoint: what it can do.")
    gpus: list[dict[str, Any]]
    sms: list[int]
    problem: str | None
    remedy: str | None
    probed_at: datetime | None


class Node(StatusFields):
    """A host with workers. Ages are seconds; null where Redis is gone or knows of no beat."""

    node_id: str
    hostname: str
    home: str
    cordoned: bool
    cordon_reason: str | None
    drain_deadline: datetime | None = Field(description="Servers of a node in maintenance end then.")
    labels: dict[str, Any]
    policy: dict[str, Any]
    versions: dict[str, Any]
    protocol_version: int
    protocol_differs: bool = Field(description="Its workers are of another release: it drains.")
    folders: list[dict[str, Any]]
    gpu_report: dict[str, Any] | None = Field(description="What its driver said last.")
    clock_skew_seconds: float | None = Field(description="Its clock less the database's; decides nothing.")
    clock_is_off: bool
    last_seen: datetime | None
    beat_age_seconds: float | None
    echo_age_seconds: float | None
    gpus: list[Gpu]
    toolchains: list[Toolchain]
    toolchains_problem: str | None
    toolchains_probed_at: datetime | None


@router.get("/nodes", response={200: Page[Node], **REFUSALS}, operation_id="list_nodes")
def list_nodes(request: HttpRequest, page: Query[PageQuery]) -> dict[str, Any]:
    """Every node with its slots."""
    require(actor_of(request), Action.VIEW)
    rows = selectors.nodes()
    shown = list(rows[page.offset : page.offset + page.limit])
    items = serialize.node_dicts(shown)
    return {"items": items, "count": rows.count(), "limit": page.limit, "offset": page.offset}


@router.get("/nodes/{node_id}", response={200: Node, **REFUSALS}, operation_id="get_node")
def get_node(request: HttpRequest, node_id: str) -> dict[str, Any]:
    """One node."""
    require(actor_of(request), Action.VIEW)
    return serialize.node_dict(selectors.node(node_id))


class Reason(Schema):
    """Why a node is set aside; shown where something waits because of it."""

    model_config = ConfigDict(extra="forbid")

    reason: str = Field("", max_length=300)


class Maintenance(Reason):
    """How long servers that find no other place may stay."""

    drain_seconds: int = Field(DRAIN_SECONDS, ge=0, le=MOST_DRAIN_SECONDS)


@router.post("/nodes/{node_id}/cordon", response={200: Node, **REFUSALS}, operation_id="cordon_node")
def cordon_node(request: HttpRequest, node_id: str, body: Reason | None = None) -> dict[str, Any]:
    """Keep new work away from a node; what runs there goes on."""
    actor, reason = actor_of(request), body.reason if body is not None else ""
    return serialize.node_dict(services.set_cordoned(actor, selectors.node(node_id), True, reason))


@router.post(
    "/nodes/{node_id}/maintenance", response={200: Node, **REFUSALS}, operation_id="start_maintenance"
)
def start_maintenance(request: HttpRequest, node_id: str, body: Maintenance | None = None) -> dict[str, Any]:
    """Empty a node: no new work, each server moves to another node before it ends here."""
    asked = body or Maintenance(reason="", drain_seconds=DRAIN_SECONDS)
    node = services.start_maintenance(
        actor_of(request), selectors.node(node_id), asked.reason, asked.drain_seconds
    )
    return serialize.node_dict(node)


@router.delete(
    "/nodes/{node_id}/maintenance", response={200: Node, **REFUSALS}, operation_id="end_maintenance"
)
def end_maintenance(request: HttpRequest, node_id: str) -> dict[str, Any]:
    """Let work come to a node in maintenance again."""
    return serialize.node_dict(services.end_maintenance(actor_of(request), selectors.node(node_id)))


@router.put("/nodes/{node_id}/labels", response={200: Node, **REFUSALS}, operation_id="set_node_labels")
def set_node_labels(request: HttpRequest, node_id: str, labels: dict[str, str]) -> dict[str, Any]:
    """Say what a node is, for placement. The body replaces the labels that it had."""
    return serialize.node_dict(services.set_labels(actor_of(request), selectors.node(node_id), labels))


@router.put("/nodes/{node_id}/policy", response={200: Node, **REFUSALS}, operation_id="set_node_policy")
def set_node_policy(request: HttpRequest, node_id: str, policy: dict[str, Any]) -> dict[str, Any]:
    """Say what Inflight may do with the host: purposes, allow_old_triton, share_gpus, mps_pipe_directory."""
    return serialize.node_dict(services.set_policy(actor_of(request), selectors.node(node_id), policy))


@router.delete("/nodes/{node_id}", response={204: None, **REFUSALS}, operation_id="forget_node")
def forget_node(request: HttpRequest, node_id: str) -> tuple[int, None]:
    """Remove a node that will not come back."""
    services.forget_node(actor_of(request), selectors.node(node_id))
    return 204, None


@router.post("/nodes/{node_id}/uncordon", response={200: Node, **REFUSALS}, operation_id="uncordon_node")
def uncordon_node(request: HttpRequest, node_id: str) -> dict[str, Any]:
    """Let new work come to a node again."""
    require(actor_of(request), Action.OPERATE)
    return serialize.node_dict(services.set_cordoned(actor_of(request), selectors.node(node_id), False))


@router.post("/nodes/{node_id}/probe", response={200: Node, **REFUSALS}, operation_id="probe_node")
def probe_node(request: HttpRequest, node_id: str) -> dict[str, Any]:
    """Ask the node to look at its toolchains again; `toolchains_probed_at` moves when it has."""
    node = services.probe_toolchains(actor_of(request), selectors.node(node_id))
    return serialize.node_dict(node)


class Price(Schema):
    """What a slot costs per hour, in one currency for the whole fleet; null: not known."""

    price_per_hour: float | None


class EarlierLease(Lease):
    """A claim that was given back."""

    released_at: datetime


class Slot(Gpu):
    """A slot with who held it before. Its figures over time: /telemetry/series?scope=gpu&name=UUID."""

    earlier: list[EarlierLease] = Field(description="The newest 20 that were given back, newest first.")


@router.get("/nodes/{node_id}/slots/{index}", response={200: Slot, **REFUSALS}, operation_id="get_slot")
def get_slot(request: HttpRequest, node_id: str, index: int) -> dict[str, Any]:
    """One slot: what it is, who holds it now, who held it before."""
    require(actor_of(request), Action.VIEW)
    slot = selectors.slot(node_id, index)
    earlier = [
        {**serialize.lease_dict(row), "released_at": serialize.iso(row.released_at)}
        for row in selectors.earlier_leases(slot)[:EARLIER_SHOWN]
    ]
    return {**serialize.gpu_dict(slot), "earlier": earlier}


@router.put(
    "/nodes/{node_id}/slots/{index}/price", response={200: Gpu, **REFUSALS}, operation_id="set_slot_price"
)
def set_slot_price(request: HttpRequest, node_id: str, index: int, price: Price) -> dict[str, Any]:
    """Say what a slot costs, so that cost per token can be computed."""
    slot = selectors.slot(node_id, index)
    return serialize.gpu_dict(services.set_price(actor_of(request), slot, price.price_per_hour))
