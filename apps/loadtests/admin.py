"""Load tests, runs and studies in the admin."""

from __future__ import annotations

import json
from typing import Any

from django import forms
from django.contrib import admin
from django.contrib.auth.models import User
from django.urls import reverse
from django.utils.translation import gettext as _t
from django.utils.translation import gettext_lazy as _
from unfold.admin import ModelAdmin
from unfold.widgets import UnfoldAdminTextareaWidget

from apps.accounts.object_actions import ObjectAction
from apps.accounts.roles import Action
from apps.accounts.service_admin import Preview, PreviewPart, ServiceAdmin, ServiceForm, StatusAdmin
from apps.core.admin import ReadOnlyAdmin
from apps.loadtests import inputs, limits, services
from apps.loadtests import quality_admin as quality_admin
from apps.loadtests import tuning_admin as tuning_admin
from apps.loadtests.models import LoadRun, LoadTest, ProductionMark, Study


class LoadTestForm(ServiceForm):
    """A scenario as JSON; the pages have a form for what is usual."""

    service_names = dict.fromkeys(
        ("target", "via", "load", "prompts", "timing", "slo", "seed", "processes"), "scenario"
    )

    scenario = forms.JSONField(
        label=_("Scenario"),
        widget=UnfoldAdminTextareaWidget(attrs={"rows": 24, "spellcheck": "false"}),
        help_text=_("The fields of docs/load-tests.md. What is left out has its default."),
        encoder=None,
    )

    class Meta:
        model = LoadTest
        fields = ["name", "scenario"]
        help_texts = {"name": _("How runs, the API and YAML call it.")}


def _run(user: User, row: LoadTest) -> str:
    run = services.start_run(user, row)
    return _t("Run #%(number)s is queued.") % {"number": run.number}


def _stop(user: User, row: LoadRun) -> str:
    services.stop_run(user, row)
    return _t("Run #%(number)s is being stopped.") % {"number": row.number}


def _cancel(user: User, row: Study) -> str:
    services.cancel_study(user, row)
    return _t("Study #%(number)s is being cancelled.") % {"number": row.number}


@admin.register(LoadTest)
class LoadTestAdmin(ServiceAdmin):
    """Scenarios under a name."""

    form = LoadTestForm
    list_display = ["name", "target", "load", "updated_at"]
    search_fields = ["name"]
    fieldsets = [(_("Load test"), {"fields": ["name", "scenario"]})]
    object_actions = (ObjectAction("run", _("Run"), Action.OPERATE, _run),)

    def save_through_service(self, actor: User, form: Any, row: LoadTest | None) -> LoadTest:
        """Create it, or change it."""
        data = {key: form.cleaned_data[key] for key in ("name", "scenario")}
        return services.save_load_test(actor, data, row)

    def delete_through_service(self, actor: User, row: LoadTest) -> None:
        """Delete it; its runs stay."""
        services.delete_load_test(actor, row)

    def preview(self, row: LoadTest, form: Any) -> Preview:
        """How long it takes, and what it needs an administrator for."""
        if not row.scenario:
            return Preview()
        scenario = inputs.scenario(row.scenario)
        rows = (
            (_t("target"), scenario.target),
            (_t("about (s)"), f"{scenario.expected_seconds:.0f}"),
            (_t("at most (s)"), f"{scenario.most_seconds:.0f}"),
        )
        findings = tuple(limits.reasons(scenario, inputs.deployment_of(scenario)))
        return Preview((PreviewPart(_("A run"), rows=rows, findings=findings),))

    @admin.display(description=_("target"))
    def target(self, row: LoadTest) -> str:
        """What it asks."""
        return str(row.scenario.get("target", ""))

    @admin.display(description=_("load"))
    def load(self, row: LoadTest) -> str:
        """How requests come."""
        return json.dumps(row.scenario.get("load", {}).get("mode", ""))


@admin.register(LoadRun)
class LoadRunAdmin(StatusAdmin, ReadOnlyAdmin):
    """Runs, as the load worker recorded them."""

    list_display = ["number", "chip", "target", "test", "study", "requested_by", "created_at"]
    list_filter = ["state", "generator", "target"]
    list_select_related = ["test", "study", "requested_by"]
    search_fields = ["target", "sentence"]
    fieldsets = [
        (
            _("Run"),
            {
                "fields": [
                    "number",
                    "target",
                    "test",
                    "study",
                    "arm",
                    "repeat",
                    "seed",
                    "generator",
                    "requested_by",
                ]
            },
        ),
        (_("Scenario"), {"fields": ["scenario", "environment"], "classes": ["collapse"]}),
        (_("Result"), {"fields": ["summary", "folder", "log_path"], "classes": ["collapse"]}),
    ]
    object_actions = (
        ObjectAction(
            "stop", _("Stop"), Action.OPERATE, _stop, available=lambda row: row.is_active, danger=True
        ),
    )

    def page_url(self, row: LoadRun) -> str:
        """The run's page."""
        return reverse("loadtests:run", args=[row.number])


@admin.register(Study)
class StudyAdmin(StatusAdmin, ReadOnlyAdmin):
    """Studies."""

    list_display = ["number", "chip", "title", "study_kind", "repeats", "requested_by", "created_at"]
    list_filter = ["state", "study_kind"]
    list_select_related = ["requested_by"]
    search_fields = ["title", "sentence"]
    fieldsets = [
        (_("Study"), {"fields": ["number", "title", "study_kind", "arms", "repeats", "primary", "seed"]}),
        (_("Result"), {"fields": ["verdict", "scenario"], "classes": ["collapse"]}),
    ]
    object_actions = (
        ObjectAction(
            "cancel",
            _("Cancel"),
            Action.OPERATE,
            _cancel,
            available=lambda row: row.state in ("preparing", "running"),
            danger=True,
        ),
    )

    def page_url(self, row: Study) -> str:
        """The study's page."""
        return reverse("loadtests:study", args=[row.number])


@admin.register(ProductionMark)
class ProductionMarkAdmin(ReadOnlyAdmin, ModelAdmin):
    """Deployments that load tests spare; marked on the load tests' page."""

    list_display = ["deployment", "marked_by", "created_at"]
    list_select_related = ["deployment", "marked_by"]
