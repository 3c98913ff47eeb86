"""One node and one of its slots: facts, who holds what, what runs there, figures over time, what happened."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils.translation import gettext as _

from apps.accounts.roles import Action
from apps.core.models import AuditEntry
from apps.dashboard import formats, lists
from apps.dashboard.charts import hardware
from apps.dashboard.charts.panels import Panel
from apps.dashboard.facts import KeyValue
from apps.dashboard.fleet import holders
from apps.dashboard.fleet import map as fleet_map
from apps.dashboard.pages import page
from apps.engines.models import Build
from apps.engines.states import BUILD
from apps.fleet import beats, selectors
from apps.fleet.inputs import policy_of
from apps.fleet.models import Gpu, GpuLease, Node
from apps.loadtests.models import LoadRun
from apps.loadtests.states import LOADRUN
from apps.realtime.redis_clients import REDIS_ERRORS
from apps.serving import selectors as serving
from apps.serving.models import Instance
from apps.telemetry.history import Scope

HAPPENED_SHOWN = 30
HOLDERS_SHOWN = 20
BUILDS_SHOWN = 5


@page(Action.VIEW)
def node(request: HttpRequest, node_id: str) -> HttpResponse:
    """A node: what it is, what its slots do, what runs there."""
    row = selectors.node(node_id)
    host = fleet_map.hosts([row], "use")[0]
    happened = AuditEntry.objects.filter(object_type=Node.kind, object_id=str(row.pk))
    context = {
        "title": str(row),
        "here": "fleet",
        "node": row,
        "host": host,
        "slots": host.slots,
        "probing": _probing(row),
        "beats": _beats(row),
        "versions": _versions(row),
        "policy": policy_of(row.policy),
        "policy_purposes": GpuLease.Purpose.choices,
        "instances": Instance.objects.filter(node=row)
        .exclude(state__in=serving.NO_PROCESS)
        .select_related("deployment", "revision", "gpu"),
        "jobs": _jobs(row),
        "happened": lists.page_of(request, happened, HAPPENED_SHOWN),
        **hardware.context(
            Scope("node", row.pk), hardware.NODE, request.GET, reverse("fleet:node_data", args=[node_id])
        ),
    }
    return render(request, "pages/fleet_node.html", context)


@page(Action.VIEW)
def node_data(request: HttpRequest, node_id: str) -> HttpResponse:
    """The node's curves as JSON."""
    row = selectors.node(node_id)
    return JsonResponse(hardware.data(Scope("node", row.pk), hardware.NODE, request.GET))


@page(Action.VIEW)
def slot(request: HttpRequest, node_id: str, index: int) -> HttpResponse:
    """A GPU, a slice of one, or a CPU slot: who holds it, what it tells, who held it before."""
    row = selectors.slot(node_id, index)
    host = fleet_map.hosts([row.node], "use")[0]
    mine = next(each for each in host.slots if each.gpu.pk == row.pk)
    context = {
        "title": f"{row.node} {mine.name}",
        "here": "fleet",
        "node": row.node,
        "slot": mine,
        "facts": _facts(row),
        "siblings": [each for each in host.slots if each.gpu.pk != row.pk and _same_gpu(each.gpu, row)],
        "earlier": holders.titled(selectors.earlier_leases(row)[:HOLDERS_SHOWN]),
        **hardware.context(_scope(row), _panels(row), request.GET, _data_url(row)),
    }
    return render(request, "pages/fleet_gpu.html", context)


@page(Action.VIEW)
def slot_data(request: HttpRequest, node_id: str, index: int) -> HttpResponse:
    """The slot's curves as JSON."""
    row = selectors.slot(node_id, index)
    return JsonResponse(hardware.data(_scope(row), _panels(row), request.GET))


def _scope(row: Gpu) -> Scope:
    # A CPU slot is the host's, and the host tells of itself.
    return Scope("gpu", row.pk) if row.device == Gpu.Device.GPU else Scope("node", row.node_id)


def _panels(row: Gpu) -> Sequence[Panel]:
    return hardware.GPU if row.device == Gpu.Device.GPU else hardware.NODE


def _data_url(row: Gpu) -> str:
    return reverse("fleet:slot_data", args=[row.node.node_id, row.index])


def _same_gpu(other: Gpu, row: Gpu) -> bool:
    """Slices of one GPU, and the GPU that they are slices of."""
    whole = row.index if row.mig_parent is None else row.mig_parent
    return other.mig_parent == whole or (row.mig_parent is not None and other.index == whole)


def _probing(row: Node) -> bool:
    """Whether somebody asked for a probe that the node has not answered yet."""
    asked = row.probe_asked_at
    return asked is not None and (row.probed_at is None or row.probed_at < asked)


def _beats(row: Node) -> beats.Ages:
    try:
        return beats.ages([row.node_id])[row.node_id]
    except REDIS_ERRORS:
        return beats.Ages(None, None)


def _versions(row: Node) -> list[KeyValue]:
    known = {key: value for key, value in row.versions.items() if value not in ("", None)}
    memory = known.pop("memory_bytes", None)
    rows: list[KeyValue] = [(key, str(value)) for key, value in sorted(known.items())]
    if memory is not None and str(memory).isdecimal():
        rows.append((_("memory"), str(formats.memory(float(memory)))))
    return rows


def _jobs(row: Node) -> list[dict[str, Any]]:
    """Builds and load runs that are on their way here, with the page of each."""
    builds = Build.objects.filter(node=row, state__in=BUILD.active).select_related("profile")
    runs = LoadRun.objects.filter(node_id=row.node_id, state__in=LOADRUN.active)
    found = [
        {"row": each, "title": str(each), "url": reverse("engines:build", args=[each.number])}
        for each in builds[:BUILDS_SHOWN]
    ]
    found += [
        {"row": each, "title": str(each), "url": reverse("loadtests:run", args=[each.number])}
        for each in runs[:BUILDS_SHOWN]
    ]
    return found


def _facts(row: Gpu) -> list[KeyValue]:
    """What a slot is; what nobody told is left out."""
    rows: list[KeyValue] = [
        (_("Device"), row.product),
        (_("Memory"), str(formats.memory(row.memory_bytes)) if row.memory_bytes else None),
        (_("Memory is"), _("shared with the host") if row.unified_memory else None),
        (_("Compute capability"), row.compute_capability),
        ("UUID", row.uuid, row.uuid),
        (_("PCI bus id"), row.pci_bus_id),
        (_("NUMA node"), row.numa_node),
        (_("NVLink group"), row.nvlink_group),
        (_("MIG profile"), row.mig_profile),
        (_("Slice of"), None if row.mig_parent is None else f"gpu{row.mig_parent}"),
        (_("Condition"), f"{row.get_condition_display()}. {row.condition_note}".rstrip(". ")),
    ]
    return [entry for entry in rows if entry[1] not in (None, "")]
