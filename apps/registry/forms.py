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
        label=_("source"),
        choices=[
            (DEMO, _("Demo checkpoint")),
            (PATH, _("File or folder on the node")),
            (HUB, _("Hugging Face repository on the node")),
        ],
        widget=UnfoldAdminSelectWidget,
        help_text=_("Where the weights lie. They are read where they are and never changed."),
    )
    demo = forms.CharField(
        label=_("demo checkpoint"),
        required=False,
        initial="smollm2-135m",
        widget=UnfoldAdminTextInputWidget,
        help_text=_(
            "Name of a checkpoint that make up fetched. Default smollm2-135m: 135 million weights, 98 MB."
        ),
    )
    path = forms.CharField(
        label=_("path"),
        required=False,
        widget=UnfoldAdminTextInputWidget,
        help_text=_(
            "Absolute path of a .gguf file, or of a folder with one, inside the folders that checkpoints may "
            "come from."
        ),
    )
    repo = forms.CharField(
        label=_("repository"),
        required=False,
        widget=UnfoldAdminTextInputWidget,
        help_text=_("OWNER/NAME. Its files must be on the node already; nothing is fetched."),
    )
    revision = forms.CharField(
        label=_("revision"),
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
        self.initial.update({key: source[key] for key in (DEMO, PATH) if key in source})
        self.initial.update(source.get(HUB, {}))

    def source(self) -> dict[str, Any]:
        """The source as the service takes it."""
        data = self.cleaned_data
        kind = data.get("source_kind", DEMO)
        if kind == HUB:
            hub = {"repo": data.get("repo", "")}
            return {HUB: {**hub, "revision": data["revision"]} if data.get("revision") else hub}
        return {kind: data.get(kind, "")}

    def _form_field(self, name: str) -> str | None:
        last = name.rsplit(".", 1)[-1]
        return last if name.startswith("source.") and last in self.fields else super()._form_field(name)
