"""Forms of the pages. They shape what a person types; services decide whether it is good."""

from __future__ import annotations

from typing import Any

from django import forms
from django.utils.translation import gettext_lazy as _

from apps.engines.models import BuildProfile, Quantization
from apps.registry.models import Checkpoint
from apps.registry.states import READY
from apps.serving.models import BatchingProfile
from apps.serving.policy_forms import PolicyForm, policy_values

_NAME = {"autocomplete": "off", "spellcheck": "false", "maxlength": "63", "class": "input mono"}
_PATH = {"autocomplete": "off", "spellcheck": "false", "class": "input mono"}
DEMO = "smollm2-135m"


class CheckpointForm(forms.Form):
    """Name and source of a checkpoint."""

    template_name = ""
    name = forms.CharField(
        label=_("Name"),
        max_length=63,
        widget=forms.TextInput(attrs=_NAME),
        help_text=_("Lower-case letters, digits, dots, dashes and underscores. It stays as it is."),
    )
    kind = forms.ChoiceField(
        label=_("Source"),
        choices=[
            ("demo", _("Demo")),
            ("path", _("Path")),
            ("huggingface", _("Hugging Face")),
            ("archive", _("Archive")),
        ],
        initial="huggingface",
        widget=forms.RadioSelect,
    )
    path = forms.CharField(
        label=_("Path"), required=False, max_length=1000, widget=forms.TextInput(attrs=_PATH)
    )
    repo = forms.CharField(
        label=_("Repository"), required=False, max_length=200, widget=forms.TextInput(attrs=_PATH)
    )
    revision = forms.CharField(
        label=_("Revision"), required=False, max_length=100, widget=forms.TextInput(attrs=_PATH)
    )
    wanted = forms.CharField(
        label=_("Files"),
        required=False,
        max_length=4000,
        widget=forms.TextInput(attrs=_PATH),
        help_text=_(
            "Names or patterns, separated by commas. Empty: all that safetensors need, or the one GGUF file."
        ),
    )
    archive = forms.CharField(
        label=_("Archive on the node"),
        required=False,
        max_length=1000,
        widget=forms.TextInput(attrs=_PATH),
    )
    upload = forms.FileField(
        label=_("Or upload one"),
        required=False,
        widget=forms.FileInput(attrs={"accept": ".tar,.gz,.tgz,.zip", "class": "input"}),
    )
    pickle = forms.BooleanField(label=_("Accept pickle files"), required=False)
    demo = forms.CharField(
        label=_("Demo checkpoint"),
        required=False,
        initial=DEMO,
        max_length=63,
        widget=forms.TextInput(attrs=_PATH),
    )

    def source(self) -> dict[str, Any]:
        """The source as services spell it. What the form refused is left empty, for the service to name."""
        names = ("kind", "path", "repo", "revision", "demo", "archive", "wanted")
        data = {key: str(self.data.get(key, "")).strip() for key in names}
        pickle = {"pickle": True} if self.data.get("pickle") else {}
        if data["kind"] == "demo":
            return {"demo": data["demo"] or DEMO}
        if data["kind"] == "huggingface":
            found: dict[str, Any] = {"repo": data["repo"]}
            if data["revision"]:
                found["revision"] = data["revision"]
            files = [name.strip() for name in data["wanted"].split(",") if name.strip()]
            return {"huggingface": {**found, "files": files} if files else found, **pickle}
        kind = "archive" if data["kind"] == "archive" else "path"
        return {kind: data[kind], **pickle}


class HubAccessForm(forms.Form):
    """Mirror and token. The token is written only: what is kept is never shown."""

    endpoint = forms.CharField(
        label=_("Mirror"),
        required=False,
        max_length=500,
        widget=forms.URLInput(attrs=_PATH),
        help_text=_("Address of a hub of your own or of a mirror. Empty: the Hugging Face hub."),
    )
    token = forms.CharField(
        label=_("New token"),
        required=False,
        max_length=500,
        widget=forms.PasswordInput(attrs={"autocomplete": "off", "class": "input mono"}),
        help_text=_("For gated and private repositories; read access is enough. It is kept encrypted."),
    )
    remove_token = forms.BooleanField(label=_("Remove the token"), required=False)

    def values(self) -> dict[str, Any]:
        """What changes, as the service spells it."""
        found: dict[str, Any] = {"endpoint": self.cleaned_data["endpoint"]}
        if self.cleaned_data["remove_token"]:
            found["token"] = None
        elif self.cleaned_data["token"]:
            found["token"] = self.cleaned_data["token"]
        return found


class BuildForm(forms.Form):
    """An existing build profile, or a new one from a checkpoint and a weight type."""

    mode = forms.ChoiceField(
        label=_("Recipe"),
        choices=[("new", _("New build profile")), ("profile", _("Existing build profile"))],
        initial="new",
        widget=forms.RadioSelect,
    )
    profile = forms.ModelChoiceField(
        label=_("Build profile"),
        queryset=BuildProfile.objects.select_related("checkpoint"),
        required=False,
        to_field_name="name",
        empty_label=_("Choose a profile"),
    )
    checkpoint = forms.ModelChoiceField(
        label=_("Checkpoint"),
        queryset=Checkpoint.objects.filter(state=READY),
        required=False,
        to_field_name="name",
        empty_label=_("Choose a checkpoint"),
    )
    quantization = forms.ChoiceField(
        label=_("Weight type"), choices=Quantization.choices, initial=Quantization.F16, required=False
    )
    name = forms.CharField(
        label=_("Name of the profile"),
        required=False,
        max_length=63,
        widget=forms.TextInput(attrs=_NAME),
        help_text=_("Left empty: the checkpoint and the type."),
    )


class DeploymentForm(PolicyForm):
    """What a deployment serves, how requests share it, and how often."""

    name = forms.CharField(
        label=_("Public name"),
        max_length=63,
        widget=forms.TextInput(attrs=_NAME),
        help_text=_("Clients call the deployment by this name. It stays as it is."),
    )
    build_profile = forms.ModelChoiceField(
        label=_("Build profile"),
        queryset=BuildProfile.objects.select_related("checkpoint"),
        to_field_name="name",
        empty_label=_("Choose a profile"),
    )
    batching = forms.ModelChoiceField(
        label=_("Batching profile"),
        queryset=BatchingProfile.objects.all(),
        to_field_name="name",
        empty_label=_("Choose a profile"),
        help_text=_("How requests share the engine."),
    )
    replicas = forms.IntegerField(label=_("Replicas"), initial=1, min_value=1, max_value=64)
    device = forms.ChoiceField(
        label=_("Device"),
        choices=[("any", _("any")), ("cpu", _("CPU slot")), ("gpu", _("GPU"))],
        initial="any",
    )
    deploy = forms.BooleanField(label=_("Deploy at once"), required=False, initial=True)

    def values(self) -> dict[str, Any]:
        """The columns as services spell them."""
        data = self.cleaned_data
        return {
            "name": data["name"],
            "build_profile": data["build_profile"],
            "batching": data["batching"],
            "replicas": data["replicas"],
            "placement": {"device": data["device"]},
            **policy_values(data),
        }
