"""Build profiles as configuration; builds and engines as records."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.contrib.auth.models import User
from django.template.defaultfilters import filesizeformat
from django.urls import reverse
from django.utils.translation import gettext as _t
from django.utils.translation import gettext_lazy as _

from apps.accounts.object_actions import ObjectAction
from apps.accounts.roles import Action
from apps.accounts.service_admin import Preview, ServiceAdmin, StatusAdmin
from apps.core.admin import ReadOnlyAdmin
from apps.engines import services, states
from apps.engines.build_preview import preview_of
from apps.engines.forms import BuildProfileForm
from apps.engines.models import Build, BuildProfile, Engine


def _start(user: User, row: BuildProfile) -> str:
    build = services.start_build(user, row)
    return _t("Build #%(number)s of %(name)s: %(state)s.") % {
        "number": build.number,
        "name": row.name,
        "state": build.state,
    }


def _cancel(user: User, row: Build) -> str:
    build = services.cancel_build(user, row)
    if build.state == states.CANCELLED:
        return _t("Build #%(number)s was cancelled.") % {"number": build.number}
    return _t("Build #%(number)s ends within five seconds.") % {"number": build.number}


def _retry(user: User, row: Build) -> str:
    build = services.retry_build(user, row)
    return _t("Build #%(number)s tries #%(old)s again.") % {"number": build.number, "old": row.number}


def _delete_engine(user: User, row: Engine) -> str:
    services.delete_engine(user, row)
    return _t("The files of %(engine)s were deleted.") % {"engine": str(row)}


@admin.register(BuildProfile)
class BuildProfileAdmin(ServiceAdmin):
    """How engines are made."""

    form = BuildProfileForm
    list_display = ["name", "checkpoint", "builder", "quantization", "updated_at"]
    list_filter = ["builder", "quantization"]
    list_select_related = ["checkpoint"]
    search_fields = ["name", "checkpoint__name"]
    fieldsets = [
        (_("Build profile"), {"fields": ["name", "checkpoint"]}),
        (_("Engine"), {"fields": ["builder", "quantization"]}),
        (_("Options of the builder"), {"fields": ["options"], "classes": ["collapse"]}),
    ]
    object_actions = (ObjectAction("build", _("Start build"), Action.OPERATE, _start),)

    def page_url(self, row: BuildProfile) -> str:
        """Builds of this profile."""
        return f"{reverse('engines:builds')}?q={row.name}"

    def save_through_service(self, actor: User, form: Any, row: BuildProfile | None) -> BuildProfile:
        """Create or change it."""
        return services.save_build_profile(actor, form.cleaned_data, row)

    def delete_through_service(self, actor: User, row: BuildProfile) -> None:
        """Delete it; its builds and engines stay."""
        services.delete_build_profile(actor, row)

    def preview(self, row: BuildProfile, form: Any) -> Preview:
        """Steps, size and findings of a build."""
        return preview_of(row)


@admin.register(Build)
class BuildAdmin(StatusAdmin, ReadOnlyAdmin):
    """Attempts to make engines, as workers recorded them."""

    list_display = ["number", "chip", "profile", "checkpoint", "requested_by", "started_at", "finished_at"]
    list_filter = ["state", "reused", "reason"]
    list_select_related = ["profile", "checkpoint", "requested_by"]
    search_fields = ["number", "profile__name", "checkpoint__name", "fingerprint", "sentence"]
    date_hierarchy = "created_at"
    fieldsets = [
        (_("Build"), {"fields": ["number", "profile", "checkpoint", "requested_by", "engine", "reused"]}),
        (
            _("Attempt"),
            {"fields": ["attempt", "retries", "node", "gpu", "started_at", "finished_at", "progress"]},
        ),
        (_("Input"), {"fields": ["fingerprint", "spec"]}),
        (_("Stages"), {"fields": ["stages", "diagnosis", "log_path"], "classes": ["collapse"]}),
        (
            _("For fault finding"),
            {
                "fields": [
                    "lease_expires_at",
                    "cancel_requested_at",
                    "dispatched_at",
                    "child_pid",
                    "child_group",
                ],
                "classes": ["collapse"],
            },
        ),
    ]
    object_actions = (
        ObjectAction(
            "cancel",
            _("Cancel"),
            Action.OPERATE,
            _cancel,
            available=lambda row: row.is_active and row.cancel_requested_at is None,
            confirm=_("The build ends within five seconds, and what it has written so far is removed."),
            danger=True,
        ),
        ObjectAction(
            "retry",
            _("Try again"),
            Action.OPERATE,
            _retry,
            available=lambda row: row.state in {states.FAILED, states.CANCELLED},
        ),
    )

    def page_url(self, row: Build) -> str:
        """The build's page."""
        return reverse("engines:build", args=[row.number])


@admin.register(Engine)
class EngineAdmin(StatusAdmin, ReadOnlyAdmin):
    """Built artefacts."""

    list_display = ["short", "chip", "checkpoint", "quantization", "size", "node", "created_at"]
    list_filter = ["state", "builder", "quantization"]
    list_select_related = ["checkpoint", "node"]
    search_fields = ["fingerprint", "checkpoint__name"]
    fieldsets = [
        (
            _("Engine"),
            {"fields": ["checkpoint", "builder", "quantization", "size", "node", "path", "fingerprint"]},
        ),
        (_("Manifest"), {"fields": ["manifest"]}),
    ]
    readonly_fields = ["size"]
    object_actions = (
        ObjectAction(
            "delete_files",
            _("Delete its files"),
            Action.OPERATE,
            _delete_engine,
            available=lambda row: row.state != states.DELETED,
            confirm=_(
                "The engine's files are deleted; its record stays. Building it again takes the full time."
            ),
            danger=True,
        ),
    )

    @admin.display(description=_("fingerprint"), ordering="fingerprint")
    def short(self, row: Engine) -> str:
        """Beginning of the fingerprint, enough to tell engines apart."""
        return row.fingerprint[:12]

    @admin.display(description=_("size"), ordering="size_bytes")
    def size(self, row: Engine) -> str:
        """Bytes for people."""
        return filesizeformat(row.size_bytes)
