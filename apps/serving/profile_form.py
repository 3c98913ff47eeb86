"""The admin's form of a batching profile: typed fields for every setting, with words, and why one does nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from django import forms
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _t
from django.utils.translation import gettext_lazy as _
from unfold.widgets import (
    UnfoldAdminIntegerFieldWidget,
    UnfoldAdminSelectWidget,
    UnfoldAdminTextInputWidget,
    UnfoldBooleanSwitchWidget,
)

from apps.accounts.service_admin import ServiceForm
from apps.core.exceptions import InvalidInput
from apps.serving import trtllm_files
from apps.serving.domain import acting, field_words, presets
from apps.serving.domain.priority_reach import LEVELS
from apps.serving.domain.trtllm import settings
from apps.serving.domain.trtllm.settings import Setting
from apps.serving.models import BatchingProfile

USE_CLASSES = "use_classes"
_CLASS_FIELDS = ("max_queue_size", "queue_timeout_microseconds")
# Form fields of one class and the field of the profile whose reason they share.
CLASS_FIELDS: dict[str, tuple[str, str]] = {
    f"{name}_{key}": (name, key) for name in LEVELS for key in _CLASS_FIELDS
}
_ON_OFF = [("", _("default")), ("true", _("on")), ("false", _("off"))]


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


def _on_off(value: str) -> bool:
    return value == "true"


def setting_field(item: Setting) -> forms.Field:
    """The form field of a setting; empty means TensorRT-LLM's own default."""
    common: dict[str, Any] = {"label": item.title, "required": False}
    if item.form == "bool":
        return forms.TypedChoiceField(
            **common, choices=_ON_OFF, coerce=_on_off, empty_value=None, widget=UnfoldAdminSelectWidget
        )
    if item.choices:
        choices = [("", _("default")), *((word, word) for word in item.choices)]
        return forms.ChoiceField(**common, choices=choices, widget=UnfoldAdminSelectWidget)
    if item.form == "fraction":
        return forms.FloatField(
            **common, widget=UnfoldAdminIntegerFieldWidget(attrs={"step": "any", "min": "0", "max": "1"})
        )
    if item.form == "int":
        return forms.IntegerField(
            **common, min_value=item.least, max_value=item.most, widget=UnfoldAdminIntegerFieldWidget
        )
    return forms.CharField(**common, max_length=4000, widget=UnfoldAdminTextInputWidget)


SETTING_FIELDS: dict[str, str] = {f"trtllm_{key}": key for key in settings.PROFILE}


def profile_field(name: str) -> str:
    """The profile's field behind a form field, as `acting.acts` names it."""
    if name in SETTING_FIELDS:
        return f"trtllm.{SETTING_FIELDS[name]}"
    return "priority_classes" if name == USE_CLASSES or name in CLASS_FIELDS else name


# Fields of the form that are columns of the profile under the same name.
OWN_FIELDS = [
    "name",
    "engine",
    "strategy",
    "max_batch_size",
    "max_seq_len",
    "threads",
    "max_queue_size",
    "max_queue_delay_microseconds",
    "preferred_batch_sizes",
    "queue_timeout_microseconds",
    "timeout_action",
    "allow_timeout_override",
    "preserve_ordering",
    "default_priority_class",
]


