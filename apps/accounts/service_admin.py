"""The admin of objects that belong to services: saving, deleting and previewing never go around them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, cast

from django import forms
from django.contrib import admin, messages
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied, ValidationError
from django.db.models import Model
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.loader import render_to_string
from django.urls import URLPattern, path, reverse
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy as _
from django.views.decorators.http import require_POST
from unfold.admin import ModelAdmin

from apps.accounts.object_actions import ObjectActionsMixin, sentence_of
from apps.core.audit import kind_of
from apps.core.exceptions import Finding, InflightError, InvalidInput
from apps.core.models import StatusModel


@dataclass(frozen=True, slots=True)
class PreviewPart:
    """One block of a preview. Only what is set is drawn."""

    title: Any
    text: Any = ""
    code: str = ""
    rows: tuple[tuple[Any, Any], ...] = ()
    findings: tuple[Finding, ...] = ()
    changes: tuple[tuple[str, Any, Any], ...] = ()
    sentences: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class Preview:
    """What an input would give, as the panel shows it."""

    parts: tuple[PreviewPart, ...] = field(default_factory=tuple)


class RefusedForm(forms.ModelForm):  # type: ignore[type-arg]
    """A form that can show what a service refused, at the field that is to blame."""

    refusal: ClassVar[InflightError | None] = None
    # Names that the service uses for fields, where the form's differ; the first part before a dot counts.
    service_names: ClassVar[Mapping[str, str]] = {}

    def full_clean(self) -> None:
        """Validate, then show what the service refused when it was asked to save."""
        super().full_clean()
        if self.refusal is None or not self.is_bound:
            return
        findings: Iterable[Finding] = getattr(self.refusal, "findings", ())
        for found in findings or [_as_finding(self.refusal)]:
            self.add_error(
                self._form_field(found.where), ValidationError(f"{found.message} {found.remedy}".strip())
            )

    def _form_field(self, name: str) -> str | None:
        for known in (name, name.split(".")[0]):
            mapped = self.service_names.get(known, known)
            if mapped in self.fields:
                return mapped
        return None


class ServiceForm(RefusedForm):
    """The form of an object that a service saves."""


def _as_finding(error: InflightError) -> Finding:
    return Finding(error.code, "error", error.sentence, error.field, error.remedy)


class _WithoutTransaction(admin.ModelAdmin):  # type: ignore[type-arg]
    """Services open their own transactions, after they have read files and asked other programs."""

    def changeform_view(
        self,
        request: HttpRequest,
        object_id: str | None = None,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> Any:
        """As Django's, without a transaction around it."""
        return self._changeform_view(request, object_id, form_url, extra_context)  # type: ignore[attr-defined]


class StatusAdmin(ObjectActionsMixin):
    """What configuration and records have in common: state as a chip, buttons, the page of the object, its trail."""

    change_form_outer_before_template = "admin/inflight/object_panel.html"

    def page_url(self, row: Any) -> str | None:
        """Address of the object's own page; None where it has none."""
        return None

    def get_view_on_site_url(self, obj: Model | None = None) -> str | None:
        """The button that leads to the page."""
        return self.page_url(obj) if obj is not None and obj.pk else None

    @admin.display(description=_("state"), ordering="state")
    def chip(self, row: Any) -> SafeString:
        """State as word, colour and shape."""
        return render_to_string("admin/inflight/chip.html", {"state": row.state, "tone": row.tone})

    def render_change_form(
        self,
        request: HttpRequest,
        context: dict[str, Any],
        add: bool = False,
        change: bool = False,
        form_url: str = "",
        obj: Any = None,
    ) -> HttpResponse:
        """Add the panel above the form: state, what happened, what to do, buttons."""
        if obj is not None and obj.pk:
            buttons, page_url = self.buttons_for(request, obj), self.page_url(obj)
            has_state = isinstance(obj, StatusModel)
            context["panel"] = {
                "drawn": bool(buttons or page_url or has_state),
                "row": obj,
                "has_state": has_state,
                "buttons": buttons,
                "page_url": page_url,
            }
        return super().render_change_form(request, context, add, change, form_url, obj)

    def history_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """The audit trail is the history: it also holds what happened outside the admin."""
        row = self.get_object(request, object_id)
        if row is None:
            raise Http404
        trail = reverse("admin:core_auditentry_changelist")
        return HttpResponseRedirect(f"{trail}?object_type__exact={kind_of(row)}&object_id__exact={row.pk}")

    def log_addition(self, request: HttpRequest, obj: Model, message: Any) -> None:  # type: ignore[override]
        """Nothing: the service wrote its audit row."""

    def log_change(self, request: HttpRequest, obj: Model, message: Any) -> None:  # type: ignore[override]
        """Nothing: the service wrote its audit row."""

    def log_deletions(self, request: HttpRequest, queryset: Any) -> None:  # type: ignore[override]
        """Nothing: the service wrote its audit row."""


