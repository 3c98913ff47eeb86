"""Tunings in the admin: records of searches, read only; they are started on their page."""

from __future__ import annotations

from django.contrib import admin
from django.contrib.auth.models import User
from django.urls import reverse
from django.utils.translation import gettext as _t
from django.utils.translation import gettext_lazy as _

from apps.accounts.object_actions import ObjectAction
from apps.accounts.roles import Action
from apps.accounts.service_admin import StatusAdmin
from apps.core.admin import ReadOnlyAdmin
from apps.loadtests import services
from apps.loadtests.tuning_models import Tuning


def _cancel(user: User, row: Tuning) -> str:
    services.cancel_tuning(user, row)
    return _t("Tuning #%(number)s is being cancelled.") % {"number": row.number}


@admin.register(Tuning)
class TuningAdmin(StatusAdmin, ReadOnlyAdmin):
    """Tunings."""

    list_display = ["number", "chip", "target", "winner", "applied_trial", "requested_by", "created_at"]
    list_filter = ["state", "target"]
    list_select_related = ["requested_by"]
    search_fields = ["target", "sentence"]
    fieldsets = [
        (_("Tuning"), {"fields": ["number", "target", "deployment", "seed", "requested_by"]}),
        (_("Search"), {"fields": ["request", "scenario", "space", "base"], "classes": ["collapse"]}),
        (_("Result"), {"fields": ["winner", "report", "applied_trial", "applied_at"]}),
    ]
    object_actions = (
        ObjectAction(
            "cancel",
            _("Cancel"),
            Action.OPERATE,
            _cancel,
            available=lambda row: row.state == "running",
            danger=True,
        ),
    )

    def page_url(self, row: Tuning) -> str:
        """The tuning's page."""
        return reverse("loadtests:tuning", args=[row.number])