class _ProfileForm(ServiceForm):
    preferred_batch_sizes = WholeNumbersField(label=_("Preferred batch sizes"), required=False)
    default_priority_class = forms.ChoiceField(
        label=_("Class of other requests"),
        choices=[("", _("default")), *((name, name) for name in LEVELS)],
        required=False,
        widget=UnfoldAdminSelectWidget,
    )
    use_classes = forms.BooleanField(
        label=_("Order Triton's queue by class"), required=False, widget=UnfoldBooleanSwitchWidget
    )
    # Set by the admin: values to begin with, as ?preset=latency asks for.
    preset = ""

    class Meta:
        model = BatchingProfile
        fields = OWN_FIELDS
        help_texts = {
            "name": _(
                "How deployments and the API call it: lower-case letters, digits, dots, dashes, underscores."
            ),
        }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if not self.is_bound:
            self._begin_with(self.instance)
            if self.preset:
                self._begin_with_preset()
        reasons = self.reasons()
        for name, item in self.fields.items():
            field = profile_field(name)
            if field != "name":
                item.help_text = _help(name, field, self.reason(name, reasons))

    def _begin_with(self, row: BatchingProfile) -> None:
        chosen = row.trtllm or {}
        for name, key in SETTING_FIELDS.items():
            value = chosen.get(key)
            self.initial[name] = str(value).lower() if isinstance(value, bool) else value
        classes = {item["name"]: item for item in row.priority_classes or []}
        self.initial[USE_CLASSES] = bool(classes)
        for name, (label, key) in CLASS_FIELDS.items():
            self.initial[name] = classes.get(label, {}).get(key)

    def _begin_with_preset(self) -> None:
        values = presets.preset(self.preset, self.engine())
        for name, value in values.items():
            if name in self.fields:
                self.initial[name] = value
        chosen = values.get("trtllm", {})
        for name, key in SETTING_FIELDS.items():
            value = chosen.get(key)
            self.initial[name] = str(value).lower() if isinstance(value, bool) else value

    def engine(self) -> acting.EngineKind:
        """The engine that is chosen now."""
        given = self.data.get("engine") if self.is_bound else self.initial.get("engine", self.instance.engine)
        row = BatchingProfile(engine=str(given))
        return trtllm_files.kind_of_profile(row)

    def reason(self, name: str, reasons: Mapping[str, str | None]) -> str | None:
        """Why a field of the form does nothing, given the answer of `reasons`."""
        given = reasons.get(profile_field(name))
        if given is None and name in CLASS_FIELDS and not self._uses_classes():
            return _t("Only where the queue is ordered by class.")
        return given

    def _uses_classes(self) -> bool:
        return bool(self.data.get(USE_CLASSES) if self.is_bound else self.initial.get(USE_CLASSES))

    def reasons(self) -> dict[str, str | None]:
        """Why each field does nothing, null where it acts, for what is in the form now."""
        values: dict[str, Any] = {
            name: self.data.get(name) if self.is_bound else self.get_initial_for_field(item, name)
            for name, item in self.fields.items()
        }
        values["trtllm"] = {key: _plain(values.get(name)) for name, key in SETTING_FIELDS.items()}
        timeouts = [values.get(f"{name}_queue_timeout_microseconds") for name in LEVELS]
        values["priority_classes"] = (
            [{"queue_timeout_microseconds": _whole(value)} for value in timeouts]
            if values[USE_CLASSES]
            else []
        )
        values["queue_timeout_microseconds"] = _whole(values.get("queue_timeout_microseconds"))
        return acting.acts(values, self.engine())

    def clean(self) -> dict[str, Any]:
        """Put settings and classes into the profile's own fields; each fault is shown at the field that has it."""
        data = super().clean() or {}
        given = {key: data.get(name) for name, key in SETTING_FIELDS.items()}
        try:
            data["trtllm"] = settings.check(given, settings.PROFILE, "trtllm")
        except InvalidInput as error:
            data["trtllm"] = {}
            for found in error.findings:
                self.add_error(self._form_field(found.where), f"{found.message} {found.remedy}")
        data["priority_classes"] = self._classes(data)
        self.instance.trtllm, self.instance.priority_classes = data["trtllm"], data["priority_classes"]
        return data

    def _classes(self, data: Mapping[str, Any]) -> list[dict[str, Any]]:
        if not data.get(USE_CLASSES):
            return []
        found: dict[str, dict[str, Any]] = {name: {"name": name} for name in LEVELS}
        for name, (label, key) in CLASS_FIELDS.items():
            if data.get(name) is not None:
                found[label][key] = data[name]
        return list(found.values())

    def values(self) -> dict[str, Any]:
        """What the service takes."""
        names = [*OWN_FIELDS, "trtllm", "priority_classes"]
        return {name: self.cleaned_data[name] for name in names if name in self.cleaned_data}

    def _form_field(self, name: str) -> str | None:
        if name.startswith("trtllm."):
            return f"trtllm_{name.removeprefix('trtllm.')}"
        return USE_CLASSES if name.startswith("priority_classes") else super()._form_field(name)


def _plain(value: Any) -> Any:
    return True if value == "true" else None if value in ("", "false") else value


def _whole(value: Any) -> int:
    text = str(value or "")
    return int(text) if text.isdecimal() else 0


def _help(name: str, field: str, reason: str | None) -> SafeString:
    words = field_words.words(field)
    if name in CLASS_FIELDS:
        return format_html("{}{}", _t("Empty: as for every request."), reason_tag(name, reason))
    metric = (
        format_html('<span class="inf-fact">{} {}</span>', _t("Shown by"), words.metric)
        if words.metric
        else ""
    )
    default = (
        format_html('<span class="inf-fact">{} {}</span>', _t("Default"), words.default)
        if words.default
        else ""
    )
    cost = "" if words.cost == "none." else format_html(" {}: {}", _t("Cost"), words.cost)
    facts = format_html('<span class="inf-facts">{}{}</span>', default, metric) if default or metric else ""
    return format_html("{}{}{}{}", words.meaning, cost, facts, reason_tag(name, reason))


def reason_tag(name: str, reason: str | None, *, swap: bool = False) -> SafeString:
    """Where a field says why it does nothing; empty where it acts. `swap`: to replace the one on the page."""
    attribute = SafeString(' hx-swap-oob="true"') if swap else ""
    return format_html('<span class="inf-idle" id="idle-{}"{}>{}</span>', name, attribute, reason or "")


def _class_field(key: str, label: str) -> forms.Field:
    title = _("%(name)s: waiting requests") if key == "max_queue_size" else _("%(name)s: queue timeout (µs)")
    most = 100_000 if key == "max_queue_size" else 600_000_000
    return forms.IntegerField(
        label=str(title) % {"name": label},
        required=False,
        min_value=0,
        max_value=most,
        widget=UnfoldAdminIntegerFieldWidget,
    )


_DECLARED: dict[str, Any] = {
    name: setting_field(settings.PROFILE[key]) for name, key in SETTING_FIELDS.items()
} | {name: _class_field(key, label) for name, (label, key) in CLASS_FIELDS.items()}
BatchingProfileForm = cast(
    "type[_ProfileForm]",
    type(
        "BatchingProfileForm",
        (_ProfileForm,),
        {
            "__module__": __name__,
            "__doc__": "Each field with its default, meaning, cost and figure.",
            **_DECLARED,
        },
    ),
)
