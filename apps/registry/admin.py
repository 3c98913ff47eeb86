"""Checkpoints in the admin."""

from __future__ import annotations

from typing import Any, cast

from django.contrib import admin
from django.contrib.auth.models import User
from django.template.defaultfilters import filesizeformat
from django.urls import reverse
from django.utils.translation import gettext as _t
from django.utils.translation import gettext_lazy as _

from apps.accounts.object_actions import ObjectAction
from apps.accounts.roles import Action
from apps.accounts.service_admin import Preview, PreviewPart, ServiceAdmin
from apps.registry import services
from apps.registry.answers import stored_as
from apps.registry.domain.checkpoint_reader import read_checkpoint
from apps.registry.domain.sources import locate, parse_source
from apps.registry.forms import CheckpointForm, HubAccessForm
from apps.registry.models import Checkpoint, HubAccess
from apps.registry.selectors import archive_roots, checkpoints_folder

SOURCE_FIELDS = (
    *("name", "source_kind", "source_demo", "source_path", "source_repo", "source_revision"),
    *("source_files", "source_archive", "source_pickle"),
)


def _inspect(user: User, row: Checkpoint) -> str:
    services.inspect_again(user, row)
    return _t("%(name)s was inspected: %(state)s.") % {"name": row.name, "state": row.state}


@admin.register(Checkpoint)
class CheckpointAdmin(ServiceAdmin):
    """Registering, pointing elsewhere and inspecting weights."""

    form = CheckpointForm
    list_display = ["name", "chip", "format", "size", "parameters", "state_since"]
    list_filter = ["state", "format"]
    search_fields = ["name", "path", "sentence"]
    fixed_fields = ("name",)
    readonly_fields = ["path_found", "format", "size", "parameters", "sha256", "context_length", "stored_as"]
    conditional_fields = {
        "source_demo": "source_kind == 'demo'",
        "source_path": "source_kind == 'path'",
        "source_repo": "source_kind == 'huggingface'",
        "source_revision": "source_kind == 'huggingface'",
        "source_files": "source_kind == 'huggingface'",
        "source_archive": "source_kind == 'archive'",
        "source_pickle": "source_kind != 'demo'",
    }
    fieldsets = [
        (_("Checkpoint"), {"fields": SOURCE_FIELDS}),
    ]
    found_fieldset = (
        _("What its headers say"),
        {"fields": ["path_found", "format", "size", "parameters", "stored_as", "context_length", "sha256"]},
    )
    object_actions = (ObjectAction("inspect", _("Inspect again"), Action.CONFIGURE, _inspect),)

    def get_fieldsets(self, request: Any, obj: Any = None) -> Any:
        """What was found is shown once there is something."""
        return [*self.fieldsets, self.found_fieldset] if obj is not None else self.fieldsets

    def page_url(self, row: Checkpoint) -> str:
        """The checkpoint's page."""
        return reverse("registry:checkpoint", args=[row.name])

    def save_through_service(self, actor: User, form: Any, row: Checkpoint | None) -> Checkpoint:
        """Register it, or point it elsewhere."""
        if row is None:
            return services.register_checkpoint(actor, form.cleaned_data["name"], form.source())
        if parse_source(form.source()).as_dict() == row.source:
            return row
        return services.change_source(actor, row, form.source())

    def delete_through_service(self, actor: User, row: Checkpoint) -> None:
        """Forget it; its files stay."""
        services.delete_checkpoint(actor, row)

    def preview(self, row: Checkpoint, form: Any) -> Preview:
        """What lies at the source, read from the header."""
        source = form.source() if form.is_bound else self._shown_source(row, form)
        if not any(value for key, value in source.items() if key != "pickle"):
            return Preview()
        located = locate(parse_source(source), checkpoints_folder(), archive_roots())
        if located is None:
            return Preview((PreviewPart(_("Found"), rows=((_("files"), _("fetched once it is saved")),)),))
        found = read_checkpoint(located.path)
        facts = found.facts
        rows = (
            (_("file") if facts.form == "gguf" else _("folder"), located.path),
            (_("size"), filesizeformat(found.size_bytes)),
            (_("family"), facts.family),
            (_("parameters"), f"{facts.params:,}".replace(",", "\u202f") if facts.params else None),
            (_("stored as"), stored_as(facts.model_dump())),
            (_("context length (tokens)"), facts.max_position_embeddings),
            (_("chat template"), _("yes") if found.chat_template else _("none")),
        )
        findings = (PreviewPart(_("Findings"), findings=facts.findings),) if facts.findings else ()
        return Preview((PreviewPart(_("Found"), rows=rows), *findings))

    def _shown_source(self, row: Checkpoint, form: Any) -> dict[str, Any]:
        # Viewers get a form without fields.
        return form.shown_source() if form.fields else dict(row.source)

    @admin.display(description=_("file"))
    def path_found(self, row: Checkpoint) -> str | None:
        """Resolved file or folder."""
        return row.path or None

    @admin.display(description=_("size"), ordering="size_bytes")
    def size(self, row: Checkpoint) -> str | None:
        """Bytes for people."""
        return filesizeformat(row.size_bytes) if row.size_bytes is not None else None

    @admin.display(description=_("parameters"))
    def parameters(self, row: Checkpoint) -> str | None:
        """Weights stored in the file."""
        count = row.facts.get("params")
        return f"{count:,}".replace(",", "\u202f") if count else None

    @admin.display(description=_("stored as"))
    def stored_as(self, row: Checkpoint) -> str | None:
        """Weight type of the file."""
        return stored_as(row.facts)

    @admin.display(description=_("context length (tokens)"))
    def context_length(self, row: Checkpoint) -> str | None:
        """Longest sequence that the model was trained on."""
        return cast("str | None", row.facts.get("max_position_embeddings"))


@admin.register(HubAccess)
class HubAccessAdmin(ServiceAdmin):
    """Mirror and token of hubs: one row."""

    form = HubAccessForm
    has_preview = False
    list_display = ["__str__", "endpoint", "token_kept", "updated_at"]
    fieldsets = [(_("Hub access"), {"fields": ("endpoint", "token", "remove_token")})]

    def has_add_permission(self, request: Any) -> bool:
        """Once."""
        return super().has_add_permission(request) and not HubAccess.objects.exists()

    def has_delete_permission(self, request: Any, obj: Any = None) -> bool:
        """It is emptied, not deleted."""
        return False

    def save_through_service(self, actor: User, form: Any, row: HubAccess | None) -> HubAccess:
        """Change mirror and token."""
        return services.save_hub_access(actor, form.values())

    @admin.display(description=_("token"), boolean=True)
    def token_kept(self, row: HubAccess) -> bool:
        """Whether a token is kept."""
        return row.has_token
