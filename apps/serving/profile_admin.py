"""The admin of batching profiles: a form that follows the engine, a confirmation of what restarts, versions."""

from __future__ import annotations

from typing import Any, cast

from django.contrib import admin, messages
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _t
from django.utils.translation import gettext_lazy as _

from apps.accounts.object_actions import sentence_of
from apps.accounts.roles import Action, may
from apps.accounts.service_admin import Preview, ServiceAdmin
from apps.core.exceptions import InflightError
from apps.serving import changes, profile_preview, selectors, services, versions
from apps.serving.changes import ChangePlan
from apps.serving.domain import presets
from apps.serving.domain.trtllm import settings
from apps.serving.models import BatchingProfile
from apps.serving.profile_form import (
    CLASS_FIELDS,
    USE_CLASSES,
    BatchingProfileForm,
    reason_tag,
)

CONFIRMED, DEPLOY = "_confirmed", "_deploy"
GROUPS = [
    (_(title), {"fields": [f"trtllm_{item.key}" for item in group], "classes": ["collapse"]})
    for title, group in settings.GROUPS
]


@admin.register(BatchingProfile)
class BatchingProfileAdmin(ServiceAdmin):
    """How requests share an engine."""

    form = BatchingProfileForm
    list_display = [
        "name",
        "engine",
        "strategy",
        "max_batch_size",
        "max_seq_len",
        "max_queue_size",
        "updated_at",
    ]
    list_filter = ["engine", "strategy"]
    search_fields = ["name"]

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        """Fields by what they are about; presets and versions above them."""
        first = {"fields": ["name", "engine", "strategy"], "description": _above(obj)}
        queue = [
            "max_queue_size",
            "max_queue_delay_microseconds",
            "preferred_batch_sizes",
            "preserve_ordering",
        ]
        timeouts = ["queue_timeout_microseconds", "timeout_action", "allow_timeout_override"]
        return [
            (_("Batching profile"), first),
            (_("Capacity"), {"fields": ["max_batch_size", "max_seq_len", "threads"]}),
            (_("Waiting requests"), {"fields": queue, "description": _buckets()}),
            (_("Request timeouts"), {"fields": timeouts}),
            (_("Priorities"), {"fields": [USE_CLASSES, "default_priority_class", *CLASS_FIELDS]}),
            *((f"TensorRT-LLM: {title}", options) for title, options in GROUPS),
        ]

    def get_form(self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any) -> Any:
        """The form, with the values of a preset where one is asked for."""
        form: Any = super().get_form(request, obj, change=change, **kwargs)
        form.preset = request.GET.get("preset", "")
        form.confirmed = request.POST.get(CONFIRMED)
        return form

    # ------------------------------------------------------------------ saving

    def changeform_view(
        self,
        request: HttpRequest,
        object_id: str | None = None,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> Any:
        """Save; a change of a stored profile is first shown with what it restarts."""
        if request.method == "POST" and object_id is not None and CONFIRMED not in request.POST:
            asked = self._ask(request, object_id)
            if asked is not None:
                return asked
        return super().changeform_view(request, object_id, form_url, extra_context)

    def _ask(self, request: HttpRequest, object_id: str) -> HttpResponse | None:
        row = self.get_object(request, object_id)
        if row is None or not self.has_change_permission(request, row):
            return None
        form = self.get_form(request, row, change=True)(request.POST, instance=row)
        if not form.is_valid():
            return None
        try:
            plan = changes.plan_batching_profile(cast(User, request.user), form.values(), row)
        except InflightError:
            return None  # Saving says so at the field.
        if not plan.changes:
            return None
        kept = [(key, value) for key, values in request.POST.lists() for value in values]
        return self._confirm_change(request, row, plan, kept)

    def _confirm_change(
        self, request: HttpRequest, row: BatchingProfile, plan: ChangePlan, kept: list[tuple[str, str]]
    ) -> HttpResponse:
        name = BatchingProfile.objects.values_list("name", flat=True).get(pk=row.pk)
        context = {
            **self.admin_site.each_context(request),
            "title": _t("Change %(name)s?") % {"name": name},
            "opts": self.opts,
            "plan": plan,
            "kept": [(key, value) for key, value in kept if key != "csrfmiddlewaretoken"],
            "confirmed": CONFIRMED,
            "deploy": DEPLOY,
            "may_deploy": may(cast(User, request.user), Action.OPERATE),
            "back": reverse("admin:serving_batchingprofile_change", args=[row.pk]),
        }
        return TemplateResponse(request, "admin/inflight/profile_confirm.html", context)

    def save_through_service(self, actor: User, form: Any, row: BatchingProfile | None) -> BatchingProfile:
        """Create or change it."""
        return services.save_batching_profile(actor, form.values(), row, form.confirmed if row else None)

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        """Save through the service, then deploy what was asked for."""
        super().save_model(request, obj, form, change)
        self._deploy(request, obj)

    def _deploy(self, request: HttpRequest, row: BatchingProfile) -> None:
        for name in request.POST.getlist(DEPLOY):
            found = selectors.deployments().filter(batching=row.pk, name=name).first()
            if found is None:
                continue
            try:
                services.deploy(cast(User, request.user), found)
                messages.success(request, _t("%(name)s is deployed with it.") % {"name": name})
            except InflightError as error:
                messages.error(request, f"{name}: {sentence_of(error)}")

    def delete_through_service(self, actor: User, row: BatchingProfile) -> None:
        """Delete it."""
        services.delete_batching_profile(actor, row)

    # ------------------------------------------------------------------ preview

    def preview(self, row: BatchingProfile, form: Any) -> Preview:
        """Consequences, what does nothing, memory, differences, files."""
        return profile_preview.of_profile(row)

    def preview_extra(self, form: Any) -> SafeString:
        """Why each field does nothing, for the engine and the values that are chosen now."""
        reasons = form.reasons()
        names = [name for name in form.fields if name != "name"]
        return format_html_join(
            "", "{}", ((reason_tag(name, form.reason(name, reasons), swap=True),) for name in names)
        )

    # ------------------------------------------------------------------ versions

    def get_urls(self) -> list[URLPattern]:
        """Addresses of the versions and of going back to one."""
        view = self.admin_site.admin_view
        return [
            path("<int:pk>/versions/", view(self._versions), name="serving_batchingprofile_versions"),
            path(
                "<int:pk>/versions/<int:number>/",
                view(self._roll_back),
                name="serving_batchingprofile_roll_back",
            ),
            *super().get_urls(),
        ]

    def _row(self, request: HttpRequest, pk: int) -> BatchingProfile:
        row: BatchingProfile | None = self.get_object(request, str(pk))
        if row is None:
            raise Http404
        if not self.has_view_permission(request, row):
            raise PermissionDenied
        return row

    def _versions(self, request: HttpRequest, pk: int) -> HttpResponse:
        row = self._row(request, pk)
        context = {
            **self.admin_site.each_context(request),
            "title": _t("Versions of %(name)s") % {"name": row.name},
            "opts": self.opts,
            "row": row,
            "versions": list(row.versions.all()[:200]),
            "may_change": self.has_change_permission(request, row),
            "back": reverse("admin:serving_batchingprofile_change", args=[row.pk]),
        }
        return TemplateResponse(request, "admin/inflight/profile_versions.html", context)

    def _roll_back(self, request: HttpRequest, pk: int, number: int) -> HttpResponse:
        row = self._row(request, pk)
        if not self.has_change_permission(request, row):
            raise PermissionDenied
        back = reverse("admin:serving_batchingprofile_versions", args=[row.pk])
        user = cast(User, request.user)
        try:
            values = versions.values_at(row, number)
            if request.method == "POST" and CONFIRMED in request.POST:
                services.roll_back_batching_profile(user, row, number, request.POST[CONFIRMED])
                messages.success(
                    request, _t("It says again what version %(number)s said.") % {"number": number}
                )
                self._deploy(request, row)
                return HttpResponseRedirect(back)
            plan = changes.plan_batching_profile(user, values, row)
        except InflightError as error:
            messages.error(request, sentence_of(error))
            return HttpResponseRedirect(back)
        if not plan.changes:
            messages.info(request, _t("Version %(number)s is what it says now.") % {"number": number})
            return HttpResponseRedirect(back)
        return self._confirm_change(request, row, plan, [])


def _above(row: BatchingProfile | None) -> SafeString:
    """Presets as links, and the versions of a stored profile."""
    engine = row.engine if row is not None else None
    lines = []
    for kind, label in BatchingProfile.EngineKind.choices:
        if engine not in (None, kind):
            continue
        links = format_html_join(
            " ",
            '<a class="inf-link" href="?engine={}&amp;preset={}" title="{}">{}</a>',
            ((kind, name, sentence, name) for name, sentence in presets.PRESETS.items()),
        )
        lines.append(
            format_html('<span class="inf-row">{}: {}</span>', _t("Begin with") if engine else label, links)
        )
    if row is not None:
        address = reverse("admin:serving_batchingprofile_versions", args=[row.pk])
        lines.append(
            format_html(
                '<a class="inf-link" href="{}">{}</a>',
                address,
                _t("Versions (%(count)s)") % {"count": row.versions.count()},
            )
        )
    return format_html(
        '<div class="inf-above">{}</div>', format_html_join("", "{}", ((line,) for line in lines))
    )


def _buckets() -> SafeString:
    return format_html(
        '{} <a class="inf-link" href="{}">{}</a>',
        _t("Which prompts go where by their length is the gateway's:"),
        reverse("gateway:routes"),
        _t("routes and their length buckets"),
    )
