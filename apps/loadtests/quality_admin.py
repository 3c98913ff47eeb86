"""Quality runs, gates and waivers in the admin."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.contrib.auth.models import User
from django.urls import reverse
from django.utils.translation import gettext as _t
from django.utils.translation import gettext_lazy as _
from unfold.admin import ModelAdmin

from apps.accounts.object_actions import ObjectAction
from apps.accounts.roles import Action
from apps.accounts.service_admin import ServiceAdmin, ServiceForm, StatusAdmin
from apps.core.admin import ReadOnlyAdmin
from apps.loadtests import services
from apps.loadtests.models import QualityGate, QualityRun, QualityWaiver
from apps.loadtests.quality import GATE_FIELDS


class QualityGateForm(ServiceForm):
    """What engines of a build profile must keep."""

    class Meta:
        model = QualityGate
        fields = list(GATE_FIELDS)
        help_texts = {
            "name": _("How documents call it."),
            "max_perplexity_ratio": _("The whole 95% interval must keep a bound; empty: not looked at."),
        }


@admin.register(QualityGate)
class QualityGateAdmin(ServiceAdmin):
    """What engines of a build profile must keep against their source."""

    form = QualityGateForm
    list_display = ["name", "build_profile", "max_perplexity_ratio", "max_divergence", "min_top1", "blocking"]
    list_select_related = ["build_profile"]
    search_fields = ["name", "build_profile__name"]
    fieldsets = [
        (_("Gate"), {"fields": ["name", "build_profile", "blocking"]}),
        (_("Bounds"), {"fields": ["max_perplexity_ratio", "max_divergence", "min_top1", "min_agreement"]}),
    ]

    def save_through_service(self, actor: User, form: Any, row: QualityGate | None) -> QualityGate:
        """Create it, or change it."""
        return services.save_quality_gate(actor, {key: form.cleaned_data[key] for key in GATE_FIELDS}, row)

    def delete_through_service(self, actor: User, row: QualityGate) -> None:
        """Delete it."""
        services.delete_quality_gate(actor, row)


def _cancel(user: User, row: QualityRun) -> str:
    services.cancel_quality_run(user, row)
    return _t("Quality run #%(number)s is being cancelled.") % {"number": row.number}


@admin.register(QualityRun)
class QualityRunAdmin(StatusAdmin, ReadOnlyAdmin):
    """Quality runs, as the load worker recorded them."""

    list_display = ["number", "chip", "title", "method", "requested_by", "created_at"]
    list_filter = ["state", "method"]
    list_select_related = ["requested_by"]
    search_fields = ["title", "sentence"]
    fieldsets = [
        (_("Run"), {"fields": ["number", "method", "title", "engine", "baseline", "deployment", "settings"]}),
        (_("Result"), {"fields": ["result", "folder", "log_path"], "classes": ["collapse"]}),
    ]
    object_actions = (
        ObjectAction(
            "cancel", _("Cancel"), Action.OPERATE, _cancel, available=lambda row: row.is_active, danger=True
        ),
    )

    def page_url(self, row: QualityRun) -> str:
        """The run's page."""
        return reverse("loadtests:quality_run", args=[row.number])


@admin.register(QualityWaiver)
class QualityWaiverAdmin(ReadOnlyAdmin, ModelAdmin):
    """Engines that an administrator lets pass; waived on the page Quality."""

    list_display = ["engine", "why", "waived_by", "created_at"]
    list_select_related = ["engine__checkpoint", "waived_by"]
