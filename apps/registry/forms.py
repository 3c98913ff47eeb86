"""The admin's form of a checkpoint: its source as fields instead of JSON."""

from __future__ import annotations

from typing import Any

from django import forms
from django.utils.translation import gettext_lazy as _
from unfold.widgets import UnfoldAdminSelectWidget, UnfoldAdminTextInputWidget

from apps.accounts.service_admin import ServiceForm
from apps.registry.models import Checkpoint

DEMO, PATH, HUB = "demo", "path", "huggingface"


class CheckpointForm(ServiceForm):
    """Name and source. The fields that do not belong to the chosen kind of source are not looked at."""

    service_names = {"source": "source_kind"}

    source_kind = forms.ChoiceField(
        label=_("Source"),
        choices=[
            (DEMO, _("Demo checkpoint")),
            (PATH, _("File or folder on the node")),
            (HUB, _("Hugging Face repository on the node")),
        ],
        widget=UnfoldAdminSelectWidget,
        help_text=_("Where the weights lie. They are read where they are and never changed."),
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
        help_text=_("OWNER/NAME. Its files must be on the node already; nothing is fetched."),
    )
    source_revision = forms.CharField(
        label=_("Revision"),
        required=False,
        initial="main",
        widget=UnfoldAdminTextInputWidget,
        help_text=_("Branch, tag or commit. Default main."),
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
        for kind in (DEMO, PATH, HUB):
            if kind in source:
                self.initial["source_kind"] = kind
        given = {**{key: source[key] for key in (DEMO, PATH) if key in source}, **source.get(HUB, {})}
        self.initial.update({f"source_{key}": value for key, value in given.items()})

    def source(self) -> dict[str, Any]:
        """The source as the service takes it."""
        kind = self.cleaned_data.get("source_kind", DEMO)
        if kind != HUB:
            return {kind: self._given(kind)}
        hub = {"repo": self._given("repo"), "revision": self._given("revision")}
        return {HUB: {key: value for key, value in hub.items() if value or key == "repo"}}

    def shown_source(self) -> dict[str, Any]:
        """The source that the form shows before anybody typed: the object's own, or the suggested one."""
        suggested = {DEMO: str(self.fields["source_demo"].initial)}
        return dict(self.instance.source) if self.instance.pk else suggested

    def _given(self, name: str) -> str:
        return str(self.cleaned_data.get(f"source_{name}") or "")

    def _form_field(self, name: str) -> str | None:
        last = f"source_{name.rsplit('.', 1)[-1]}"
        return last if name.startswith("source.") and last in self.fields else super()._form_field(name)
