"""REST: nodes."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.http import HttpRequest
from ninja import Query, Router, Schema
from pydantic import Field

from apps.accounts.rest import REFUSALS, Page, PageQuery, StatusFields, actor_of, page_of
from apps.accounts.roles import Action, require
from apps.fleet import selectors, serialize, services

router = Router(tags=["nodes"])


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
    labels: dict[str, Any]
    versions: dict[str, Any]
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
    return page_of(selectors.nodes(), page, serialize.node_dict)


@router.get("/nodes/{node_id}", response={200: Node, **REFUSALS}, operation_id="get_node")
def get_node(request: HttpRequest, node_id: str) -> dict[str, Any]:
    """One node."""
    require(actor_of(request), Action.VIEW)
    return serialize.node_dict(selectors.node(node_id))


@router.post("/nodes/{node_id}/cordon", response={200: Node, **REFUSALS}, operation_id="cordon_node")
def cordon_node(request: HttpRequest, node_id: str) -> dict[str, Any]:
    """Keep new work away from a node; what runs there goes on."""
    require(actor_of(request), Action.OPERATE)
    return serialize.node_dict(services.set_cordoned(actor_of(request), selectors.node(node_id), True))


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


@router.put(
    "/nodes/{node_id}/slots/{index}/price", response={200: Gpu, **REFUSALS}, operation_id="set_slot_price"
)
def set_slot_price(request: HttpRequest, node_id: str, index: int, price: Price) -> dict[str, Any]:
    """Say what a slot costs, so that cost per token can be computed."""
    slot = selectors.slot(node_id, index)
    return serialize.gpu_dict(services.set_price(actor_of(request), slot, price.price_per_hour))
