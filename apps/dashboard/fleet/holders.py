"""Who holds a slot: open and earlier leases with the pages of their holders."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from django.db.models import Q, QuerySet
from django.urls import reverse
from django.utils.translation import gettext as _

from apps.core import clock
from apps.dashboard import words
from apps.engines.models import Build
from apps.fleet.models import GpuLease
from apps.loadtests.models import LoadRun
from apps.serving.models import Instance


@dataclass(frozen=True, slots=True)
class Lease:
    """A lease with the page of its holder; `url` is empty where the holder is gone."""

    row: GpuLease
    title: str
    url: str


def open_leases() -> QuerySet[GpuLease]:
    """Leases that count now, oldest first."""
    runs = Q(expires_at__isnull=True) | Q(expires_at__gt=clock.now())
    return GpuLease.objects.filter(runs, released_at__isnull=True).order_by("taken_at")


def by_slot(gpu_ids: Iterable[int]) -> dict[int, list[Lease]]:
    """Open leases by slot. Four queries."""
    found: dict[int, list[Lease]] = {}
    for lease in titled(open_leases().filter(gpu__in=list(gpu_ids))):
        found.setdefault(lease.row.gpu_id, []).append(lease)
    return found


def titled(rows: Iterable[GpuLease]) -> list[Lease]:
    """The leases with their holders' titles. Three queries besides that of the rows."""
    leases = list(rows)
    builds = Build.objects.in_bulk(_ids(leases, Build.kind))
    servers = Instance.objects.select_related("deployment").in_bulk(_ids(leases, Instance.kind))
    runs = LoadRun.objects.in_bulk(_ids(leases, LoadRun.kind))
    return [_lease(row, builds, servers, runs) for row in leases]


def _ids(rows: Iterable[GpuLease], kind: str) -> list[int]:
    return [row.holder_id for row in rows if row.holder_kind == kind]


def _lease(
    row: GpuLease, builds: dict[Any, Build], servers: dict[Any, Instance], runs: dict[Any, LoadRun]
) -> Lease:
    if row.holder_kind == Build.kind and row.holder_id in builds:
        build = builds[row.holder_id]
        return Lease(
            row, _("build %(build)s") % {"build": build}, reverse("engines:build", args=[build.number])
        )
    if row.holder_kind == Instance.kind and row.holder_id in servers:
        name = servers[row.holder_id].deployment.name
        url = f"{reverse('serving:instances', args=[name])}?instance={servers[row.holder_id].uid}"
        return Lease(row, _("server of %(name)s") % {"name": name}, url)
    if row.holder_kind == LoadRun.kind and row.holder_id in runs:
        number = runs[row.holder_id].number
        return Lease(
            row, _("load run %(number)s") % {"number": number}, reverse("loadtests:run", args=[number])
        )
    return Lease(row, f"{words.kind_word(row.holder_kind)} {row.holder_id}", "")
