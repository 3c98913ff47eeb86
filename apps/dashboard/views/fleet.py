"""Fleet: nodes with their slots, who holds them, toolchains, versions; cordon and uncordon."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.db.models import Q
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils.translation import gettext as _

from apps.accounts.roles import Action
from apps.core import clock
from apps.dashboard import lists, pages
from apps.dashboard.access import person
from apps.dashboard.facts import KeyValue
from apps.dashboard.pages import action, page
from apps.engines.models import Build
from apps.fleet import beats, selectors, services
from apps.fleet.models import Gpu, GpuLease, Node, Toolchain
from apps.realtime.redis_clients import REDIS_ERRORS
from apps.serving.models import Instance

NODES_SHOWN = 20


@dataclass(frozen=True, slots=True)
class Lease:
    """A lease with the page of its holder."""

    row: GpuLease
    title: str
    url: str


@dataclass(frozen=True, slots=True)
class Slot:
    """A slot with the leases on it; `free` is in hundredths."""

    gpu: Gpu
    leases: list[Lease]
    free: int


@dataclass(frozen=True, slots=True)
class Host:
    """A node as the page shows it. Ages are seconds, None where Redis does not answer or knows of no beat."""

    node: Node
    slots: list[Slot]
    beat: float | None
    echo: float | None
    versions: list[KeyValue]
    toolchains: list[Toolchain]
    probing: bool


@page(Action.VIEW)
def fleet(request: HttpRequest) -> HttpResponse:
    """All nodes."""
    shown = lists.page_of(request, selectors.nodes(), NODES_SHOWN)
    context = {"title": _("Fleet"), "here": "fleet", "page": shown, "hosts": _hosts(list(shown))}
    return render(request, "pages/fleet.html", context)


def _hosts(nodes: list[Node]) -> list[Host]:
    leases = _leases(nodes)
    try:
        ages = beats.ages([node.node_id for node in nodes])
    except REDIS_ERRORS:
        ages = {}
    unknown = beats.Ages(None, None)
    return [
        Host(
            node=node,
            slots=[_slot(gpu, leases.get(gpu.pk, [])) for gpu in node.gpus.all()],
            beat=ages.get(node.node_id, unknown).beat,
            echo=ages.get(node.node_id, unknown).echo,
            versions=[
                (key, str(value)) for key, value in sorted(node.versions.items()) if value not in ("", None)
            ],
            toolchains=list(node.toolchains.all()),
            probing=_probing(node),
        )
        for node in nodes
    ]


def _probing(node: Node) -> bool:
    """Whether somebody asked for a probe that the node has not answered yet."""
    asked = node.probe_asked_at
    return asked is not None and (node.probed_at is None or node.probed_at < asked)


def _slot(gpu: Gpu, leases: list[Lease]) -> Slot:
    return Slot(gpu, leases, max(0, gpu.total_share - sum(lease.row.share for lease in leases)))


def _leases(nodes: list[Node]) -> dict[int, list[Lease]]:
    """Open leases by slot, with their holders' titles. Three queries."""
    runs = Q(expires_at__isnull=True) | Q(expires_at__gt=clock.now())
    rows = list(
        GpuLease.objects.filter(runs, gpu__node__in=nodes, released_at__isnull=True).order_by("taken_at")
    )
    builds = Build.objects.in_bulk([row.holder_id for row in rows if row.holder_kind == Build.kind])
    servers = Instance.objects.select_related("deployment").in_bulk(
        [row.holder_id for row in rows if row.holder_kind == Instance.kind]
    )
    found: dict[int, list[Lease]] = {}
    for row in rows:
        found.setdefault(row.gpu_id, []).append(_lease(row, builds, servers))
    return found


def _lease(row: GpuLease, builds: dict[Any, Build], servers: dict[Any, Instance]) -> Lease:
    if row.holder_kind == Build.kind and row.holder_id in builds:
        build = builds[row.holder_id]
        return Lease(
            row, _("build %(build)s") % {"build": build}, reverse("engines:build", args=[build.number])
        )
    if row.holder_kind == Instance.kind and row.holder_id in servers:
        name = servers[row.holder_id].deployment.name
        return Lease(row, _("server of %(name)s") % {"name": name}, reverse("serving:instances", args=[name]))
    return Lease(row, f"{row.holder_kind} {row.holder_id}", "")


@action(Action.OPERATE)
def cordon(request: HttpRequest, node_id: str) -> HttpResponse:
    """Take no new work on a node."""
    node = services.set_cordoned(person(request), selectors.node(node_id), True)
    return pages.done(request, _("%(node)s takes no new work.") % {"node": node}, to=reverse("fleet:fleet"))


@action(Action.OPERATE)
def uncordon(request: HttpRequest, node_id: str) -> HttpResponse:
    """Take new work again."""
    node = services.set_cordoned(person(request), selectors.node(node_id), False)
    return pages.done(request, _("%(node)s takes work again.") % {"node": node}, to=reverse("fleet:fleet"))


@action(Action.OPERATE)
def probe(request: HttpRequest, node_id: str) -> HttpResponse:
    """Look at a node's toolchains again."""
    node = services.probe_toolchains(person(request), selectors.node(node_id))
    return pages.done(
        request, _("%(node)s looks at its toolchains.") % {"node": node}, to=reverse("fleet:fleet")
    )


@action(Action.CONFIGURE)
def price(request: HttpRequest, node_id: str, index: int) -> HttpResponse:
    """Say what a slot costs per hour."""
    slot = services.set_price(person(request), selectors.slot(node_id, index), request.POST.get("price", ""))
    known = slot.price_per_hour is not None
    text = _("The price of %(slot)s is kept.") if known else _("The price of %(slot)s is not known any more.")
    return pages.done(request, text % {"slot": slot}, to=reverse("fleet:fleet"))
