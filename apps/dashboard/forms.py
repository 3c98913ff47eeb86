"""Forms of the pages. They shape what a person types; services decide whether it is good."""

from __future__ import annotations

from typing import Any

from django import forms
from django.utils.translation import gettext_lazy as _

from apps.engines.models import BuildProfile, Quantization
from apps.registry.models import Checkpoint
from apps.registry.states import READY
from apps.serving.models import BatchingProfile, Deployment

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


class DeploymentForm(forms.Form):
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
    slo_ttft_ms = forms.FloatField(
        label=_("TTFT at most (ms)"), required=False, help_text=_("90th percentile. Empty: not promised.")
    )
    slo_itl_ms = forms.FloatField(
        label=_("ITL at most (ms)"), required=False, help_text=_("90th percentile between two tokens.")
    )
    slo_error_percent = forms.FloatField(
        label=_("Failed requests at most (%)"),
        required=False,
        min_value=0,
        max_value=100,
        help_text=_("Failed and rejected among all."),
    )
    slo_window_seconds = forms.IntegerField(
        label=_("Judged over (s)"), required=False, help_text=_("Empty: 300.")
    )
    max_surge = forms.IntegerField(
        label=_("Servers beyond the wanted number"),
        required=False,
        min_value=0,
        help_text=_("Empty: 1, so that a new server starts beside the old one. Cost: memory for both."),
    )
    max_unavailable = forms.IntegerField(
        label=_("Servers that may be missing"),
        required=False,
        min_value=0,
        help_text=_("Empty: 0. More is quicker, and requests wait meanwhile."),
    )
    progress_seconds = forms.IntegerField(
        label=_("Longest time without progress (s)"),
        required=False,
        help_text=_("Empty: 600. Then the revision before goes on."),
    )
    drain_seconds = forms.IntegerField(
        label=_("Time for streams to end (s)"),
        required=False,
        min_value=0,
        help_text=_("Empty: 120. A replaced server is ended when its streams are, or after this."),
    )
    canary = forms.CharField(
        label=_("Canary steps"),
        required=False,
        max_length=200,
        widget=forms.TextInput(
            attrs={"autocomplete": "off", "class": "input mono", "placeholder": "10:300, 50:600"}
        ),
        help_text=_(
            "Percent of new requests and seconds, as 10:300, 50:600. Each step is judged by the service level. "
            "Empty: all at once."
        ),
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
            "slo": self._slo(),
            "rollout": self._rollout(),
        }

    def _slo(self) -> dict[str, Any]:
        data = self.cleaned_data
        percent = data["slo_error_percent"]
        found = {
            "ttft_ms": data["slo_ttft_ms"],
            "itl_ms": data["slo_itl_ms"],
            "error_rate": percent / 100 if percent is not None else None,
            "window_seconds": data["slo_window_seconds"],
        }
        return {key: value for key, value in found.items() if value is not None}

    def _rollout(self) -> dict[str, Any]:
        names = ("max_surge", "max_unavailable", "progress_seconds", "drain_seconds")
        found = {name: self.cleaned_data[name] for name in names if self.cleaned_data[name] is not None}
        return {**found, "canary": self.cleaned_data["canary"]} if self.cleaned_data["canary"] else found

    def clean_canary(self) -> list[dict[str, int]]:
        """The steps. Raises ValidationError naming the word that is none."""
        steps = []
        for word in str(self.cleaned_data["canary"]).replace(",", " ").split():
            weight, colon, seconds = word.partition(":")
            if not (colon and weight.isdecimal() and seconds.isdecimal() and len(word) < 16):
                raise forms.ValidationError(
                    _("%(word)s is no step; write percent:seconds, as 10:300."), params={"word": word}
                )
            steps.append({"weight": int(weight), "seconds": int(seconds)})
        return steps


def policy_initial(row: Deployment) -> dict[str, Any]:
    """What the fields of service level and roll-out show of a deployment: only what was set."""
    slo, rollout = dict(row.slo), dict(row.rollout)
    rate = slo.get("error_rate")
    steps = rollout.get("canary", [])
    return {
        "slo_ttft_ms": slo.get("ttft_ms"),
        "slo_itl_ms": slo.get("itl_ms"),
        "slo_error_percent": rate * 100 if rate is not None else None,
        "slo_window_seconds": slo.get("window_seconds"),
        **{
            key: rollout.get(key)
            for key in ("max_surge", "max_unavailable", "progress_seconds", "drain_seconds")
        },
        "canary": ", ".join(f"{step['weight']}:{step['seconds']}" for step in steps),
    }


# Which field of the form shows what the service says of a part of a document.
POLICY_FIELDS = {
    "placement.device": "device",
    "slo": "slo_ttft_ms",
    "slo.ttft_ms": "slo_ttft_ms",
    "slo.itl_ms": "slo_itl_ms",
    "slo.error_rate": "slo_error_percent",
    "slo.window_seconds": "slo_window_seconds",
    "rollout": "canary",
    "rollout.canary": "canary",
    "rollout.max_surge": "max_surge",
    "rollout.max_unavailable": "max_unavailable",
    "rollout.progress_seconds": "progress_seconds",
    "rollout.drain_seconds": "drain_seconds",
}
