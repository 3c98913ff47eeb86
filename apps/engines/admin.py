"""Build profiles as configuration; builds and engines as records."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, ClassVar

from django.contrib import admin
from django.contrib.auth.models import User
from django.forms.widgets import Script
from django.http import HttpRequest
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
from apps.engines.forms import (
    BUILD_GROUPS,
    CONVERT_GROUPS,
    QUANTIZE_GROUPS,
    BuildProfileForm,
    QuantizationProfileForm,
)
from apps.engines.models import Build, BuildProfile, Engine, QuantizationProfile
from apps.engines.trtllm_preview import quantization_preview


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


FOR_LLAMACPP, FOR_TRTLLM = "inf-for-llamacpp", "inf-for-trtllm"
SEARCH = "admin/inflight/field_search.html"


class FlagAdmin(ServiceAdmin):
    """Configuration whose form has a field for each flag. People who may only look see those that are set."""

    change_form_before_template = SEARCH

    class Media:
        js = (Script("js/pages/flag_form.js", type="module"),)

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        """The flags as one text where nothing can be changed."""
        sets = super().get_fieldsets(request, obj)
        if obj is None or self.has_change_permission(request, obj):
            return sets
        plain = [item for item in sets if "collapse" not in item[1].get("classes", ())]
        return [*plain, (_("Flags"), {"fields": ["flags"]})]

    @admin.display(description=_("flags"))
    def flags(self, row: Any) -> str:
        """What differs from the programs' defaults."""
        return json.dumps(row.options, indent=1) if row.options else _t("none")


def _flag_sets(groups: list[tuple[str, list[str]]], *classes: str) -> list[tuple[Any, dict[str, Any]]]:
    """A fieldset for each group of flags, closed until it is looked for."""
    return [(title, {"fields": names, "classes": ["collapse", *classes]}) for title, names in groups]


def _beside(preview: Preview, form: Any) -> Preview:
    """The same preview whose findings name fields of the form, so that each is also said beside its field."""
    return Preview(
        tuple(
            replace(
                part,
                findings=tuple(
                    replace(found, where=form._form_field(found.where) or "") for found in part.findings
                ),
            )
            for part in preview.parts
        )
    )


@admin.register(QuantizationProfile)
class QuantizationProfileAdmin(FlagAdmin):
    """How TensorRT-LLM builds store weights and KV cache."""

    form = QuantizationProfileForm
    list_display = ["name", "format", "kv_cache_dtype", "group_size", "calib_dataset", "updated_at"]
    list_filter = ["format", "kv_cache_dtype"]
    search_fields = ["name", "calib_dataset"]
    fieldsets: ClassVar[Any] = [
        (_("Quantization profile"), {"fields": ["name", "format", "kv_cache_dtype"]}),
        (_("AWQ and GPTQ"), {"fields": ["group_size", "weights"]}),
        (_("SmoothQuant"), {"fields": ["smoothquant", "per_channel", "per_token"]}),
        (_("FP8"), {"fields": ["quantize_lm_head"]}),
        (
            _("Calibration texts"),
            {"fields": ["calib_dataset", "calib_size", "calib_max_seq_length", "calib_batch_size"]},
        ),
        *_flag_sets(QUANTIZE_GROUPS),
    ]

    def save_through_service(
        self, actor: User, form: Any, row: QuantizationProfile | None
    ) -> QuantizationProfile:
        """Create or change it."""
        return services.save_quantization_profile(actor, form.service_data(), row)

    def delete_through_service(self, actor: User, row: QuantizationProfile) -> None:
        """Delete it."""
        services.delete_quantization_profile(actor, row)

    def preview(self, row: QuantizationProfile, form: Any) -> Preview:
        """What it does, and what stands against it."""
        row.options = form.flag_values("quantize")
        return _beside(quantization_preview(row), form)


@admin.register(BuildProfile)
class BuildProfileAdmin(FlagAdmin):
    """How engines are made."""

    form = BuildProfileForm
    list_display = ["name", "checkpoint", "builder", "weights", "recipe", "updated_at"]
    list_filter = ["builder", "recipe", "quantization", "quantization_profile"]
    list_select_related = ["checkpoint", "quantization_profile"]
    search_fields = ["name", "checkpoint__name", "quantization_profile__name"]
    fieldsets: ClassVar[Any] = [
        (_("Build profile"), {"fields": ["name", "checkpoint", "builder"]}),
        (_("Engine of llama.cpp"), {"fields": ["quantization"], "classes": [FOR_LLAMACPP]}),
        (
            _("Engine of TensorRT-LLM"),
            {"fields": ["recipe", "dtype", "quantization_profile"], "classes": [FOR_TRTLLM]},
        ),
        (
            _("Ranks: fixed by the conversion"),
            {"fields": [("tp", "pp"), ("moe_ep", "cp")], "classes": [FOR_TRTLLM]},
        ),
        (
            _("Where it is built and served"),
            {"fields": [("gpu", "gpus"), ("tensorrt_llm", "toolchain")], "classes": [FOR_TRTLLM]},
        ),
        *_flag_sets(BUILD_GROUPS, FOR_TRTLLM),
        *_flag_sets(CONVERT_GROUPS, FOR_TRTLLM),
    ]
    object_actions = (ObjectAction("build", _("Start build"), Action.OPERATE, _start),)

    @admin.display(description=_("weights"), ordering="quantization")
    def weights(self, row: BuildProfile) -> str:
        """What weights become, in its builder's words."""
        return row.weight_format

    def page_url(self, row: BuildProfile) -> str:
        """Builds of this profile."""
        return f"{reverse('engines:builds')}?q={row.name}"

    def save_through_service(self, actor: User, form: Any, row: BuildProfile | None) -> BuildProfile:
        """Create or change it."""
        return services.save_build_profile(actor, form.service_data(), row)

    def delete_through_service(self, actor: User, row: BuildProfile) -> None:
        """Delete it; its builds and engines stay."""
        services.delete_build_profile(actor, row)

    def preview(self, row: BuildProfile, form: Any) -> Preview:
        """Steps, size, memory and findings of a build."""
        if row.builder == BuildProfile.Builder.TRTLLM:
            flags = {section: form.flag_values(section) for section in ("build", "convert")}
            row.options = {section: values for section, values in flags.items() if values}
        elif form.is_bound:
            row.options = {}
        return _beside(preview_of(row), form)


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
