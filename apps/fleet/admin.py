"""Nodes, slots and leases in the admin: records that workers write."""

from __future__ import annotations

from django.contrib import admin
from django.contrib.auth.models import User
from django.db.models import Model
from django.http import HttpRequest
from django.template.defaultfilters import filesizeformat
from django.urls import reverse
from django.utils.translation import gettext as _t
from django.utils.translation import gettext_lazy as _
from unfold.admin import TabularInline

from apps.accounts.object_actions import ObjectAction
from apps.accounts.roles import Action
from apps.accounts.service_admin import StatusAdmin
from apps.core.admin import ReadOnlyAdmin
from apps.fleet import services
from apps.fleet.models import Gpu, GpuLease, Node, Toolchain


def _cordon(user: User, row: Node) -> str:
    services.set_cordoned(user, row, True)
    return _t("%(name)s gets no new work.") % {"name": str(row)}


def _uncordon(user: User, row: Node) -> str:
    services.set_cordoned(user, row, False)
    return _t("%(name)s gets new work again.") % {"name": str(row)}


def _probe(user: User, row: Node) -> str:
    services.probe_toolchains(user, row)
    return _t("%(name)s looks at its toolchains.") % {"name": str(row)}


class GpuInline(TabularInline):
    """Slots of a node."""

    model = Gpu
    fields = [
        "index",
        "device",
        "product",
        "uuid",
        "memory_bytes",
        "compute_capability",
        "condition",
        "total_share",
        "price_per_hour",
    ]
    readonly_fields = fields
    extra = 0
    can_delete = False

    def has_add_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Nobody adds slots by hand."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Nobody edits slots by hand."""
        return False


@admin.register(Node)
class NodeAdmin(StatusAdmin, ReadOnlyAdmin):
    """Hosts with workers."""

    list_display = ["hostname", "chip", "node_id", "cordoned", "last_seen"]
    list_filter = ["state", "cordoned"]
    search_fields = ["hostname", "node_id"]
    fieldsets = [
        (_("Node"), {"fields": ["hostname", "node_id", "home", "last_seen", "clock_skew_seconds"]}),
        (_("Set aside"), {"fields": ["cordoned", "cordon_reason", "drain_deadline"]}),
        (_("Versions and labels"), {"fields": ["versions", "labels", "protocol_version", "policy"]}),
        (_("What it has"), {"fields": ["folders", "gpu_report"]}),
    ]
    inlines = [GpuInline]
    object_actions = (
        ObjectAction("cordon", _("Cordon"), Action.OPERATE, _cordon, available=lambda row: not row.cordoned),
        ObjectAction(
            "uncordon", _("Uncordon"), Action.OPERATE, _uncordon, available=lambda row: row.cordoned
        ),
        ObjectAction("probe", _("Probe toolchains"), Action.OPERATE, _probe),
    )

    def page_url(self, row: Node) -> str:
        """The node's page."""
        return reverse("fleet:node", args=[row.node_id])


@admin.register(Gpu)
class GpuAdmin(ReadOnlyAdmin):
    """Slots of all nodes."""

    list_display = ["node", "index", "device", "product", "memory", "total_share", "price_per_hour"]
    list_filter = ["device", "node"]
    list_select_related = ["node"]
    search_fields = ["product", "uuid", "node__hostname"]

    @admin.display(description=_("memory"), ordering="memory_bytes")
    def memory(self, row: Gpu) -> str | None:
        """Bytes for people."""
        return filesizeformat(row.memory_bytes) if row.memory_bytes is not None else None


@admin.register(Toolchain)
class ToolchainAdmin(ReadOnlyAdmin):
    """What nodes build with, as probed."""

    list_display = ["name", "node", "how", "release", "recipes", "problem", "probed_at"]
    list_filter = ["how", "node"]
    list_select_related = ["node"]
    search_fields = ["name", "location", "node__hostname"]


@admin.register(GpuLease)
class GpuLeaseAdmin(ReadOnlyAdmin):
    """Who holds which share of which slot."""

    list_display = ["gpu", "purpose", "holder", "share", "taken_at", "expires_at", "released_at"]
    list_filter = ["purpose", ("released_at", admin.EmptyFieldListFilter)]
    list_select_related = ["gpu__node"]
    search_fields = ["holder_kind"]

    @admin.display(description=_("holder"))
    def holder(self, row: GpuLease) -> str:
        """Kind and id of what holds it."""
        return f"{row.holder_kind} {row.holder_id}"
