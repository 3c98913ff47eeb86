"""Forms of the pages about imported model repositories."""

from __future__ import annotations

from typing import Any

from django import forms
from django.utils.translation import gettext_lazy as _

from apps.registry.models import Checkpoint

_PLAIN = {"autocomplete": "off", "autocapitalize": "off", "spellcheck": "false"}


class ImportForm(forms.Form):
    """Where a repository is: a folder of this node, or an archive that comes with the form."""

    name = forms.CharField(label=_("Name"), max_length=63, widget=forms.TextInput(attrs=_PLAIN))
    path = forms.CharField(
        label=_("Folder on this node"), max_length=1000, required=False, widget=forms.TextInput(attrs=_PLAIN)
    )
    upload = forms.FileField(label=_("Or an archive"), required=False)

    def clean(self) -> dict[str, Any] | None:
        """Exactly one of the two."""
        data = super().clean() or {}
        if bool(data.get("path")) == bool(data.get("upload")) and not self.errors:
            self.add_error("path", _("Name a folder, or choose an archive: one of the two."))
        return data


class AdoptForm(forms.Form):
    """The deployment to make."""

    name = forms.CharField(
        label=_("Public name of the deployment"),
        max_length=63,
        widget=forms.TextInput(attrs=_PLAIN),
        help_text=_("The new batching profile gets this name, too."),
    )
    model = forms.ChoiceField(label=_("Model that answers"), required=False)
    checkpoint = forms.ModelChoiceField(
        label=_("Checkpoint of its TensorRT-LLM engines"),
        queryset=Checkpoint.objects.all(),
        to_field_name="name",
        required=False,
        empty_label=_("none: leave them where they are"),
        help_text=_("With it they are listed among the engines, with what they fit."),
    )

    def __init__(self, *args: Any, models: list[str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        chosen = [("", _("the ensemble, or the only one"))]
        field = self.fields["model"]
        assert isinstance(field, forms.ChoiceField)  # noqa: S101 - declared above
        field.choices = [*chosen, *((name, name) for name in models)]


class LineForm(forms.Form):
    """A pasted fill_template.py line."""

    name = forms.CharField(
        label=_("Name of the batching profile"), max_length=63, widget=forms.TextInput(attrs=_PLAIN)
    )
    command = forms.CharField(
        label=_("The line"),
        max_length=20_000,
        widget=forms.Textarea(attrs={**_PLAIN, "rows": 6}),
        help_text=_('As it was run: fill_template.py -i FILE "name:value,name:value".'),
    )
