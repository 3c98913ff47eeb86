"""Deployments as configuration; revisions and instances as records. Batching profiles are in profile_admin."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.contrib.auth.models import User
from django.urls import reverse
from django.utils.translation import gettext as _t
from django.utils.translation import gettext_lazy as _

from apps.accounts.object_actions import ObjectAction
from apps.accounts.roles import Action
from apps.accounts.service_admin import Preview, ServiceAdmin, StatusAdmin
from apps.core.admin import ReadOnlyAdmin
from apps.serving import services, serving_preview, states
from apps.serving.forms import PLACED_FIELDS, DeploymentForm
from apps.serving.models import Deployment, Instance, Revision
from apps.serving.policy_forms import ROLLOUT_FIELDS, SCALING_FIELDS, SLO_FIELDS
from apps.serving.profile_admin import BatchingProfileAdmin

__all__ = ["BatchingProfileAdmin", "DeploymentAdmin", "InstanceAdmin", "RevisionAdmin"]


def _deploy(user: User, row: Deployment) -> str:
    services.deploy(user, row)
    return _t("%(name)s: %(state)s. %(sentence)s") % {
        "name": row.name,
        "state": row.state,
        "sentence": row.sentence,
    }


def _stop(user: User, row: Deployment) -> str:
    services.stop(user, row)
    return _t("%(name)s: %(state)s.") % {"name": row.name, "state": row.state}


def _roll_back(user: User, row: Revision) -> str:
    services.roll_back(user, row.deployment, row)
    return _t("%(name)s goes back to revision %(number)s.") % {
        "name": row.deployment.name,
        "number": row.number,
    }


def _restart(user: User, row: Instance) -> str:
    services.restart_instance(user, row)
    return _t("%(uid)s finishes its requests and is started again.") % {"uid": row.uid}


@admin.register(Deployment)
class DeploymentAdmin(ServiceAdmin):
    """Engines served under a public name."""

    form = DeploymentForm
    list_display = ["name", "chip", "desired", "build_profile", "batching", "replicas", "revision_number"]
    list_filter = ["state", "desired", "batching"]
    list_select_related = ["build_profile", "batching", "active_revision"]
    search_fields = ["name", "build_profile__name", "batching__name"]
    fixed_fields = ("name",)
    readonly_fields = ["desired", "active_revision", "deployed_at"]
    base_fieldsets = (
        (_("Deployment"), {"fields": ["name", "build_profile", "batching"]}),
        (_("Servers"), {"fields": ["replicas", "device", "share", "place"]}),
        (_("Service level"), {"fields": list(SLO_FIELDS), "classes": ["collapse"]}),
        (_("Roll-out"), {"fields": list(ROLLOUT_FIELDS), "classes": ["collapse"]}),
        (_("Scaling"), {"fields": list(SCALING_FIELDS), "classes": ["collapse"]}),
        (_("TensorRT-LLM: paths, GPUs and ranks"), {"fields": list(PLACED_FIELDS), "classes": ["collapse"]}),
    )
    status_fieldset = (_("Status"), {"fields": ["desired", "active_revision", "deployed_at"]})
    object_actions = (
        ObjectAction(
            "deploy", _("Deploy"), Action.OPERATE, _deploy, available=lambda row: row.state != states.WAITING
        ),
        ObjectAction(
            "stop",
            _("Stop"),
            Action.OPERATE,
            _stop,
            available=lambda row: row.desired == Deployment.Desired.RUNNING,
            confirm=_("New requests are refused, those in flight finish, then the servers exit."),
            danger=True,
        ),
    )

    def get_fieldsets(self, request: Any, obj: Any = None) -> Any:
        """Status is shown once there is some."""
        return [*self.base_fieldsets, self.status_fieldset] if obj is not None else list(self.base_fieldsets)

    def page_url(self, row: Deployment) -> str:
        """The deployment's page."""
        return reverse("serving:deployment", args=[row.name])

    def save_through_service(self, actor: User, form: Any, row: Deployment | None) -> Deployment:
        """Create it, stopped, or change it; what runs changes with Deploy."""
        data = {key: form.cleaned_data[key] for key in ("build_profile", "batching", "replicas")}
        data |= {"placement": form.placement(), **form.policies()}
        if row is None:
            data["name"] = form.cleaned_data["name"]
        return services.save_deployment(actor, data, row)

    def delete_through_service(self, actor: User, row: Deployment) -> None:
        """Delete it with its history; it must be stopped."""
        services.delete_deployment(actor, row)

    def preview(self, row: Deployment, form: Any) -> Preview:
        """What deploy would change."""
        if form.is_bound:
            row.placement = form.placement()
        return serving_preview.of_deployment(row)

    @admin.display(description=_("revision"))
    def revision_number(self, row: Deployment) -> str | None:
        """Number of the revision that runs."""
        return str(row.active_revision.number) if row.active_revision else None


@admin.register(Revision)
class RevisionAdmin(StatusAdmin, ReadOnlyAdmin):
    """Snapshots of configurations that were deployed."""

    list_display = ["deployment", "number", "chip", "engine", "replicas", "created_by", "created_at"]
    list_filter = ["state", "deployment"]
    list_select_related = ["deployment", "engine__checkpoint", "created_by"]
    search_fields = ["deployment__name"]
    fieldsets = [
        (_("Revision"), {"fields": ["deployment", "number", "created_by", "created_at"]}),
        (_("Configuration"), {"fields": ["engine", "batching", "replicas", "placement"]}),
    ]
    object_actions = (
        ObjectAction(
            "roll_back",
            _("Roll back to it"),
            Action.OPERATE,
            _roll_back,
            available=lambda row: row.state in {states.SUPERSEDED, states.FAILED},
            confirm=_("The deployment runs this revision again; servers are replaced one by one."),
        ),
    )

    def page_url(self, row: Revision) -> str:
        """The configuration tab of its deployment."""
        return reverse("serving:configuration", args=[row.deployment.name])


@admin.register(Instance)
class InstanceAdmin(StatusAdmin, ReadOnlyAdmin):
    """Servers, as the control worker recorded them."""

    list_display = ["uid", "chip", "deployment", "revision", "node", "gpu", "restarts", "serving_since"]
    list_filter = ["state", "deployment", "node"]
    list_select_related = ["deployment", "revision__deployment", "node", "gpu__node"]
    search_fields = ["uid", "deployment__name", "sentence"]
    fieldsets = [
        (
            _("Instance"),
            {"fields": ["uid", "deployment", "revision", "replica", "node", "gpu", "server_version"]},
        ),
        (
            _("Life"),
            {"fields": ["serving_since", "restarts", "stop_requested_at", "drain_deadline", "failed_at"]},
        ),
        (
            _("Process"),
            {
                "fields": [
                    ("pid", "attempt", "exit_code"),
                    ("http_port", "grpc_port", "metrics_port"),
                    "folder",
                    "log_path",
                ],
                "classes": ["collapse"],
            },
        ),
        (_("Diagnosis"), {"fields": ["diagnosis"], "classes": ["collapse"]}),
    ]
    object_actions = (
        ObjectAction(
            "restart",
            _("Restart"),
            Action.OPERATE,
            _restart,
            available=lambda row: row.state not in {states.GONE, states.DRAINING, states.PLACED},
            confirm=_("The server finishes its requests, exits, and another is started in its place."),
        ),
    )

    def page_url(self, row: Instance) -> str:
        """The instances tab of its deployment."""
        return reverse("serving:instances", args=[row.deployment.name])
