"""The admin's form of deployments; that of batching profiles is profile_form."""

from __future__ import annotations

from copy import deepcopy
from typing import Any, cast

from django import forms
from django.utils.translation import gettext_lazy as _
from unfold.widgets import (
    UnfoldAdminIntegerFieldWidget,
    UnfoldAdminSelectWidget,
    UnfoldAdminTextareaWidget,
    UnfoldAdminTextInputWidget,
)

from apps.accounts.service_admin import ServiceForm
from apps.serving import place_shapes
from apps.serving.domain.trtllm import settings
from apps.serving.models import Deployment
from apps.serving.policy_forms import PolicyForm, form_field, policy_initial, policy_values
from apps.serving.profile_form import setting_field

# The engine's own folder is filled in from the build.
PLACED_FIELDS: dict[str, str] = {f"trtllm_{key}": key for key in settings.PLACED if key != "gpt_model_path"}


def _placed_field(item: settings.Setting) -> forms.Field:
    field = setting_field(item)
    field.help_text = item.meaning if item.cost == "none." else f"{item.meaning} {_('Cost')}: {item.cost}"
    return field


def _policy_field(field: forms.Field) -> forms.Field:
    """A field of the page's form as the admin draws it."""
    if isinstance(field.widget, forms.Textarea):
        field.widget = UnfoldAdminTextareaWidget(attrs={"rows": 3})
    elif isinstance(field, forms.CharField):
        field.widget = UnfoldAdminTextInputWidget(
            attrs={"placeholder": field.widget.attrs.get("placeholder", "")}
        )
    else:
        step = {"step": "any"} if isinstance(field, forms.FloatField) else {}
        field.widget = UnfoldAdminIntegerFieldWidget(attrs=step)
    return field


class _DeploymentForm(ServiceForm):
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

    place = forms.JSONField(
        label=_("Where it may be"),
        required=False,
        widget=UnfoldAdminTextareaWidget(
            attrs={"rows": 3, "placeholder": '{"gpus": 2, "labels": {"rack": "a"}}'}
        ),
        help_text=_(
            "Wishes for the place as JSON: gpus, memory, nodes, slots, labels, versions, mig, nvlink, strategy, "
            "purpose, mps. Empty: any place that fits. docs/fleet.md says what each means."
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
        for name, value in policy_initial(self.instance).items():
            self.initial.setdefault(name, value)
        placement = self.instance.placement or {}
        self.initial.setdefault("device", placement.get("device", "any"))
        self.initial.setdefault("share", placement.get("share"))
        wishes = {key: value for key, value in placement.items() if key in place_shapes.KEYS}
        self.initial.setdefault("place", wishes or None)
        chosen = placement.get("trtllm", {})
        for name, key in PLACED_FIELDS.items():
            self.initial.setdefault(name, chosen.get(key))

    def clean_place(self) -> dict[str, Any]:
        """The wishes are a mapping."""
        wishes = self.cleaned_data.get("place")
        if wishes in (None, "", {}):
            return {}
        if not isinstance(wishes, dict):
            raise forms.ValidationError(_('Write a mapping, such as {"gpus": 2}.'), code="invalid_value")
        return wishes

    def placement(self) -> dict[str, Any]:
        """The placement as the service takes it."""
        found: dict[str, Any] = {
            **(self.cleaned_data.get("place") or {}),
            "device": self.cleaned_data.get("device", "any"),
        }
        if self.cleaned_data.get("share") is not None:
            found["share"] = self.cleaned_data["share"]
        given = {key: self.cleaned_data.get(name) for name, key in PLACED_FIELDS.items()}
        if chosen := {key: value for key, value in given.items() if value not in (None, "")}:
            found["trtllm"] = chosen
        return found

    def policies(self) -> dict[str, Any]:
        """Service level, roll-out and scaling as the service takes them."""
        return policy_values(self.cleaned_data)

    def _form_field(self, name: str) -> str | None:
        if name.split(".")[0] in ("slo", "rollout", "scaling"):
            return form_field(name)
        if name.startswith("placement.trtllm."):
            return f"trtllm_{name.removeprefix('placement.trtllm.')}"
        if name in ("placement.share", "placement.device"):
            return name.removeprefix("placement.")
        return "place" if name.startswith("placement.") else super()._form_field(name)


DeploymentForm = cast(
    "type[_DeploymentForm]",
    type(
        "DeploymentForm",
        (_DeploymentForm,),
        {"__module__": __name__, "__doc__": "Placement and policies as fields, not as JSON."}
        | {name: _policy_field(deepcopy(field)) for name, field in PolicyForm.base_fields.items()}
        | {name: _placed_field(settings.PLACED[key]) for name, key in PLACED_FIELDS.items()},
    ),
)
