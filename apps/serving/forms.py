"""The admin's forms of batching profiles and deployments."""

from __future__ import annotations

from typing import Any

from django import forms
from django.utils.translation import gettext_lazy as _
from unfold.widgets import UnfoldAdminIntegerFieldWidget, UnfoldAdminSelectWidget

from apps.accounts.service_admin import ServiceForm
from apps.serving.models import BatchingProfile, Deployment


class BatchingProfileForm(ServiceForm):
    """Each field with its default, its meaning and what it costs."""

    class Meta:
        model = BatchingProfile
        fields = [
            "name",
            "strategy",
            "max_batch_size",
            "max_queue_delay_microseconds",
            "max_seq_len",
            "max_queue_size",
            "threads",
        ]
        help_texts = {
            "name": _(
                "How deployments and the API call it: lower-case letters, digits, dots, dashes, underscores."
            ),
            "strategy": _(
                "What the engine does with requests that arrive while it works. Default in-flight: each joins the "
                "running batch at the next token. None runs one at a time: lowest latency alone, lowest throughput."
            ),
            "max_batch_size": _(
                "Sequences that generate at once (slots). Default 16. Cost: the KV cache grows with it, and "
                "each answer gets slower while more of them run. Not used with strategy none."
            ),
            "max_queue_delay_microseconds": _(
                "How long a request may be held back to fill a batch. Default 0. Cost: adds to TTFT. The llama.cpp "
                "engine joins requests at once and does not use it."
            ),
            "max_seq_len": _(
                "Longest prompt and answer together, in tokens, for each sequence. Default 1024. Cost: the "
                "KV cache grows with it; longer requests are refused."
            ),
            "max_queue_size": _(
                "Requests that may wait for a slot. Default 256. Beyond it requests are refused at once, which is "
                "better than a TTFT that nobody waits for; 0 lets none wait."
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