class RefusalMixin(admin.ModelAdmin):  # type: ignore[type-arg]
    """Turns what a service refuses into errors of the form, or into a message where there is no form."""

    def get_form(
        self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any
    ) -> type[forms.ModelForm[Any]]:
        """The form; on the second pass with what the service refused."""
        form = cast(type[RefusedForm], super().get_form(request, obj, change=change, **kwargs))
        form.refusal = getattr(request, "refusal", None)
        return form

    def changeform_view(
        self,
        request: HttpRequest,
        object_id: str | None = None,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> Any:
        """Save; what the service refuses is shown in the form, with everything that was typed."""
        try:
            return super().changeform_view(request, object_id, form_url, extra_context)
        except InflightError as error:
            request.refusal = error  # type: ignore[attr-defined]
            return super().changeform_view(request, object_id, form_url, extra_context)

    def delete_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Delete; what the service refuses leads back to the object with the reason."""
        try:
            answer: HttpResponse = super().delete_view(request, object_id, extra_context)
        except InflightError as error:
            messages.error(request, sentence_of(error))
            change = f"admin:{self.opts.app_label}_{self.opts.model_name}_change"
            return HttpResponseRedirect(reverse(change, args=[object_id]))
        return answer


class ServiceAdmin(RefusalMixin, StatusAdmin, ModelAdmin, _WithoutTransaction):
    """Configuration: forms that save and delete through the owning app's services, with a live preview."""

    form = ServiceForm
    change_form_after_template = "admin/inflight/preview_panel.html"
    warn_unsaved_form = True
    has_preview = True
    # Names that cannot change once the object exists.
    fixed_fields: tuple[str, ...] = ()

    def save_through_service(self, actor: User, form: Any, row: Any) -> Any:
        """Call the service with the form's data; `row` is the stored object, None for a new one."""
        raise PermissionDenied

    def delete_through_service(self, actor: User, row: Any) -> None:
        """Call the service that deletes."""
        raise PermissionDenied

    def preview(self, row: Any, form: Any) -> Preview:
        """What `row`, unsaved and perhaps incomplete, would give."""
        return Preview()

    # ------------------------------------------------------------------ saving

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        """Names are fixed once the object exists."""
        given = list(super().get_readonly_fields(request, obj))
        return [*given, *self.fixed_fields] if obj is not None else given

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        """Save through the service."""
        row = self.model._default_manager.get(pk=obj.pk) if change else None
        saved = self.save_through_service(cast(User, request.user), form, row)
        obj.pk = saved.pk
        obj.refresh_from_db()

    # ------------------------------------------------------------------ deleting

    def get_deleted_objects(
        self, objs: Any, request: HttpRequest
    ) -> tuple[list[Any], dict[str, int], set[str], list[Any]]:
        """What will be deleted; whether it may be is the service's to say."""
        rows = list(objs)
        return [str(row) for row in rows], {str(self.opts.verbose_name_plural): len(rows)}, set(), []

    def delete_model(self, request: HttpRequest, obj: Any) -> None:
        """Delete through the service."""
        self.delete_through_service(cast(User, request.user), obj)

    # ------------------------------------------------------------------ preview

    def get_urls(self) -> list[URLPattern]:
        """Addresses of the preview, for a new object and for one that exists."""
        name = f"{self.opts.app_label}_{self.opts.model_name}_preview"
        view = self.admin_site.admin_view(require_POST(self._preview_view))
        return [
            path("preview/", view, name=name),
            path("<int:pk>/preview/", view, name=name),
            *super().get_urls(),
        ]

    def _preview_view(self, request: HttpRequest, pk: int | None = None) -> HttpResponse:
        row = self.get_object(request, str(pk)) if pk is not None else None
        if pk is not None and row is None:
            raise Http404
        allowed = self.has_change_permission(request, row) if row else self.has_add_permission(request)
        if not allowed:
            raise PermissionDenied
        form = self.get_form(request, row, change=row is not None)(request.POST, instance=row)
        form.is_valid()
        return HttpResponse(self._drawn(form.instance, form, _refused(form)) + self.preview_extra(form))

    def preview_extra(self, form: Any) -> SafeString:
        """Marks of the page to replace beside the preview, as htmx swaps them out of band."""
        return SafeString("")

    def render_change_form(
        self,
        request: HttpRequest,
        context: dict[str, Any],
        add: bool = False,
        change: bool = False,
        form_url: str = "",
        obj: Any = None,
    ) -> HttpResponse:
        """Draw the preview of what is shown, so that the page has it from the first paint."""
        form = context["adminform"].form
        if self.has_preview:
            name = f"admin:{self.opts.app_label}_{self.opts.model_name}_preview"
            editable = self.has_change_permission(request, obj) if obj else self.has_add_permission(request)
            context["preview"] = {
                "url": reverse(name, args=[obj.pk] if obj and obj.pk else []) if editable else "",
                "body": self._drawn(_with_initial(form), form),
            }
        return super().render_change_form(request, context, add, change, form_url, obj)

    def _drawn(self, row: Any, form: Any, refused: tuple[Finding, ...] = ()) -> SafeString:
        try:
            preview = self.preview(row, form)
            if refused:
                preview = Preview(
                    (PreviewPart(_("Saving would be refused"), findings=refused), *preview.parts)
                )
        except InvalidInput as error:
            findings = error.findings or (_as_finding(error),)
            preview = Preview((PreviewPart(_("Not possible"), findings=tuple(findings)),))
        except InflightError as error:
            preview = Preview((PreviewPart(_("Not possible"), findings=(_as_finding(error),)),))
        return render_to_string("admin/inflight/preview.html", {"preview": preview})


def _refused(form: Any) -> tuple[Finding, ...]:
    """Errors of a form that is still being filled in: what is empty is not an error yet."""
    return tuple(
        Finding("invalid_value", "error", f"{form.fields[name].label}: {message}", name)
        for name, errors in form.errors.as_data().items()
        for error in errors
        if error.code != "required" and name in form.fields
        for message in error.messages
    )


def _with_initial(form: Any) -> Any:
    """The instance behind a form that nobody has sent yet, with the initial values of a new one."""
    row = form.instance
    if form.is_bound or row.pk:
        return row
    for name, item in form.fields.items():
        value = form.get_initial_for_field(item, name)
        if value not in (None, "") and name in {column.name for column in row._meta.fields}:
            try:
                setattr(row, name, item.clean(value) if isinstance(item, forms.ModelChoiceField) else value)
            except ValidationError:
                continue
    return row


__all__ = [
    "Preview",
    "PreviewPart",
    "RefusalMixin",
    "RefusedForm",
    "ServiceAdmin",
    "ServiceForm",
    "StatusAdmin",
]
