"""The admin's forms of batching profiles and deployments."""

from __future__ import annotations

from typing import Any

from django import forms
from django.utils.translation import gettext_lazy as _
from unfold.widgets import UnfoldAdminIntegerFieldWidget, UnfoldAdminSelectWidget, UnfoldAdminTextInputWidget

from apps.accounts.service_admin import ServiceForm
from apps.serving.models import BatchingProfile, Deployment


class WholeNumbersField(forms.CharField):
    """A list of whole numbers, written with commas or spaces between them."""

    widget = UnfoldAdminTextInputWidget

    def prepare_value(self, value: Any) -> Any:
        """The list as it is written."""
        return ", ".join(map(str, value)) if isinstance(value, list) else value

    def to_python(self, value: Any) -> Any:
        """The numbers. Raises ValidationError naming what is none."""
        if isinstance(value, list):
            return value
        words = str(value or "").replace(",", " ").split()
        wrong = next((word for word in words if not word.isdecimal() or len(word) > 6), None)
        if wrong is not None:
            raise forms.ValidationError(
                _("%(word)s is no whole number; write them as 4, 8."), params={"word": wrong}
            )
        return [int(word) for word in words]

    def has_changed(self, initial: Any, data: Any) -> bool:
        """Compare numbers, not texts."""
        try:
            return bool((initial or []) != self.to_python(data))
        except forms.ValidationError:
            return True


class BatchingProfileForm(ServiceForm):
    """Each field with its default, its meaning and what it costs."""

    preferred_batch_sizes = WholeNumbersField(
        label=_("Preferred batch sizes"),
        required=False,
        help_text=_(
            "Strategy dynamic alone: sizes that Triton sends as soon as they are reached, as 4, 8. Default empty: "
            "whatever came within the delay. Cost: a size that never comes about only adds waiting; see the "
            "executed batch sizes on the deployment's page."
        ),
    )

    class Meta:
        model = BatchingProfile
        fields = [
            "name",
            "strategy",
            "max_batch_size",
            "max_queue_delay_microseconds",
            "max_seq_len",
            "max_queue_size",
            "queue_timeout_microseconds",
            "preferred_batch_sizes",
            "threads",
        ]
        help_texts = {
            "name": _(
                "How deployments and the API call it: lower-case letters, digits, dots, dashes, underscores."
            ),
            "strategy": _(
                "What the engine does with requests that arrive while it works. Default in-flight: each joins the "
                "running batch at the next token. Dynamic and static: Triton forms batches, each ends with its "
                "longest answer. None runs one at a time: lowest latency alone, lowest throughput."
            ),
            "max_batch_size": _(
                "Sequences that generate at once (slots). Default 16. Cost: the KV cache grows with it, and "
                "each answer gets slower while more of them run. Not used with strategy none."
            ),
            "max_queue_delay_microseconds": _(
                "How long a request may be held back to fill a batch, strategies dynamic and static (there 0 means "
                "1 s). Default 0. Cost: adds to TTFT. In-flight joins requests at once and does not use it."
            ),
            "max_seq_len": _(
                "Longest prompt and answer together, in tokens, for each sequence. Default 1024. Cost: the "
                "KV cache grows with it; longer requests are refused."
            ),
            "max_queue_size": _(
                "Requests that may wait for a slot. Default 256. Beyond it requests are refused at once, which is "
                "better than a TTFT that nobody waits for; 0 lets none wait."
            ),
            "queue_timeout_microseconds": _(
                "How long a request may wait in Triton's queue, strategies dynamic and static. Default 0: for ever. "
                "Cost: what waits longer is refused; refusals are counted on the deployment's page."
            ),
            "threads": _(
                "CPU threads of the engine. Default 0: every core. Cost: more than there are cores makes them wait "
                "for each other; fewer leave room for other work on the node."
            ),
        }


class DeploymentForm(ServiceForm):
    """Placement as fields instead of JSON."""

    service_names = {"placement": "device"}

    device = forms.ChoiceField(
        label=_("Device"),
        choices=[("any", _("any")), ("cpu", _("CPU")), ("gpu", _("GPU"))],
        widget=UnfoldAdminSelectWidget,
        help_text=_("Where instances run. Default any: a GPU where one is free, else a CPU slot."),
    )
    share = forms.IntegerField(
        label=_("Share of the slot (%)"),
        required=False,
        min_value=1,
        max_value=100,
        widget=UnfoldAdminIntegerFieldWidget,
        help_text=_(
            "How much of a slot each instance takes, in hundredths. Empty: the default of its device. Cost: what is "
            "taken is not there for builds and other deployments."
        ),
    )

    class Meta:
        model = Deployment
        fields = ["name", "build_profile", "batching", "replicas"]
        help_texts = {
            "name": _("What clients call the model. It cannot change later."),
            "build_profile": _(
                "Which engine is served. Without one a build is started, and the deployment waits for it."
            ),
            "batching": _("How requests share the engine."),
            "replicas": _(
                "Servers of the same revision. Default 1. Cost: each one holds its own weights and KV cache."
            ),
        }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        placement = self.instance.placement or {}
        self.initial.setdefault("device", placement.get("device", "any"))
        self.initial.setdefault("share", placement.get("share"))

    def placement(self) -> dict[str, Any]:
        """The placement as the service takes it."""
        found: dict[str, Any] = {"device": self.cleaned_data.get("device", "any")}
        if self.cleaned_data.get("share") is not None:
            found["share"] = self.cleaned_data["share"]
        return found

    def _form_field(self, name: str) -> str | None:
        return "share" if name == "placement.share" else super()._form_field(name)
