"""The admin's form of a checkpoint: its source as fields instead of JSON."""

from __future__ import annotations

from typing import Any

from django import forms
from django.utils.translation import gettext_lazy as _
from unfold.widgets import (
    UnfoldAdminPasswordWidget,
    UnfoldAdminSelectWidget,
    UnfoldAdminTextInputWidget,
    UnfoldBooleanSwitchWidget,
)

from apps.accounts.service_admin import ServiceForm
from apps.registry.models import Checkpoint, HubAccess

DEMO, PATH, HUB, ARCHIVE = "demo", "path", "huggingface", "archive"


class CheckpointForm(ServiceForm):
    """Name and source. The fields that do not belong to the chosen kind of source are not looked at."""

    service_names = {"source": "source_kind"}

    source_kind = forms.ChoiceField(
        label=_("Source"),
        choices=[
            (DEMO, _("Demo checkpoint")),
            (PATH, _("File or folder on the node")),
            (HUB, _("Hugging Face repository")),
            (ARCHIVE, _("Archive on the node")),
        ],
        widget=UnfoldAdminSelectWidget,
        help_text=_(
            "Where the weights come from. Files on the node are read where they are and never changed."
        ),
    )
    source_demo = forms.CharField(
        label=_("Demo checkpoint"),
        required=False,
        initial="smollm2-135m",
        widget=UnfoldAdminTextInputWidget,
        help_text=_(
            "Name of a checkpoint that make up fetched. Default smollm2-135m: 135 million weights, 98 MB."
        ),
    )
    source_path = forms.CharField(
        label=_("Path"),
        required=False,
        widget=UnfoldAdminTextInputWidget,
        help_text=_(
            "Absolute path of a .gguf file, or of a folder with one, inside the folders that checkpoints may "
            "come from."
        ),
    )
    source_repo = forms.CharField(
        label=_("Repository"),
        required=False,
        widget=UnfoldAdminTextInputWidget,
        help_text=_(
            "OWNER/NAME. It is fetched by the load worker, unless its files are on the node already."
        ),
    )
    source_revision = forms.CharField(
        label=_("Revision"),
        required=False,
        initial="main",
        widget=UnfoldAdminTextInputWidget,
        help_text=_("Branch, tag or commit; pinned to the commit that it names. Default main."),
    )
    source_files = forms.CharField(
        label=_("Files"),
        required=False,
        widget=UnfoldAdminTextInputWidget,
        help_text=_(
            "Names or patterns, separated by commas. Empty: all that safetensors need, or the one GGUF file."
        ),
    )
    source_archive = forms.CharField(
        label=_("Archive"),
        required=False,
        widget=UnfoldAdminTextInputWidget,
        help_text=_("Absolute path of a .tar, .tar.gz or .zip. It needs the role code-author."),
    )
    source_pickle = forms.BooleanField(
        label=_("Accept pickle files"),
        required=False,
        widget=UnfoldBooleanSwitchWidget,
        help_text=_("Weights in .bin and .pt files, which can run code when they are loaded. Default off."),
    )

    class Meta:
        model = Checkpoint
        fields = ["name"]
        help_texts = {
            "name": _(
                "How build profiles and the API call it: lower-case letters, digits, dots, dashes and underscores. "
                "It cannot change later."
            )
        }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        source = self.instance.source if self.instance.pk else {}
        for kind in (DEMO, PATH, HUB, ARCHIVE):
            if kind in source:
                self.initial["source_kind"] = kind
        plain = {key: source[key] for key in (DEMO, PATH, ARCHIVE, "pickle") if key in source}
        hub = source.get(HUB, {})
        given = {**plain, **hub, "files": ", ".join(hub.get("files", []))}
        self.initial.update({f"source_{key}": value for key, value in given.items()})

    def source(self) -> dict[str, Any]:
        """The source as the service takes it."""
        kind = self.cleaned_data.get("source_kind", DEMO)
        pickle = {"pickle": True} if kind != DEMO and self.cleaned_data.get("source_pickle") else {}
        if kind != HUB:
            return {kind: self._given(kind), **pickle}
        files = [name.strip() for name in self._given("files").split(",") if name.strip()]
        hub = {"repo": self._given("repo"), "revision": self._given("revision"), "files": files}
        return {HUB: {key: value for key, value in hub.items() if value or key == "repo"}, **pickle}

    def shown_source(self) -> dict[str, Any]:
        """The source that the form shows before anybody typed: the object's own, or the suggested one."""
        suggested = {DEMO: str(self.fields["source_demo"].initial)}
        return dict(self.instance.source) if self.instance.pk else suggested

    def _given(self, name: str) -> str:
        return str(self.cleaned_data.get(f"source_{name}") or "")

    def _form_field(self, name: str) -> str | None:
        last = f"source_{name.rsplit('.', 1)[-1]}"
        return last if name.startswith("source.") and last in self.fields else super()._form_field(name)


class HubAccessForm(ServiceForm):
    """Mirror and token. The token is written only."""

    token = forms.CharField(
        label=_("New token"),
        required=False,
        widget=UnfoldAdminPasswordWidget,
        help_text=_("For gated and private repositories. Kept encrypted and never shown; empty: as it is."),
    )
    remove_token = forms.BooleanField(
        label=_("Remove the token"), required=False, widget=UnfoldBooleanSwitchWidget
    )

    class Meta:
        model = HubAccess
        fields = ["endpoint"]
        help_texts = {
            "endpoint": _("Address of a hub of your own or of a mirror. Empty: the Hugging Face hub.")
        }

    def values(self) -> dict[str, Any]:
        """What changes, as the service spells it."""
        found: dict[str, Any] = {"endpoint": self.cleaned_data.get("endpoint", "")}
        if self.cleaned_data.get("remove_token"):
            found["token"] = None
        elif self.cleaned_data.get("token"):
            found["token"] = self.cleaned_data["token"]
        return found
