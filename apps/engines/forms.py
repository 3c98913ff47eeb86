"""The admin's forms of build profiles and quantization profiles, made from the flag tables."""

from __future__ import annotations

from typing import Any

from django import forms
from django.utils.functional import Promise
from django.utils.translation import gettext as _t
from django.utils.translation import gettext_lazy as _
from unfold.widgets import UnfoldAdminSelectWidget

from apps.accounts.service_admin import ServiceForm
from apps.engines.domain.memory.gpus import GPUS
from apps.engines.domain.trtllm import build_flags, conversion_flags
from apps.engines.domain.trtllm.rules import OURS_BUILD
from apps.engines.flag_fields import fields_of, groups_of, known_in, name_of, values_of
from apps.engines.models import BuildProfile, QuantizationProfile
from apps.engines.requests import NEWEST_RELEASE
from apps.engines.trtllm_checks import offers

# Flags that people set; folders of an attempt are Inflight's own.
BUILD = tuple(flag for flag in build_flags.BUILD_FLAGS if flag.name not in OURS_BUILD)
CONVERT = tuple(conversion_flags.CONVERT_OPTIONS.values())
QUANTIZE = tuple(conversion_flags.QUANTIZE_OPTIONS.values())
SECTIONS = {"build": BUILD, "convert": CONVERT}
BUILD_GROUPS = groups_of("build", BUILD, build_flags.GROUPS)
CONVERT_GROUPS = groups_of("convert", CONVERT, conversion_flags.GROUPS)
QUANTIZE_GROUPS = groups_of("quantize", QUANTIZE, conversion_flags.GROUPS)
RANKS = ("tp", "pp", "cp", "moe_ep")
NAME_HELP = _("How deployments and the API call it: lower-case letters, digits, dots, dashes, underscores.")
# Where a finding points, by the field of the form; names of flags map by themselves.
_PLACES = {
    "quantization": "quantization_profile",
    "parallel": "tp",
    "parallel.pp": "pp",
    "parallel.cp": "cp",
    "parallel.moeEp": "moe_ep",
    "target": "gpu",
    "target.gpus": "gpus",
    "target.tensorrtLlm": "tensorrt_llm",
    "target.toolchain": "toolchain",
}


def build_field(where: str, builder: str) -> str:
    """Name of the form's field that a finding of a build profile is about; "" for none."""
    section, _dot, rest = where.partition(".")
    if section in SECTIONS:
        return f"{section}__{rest}"
    if where == "quantization" and builder == BuildProfile.Builder.LLAMACPP:
        return where
    return _PLACES.get(where) or _PLACES.get(section) or section


def quantization_field(where: str) -> str:
    """The same for a quantization profile."""
    path = where.removeprefix("quantization.")
    if path.startswith("options."):
        return f"quantize__{path.removeprefix('options.')}"
    names = {
        "kvCacheDtype": "kv_cache_dtype",
        "groupSize": "group_size",
        "quantizeLmHead": "quantize_lm_head",
        "calibration.dataset": "calib_dataset",
        "calibration.size": "calib_size",
        "calibration.maxSeqLength": "calib_max_seq_length",
        "calibration.batchSize": "calib_batch_size",
        "quantization": "format",
    }
    return names.get(path, path)


class FlagsForm(ServiceForm):
    """A form some of whose fields are flags. `flag_values` gives those that were set."""

    flag_sections: dict[str, tuple[Any, ...]] = {}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for section, flags in self.flag_sections.items():
            stored = self.stored_flags(section)
            for flag in flags:
                name = name_of(section, flag)
                if name in self.fields and flag.name in stored:
                    self.initial.setdefault(name, stored[flag.name])

    def stored_flags(self, section: str) -> dict[str, Any]:
        """Flags that the row has."""
        return {}

    def flag_values(self, section: str) -> dict[str, Any]:
        """Flags that the form sets, defaults left out. Where the form was not sent, the row's."""
        if not self.is_bound:
            return self.stored_flags(section)
        return values_of(getattr(self, "cleaned_data", {}), section, self.flag_sections[section])


def _not_offered(label: Any) -> str:
    return _t("%(recipe)s (no node offers it now)") % {"recipe": label}


def _release_of(form: forms.BaseForm) -> str:
    if form.is_bound:
        typed = form.data.get(form.add_prefix("tensorrt_llm"), "")
    else:
        typed = form.initial.get("tensorrt_llm") or ""
    return str(typed).strip() or NEWEST_RELEASE


class _BuildFlags(FlagsForm):
    flag_sections = SECTIONS

    def stored_flags(self, section: str) -> dict[str, Any]:
        options = self.instance.options if isinstance(self.instance.options, dict) else {}
        trtllm = self.instance.builder == BuildProfile.Builder.TRTLLM
        found = options.get(section, {}) if trtllm else {}
        return found if isinstance(found, dict) else {}


_WithFlags: Any = type(
    "_WithFlags", (_BuildFlags,), {**fields_of("build", BUILD), **fields_of("convert", CONVERT)}
)


class BuildProfileForm(_WithFlags):
    """Each field with its default, its meaning and what it costs."""

    class Meta:
        model = BuildProfile
        fields = [
            "name",
            "checkpoint",
            "builder",
            "quantization",
            "recipe",
            "dtype",
            "quantization_profile",
            *RANKS,
            *("gpu", "gpus", "tensorrt_llm", "toolchain"),
        ]
        widgets = {
            "gpu": UnfoldAdminSelectWidget(
                choices=[("", _("not chosen")), *((row.key, row.label) for row in GPUS)]
            ),
            "toolchain": UnfoldAdminSelectWidget,
        }
        help_texts = {
            "name": NAME_HELP,
            "checkpoint": _(
                "The weights to build from: a GGUF file for llama.cpp, a Hugging Face folder for TensorRT-LLM. Only "
                "one in state ready can be built."
            ),
            "builder": _(
                "What makes the engine. Default llama.cpp: runs on any CPU, no GPU needed. TensorRT-LLM: NVIDIA "
                "GPUs, and a node with a toolchain for it."
            ),
            "quantization": _(
                "Weight type of the engine. Default F16: 16 bits a weight, nothing is lost. Fewer bits take less "
                "memory and run faster on a CPU; below 5 bits answers become noticeably worse."
            ),
            "recipe": _(
                "Default auto: what the chosen toolchain can do. engine compiles; checkpoint serves the checkpoint "
                "with the PyTorch backend and takes no build flags. Which one is faster depends on model and load: "
                "measure both."
            ),
            "dtype": _(
                "Type of weights and activations that are not quantised. Default auto: the checkpoint's own, float16 "
                "for a float32 one. bfloat16 needs Ampere or later."
            ),
            "quantization_profile": _(
                "How weights and KV cache are stored. Default none: as the checkpoint has them."
            ),
            "tp": _(
                "GPUs that share each layer. Default 1. Must divide the attention heads; needs fast links between "
                "GPUs. The conversion fixes it for the engine's life."
            ),
            "pp": _(
                "GPUs that share the layers in turn. Default 1. Must divide the layers; adds latency, needs no "
                "fast links."
            ),
            "cp": _("GPUs that share a long context. Default 1. Not verified."),
            "moe_ep": _(
                "Ranks that hold whole experts instead of a slice of each. Default 1. Must divide tp; mixtures of "
                "experts alone."
            ),
            "gpu": _(
                "GPU that it is built and served on: decides what the rules allow and what the plan counts. Default: "
                "any, then neither is checked before a build."
            ),
            "gpus": _("GPUs of that host. Empty: not known. A build runs at most that many workers."),
            "tensorrt_llm": _(
                "Release that the flags are for, as 1.2.1. Default: that of the toolchain. 1.3 and later build no "
                "engines."
            ),
            "toolchain": _("Name of a node's toolchain. Default: any that fits."),
        }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # People who may only look get a form without fields.
        for name in (*RANKS, "recipe", "dtype"):
            if name in self.fields:
                self.fields[name].required = False
        self._offer()
        release = _release_of(self)
        for section, flags in SECTIONS.items():
            for flag in flags:
                name = name_of(section, flag)
                if name in self.fields and not known_in(flag, release):
                    self.fields[name].help_text = str(self.fields[name].help_text).replace(
                        'inf-flag-away" hidden', 'inf-flag-away"'
                    )

    def _offer(self) -> None:
        """Choices by what the nodes' probes found; what a document wrote by another name stays choosable."""
        if "gpu" not in self.fields:
            return
        known = offers()
        recipes = {offer.recipe for offer in known}
        self.fields["recipe"].choices = [
            (value, label if value == BuildProfile.Recipe.AUTO or value in recipes else _not_offered(label))
            for value, label in BuildProfile.Recipe.choices
        ]
        names = sorted({offer.toolchain for offer in known})
        self.fields["toolchain"].widget.choices = [
            ("", _("any that fits")),
            *((name, name) for name in names),
        ]
        for field in ("gpu", "toolchain"):
            widget, value = self.fields[field].widget, getattr(self.instance, field)
            if value and value not in {str(choice) for choice, _label in widget.choices}:
                widget.choices = [*widget.choices, (value, value)]

    def clean(self) -> dict[str, Any]:
        """What is left empty has its default."""
        data: dict[str, Any] = super().clean() or self.cleaned_data
        for name in RANKS:
            if data.get(name) is None and name not in self.errors:
                data[name] = 1
        for name in ("recipe", "dtype"):
            data[name] = data.get(name) or "auto"
        return data

    def _form_field(self, name: str) -> str | None:
        builder = str(self.data.get("builder", "")) if self.is_bound else str(self.instance.builder)
        found = build_field(name, builder)
        return found if found in self.fields else None

    def service_data(self) -> dict[str, Any]:
        """What the service is asked to save: the chosen builder's fields alone."""
        data = self.cleaned_data
        found: dict[str, Any] = {name: data[name] for name in ("name", "checkpoint", "builder")}
        if data["builder"] == BuildProfile.Builder.LLAMACPP:
            return {**found, "quantization": data["quantization"]}
        chosen = data.get("quantization_profile")
        return {
            **found,
            "quantization": chosen.name if chosen else "none",
            "recipe": data["recipe"],
            "dtype": data["dtype"],
            "parallel": {name: data[name] for name in RANKS},
            "target": {name: data[name] for name in ("gpu", "gpus", "tensorrt_llm", "toolchain")},
            "build": self.flag_values("build"),
            "convert": self.flag_values("convert"),
        }


class _QuantizeFlags(FlagsForm):
    flag_sections = {"quantize": QUANTIZE}

    def stored_flags(self, section: str) -> dict[str, Any]:
        return self.instance.options if isinstance(self.instance.options, dict) else {}


_WithQuantizeFlags: Any = type("_WithQuantizeFlags", (_QuantizeFlags,), fields_of("quantize", QUANTIZE))
# Names of the model's fields for the domain's.
_PLAIN = ("name", "format", "kv_cache_dtype", "group_size", "smoothquant", "per_channel", "per_token")


class QuantizationProfileForm(_WithQuantizeFlags):
    """Each field with its default, its meaning and what it costs."""

    class Meta:
        model = QuantizationProfile
        fields = [
            *_PLAIN,
            "quantize_lm_head",
            "weights",
            *("calib_dataset", "calib_size", "calib_max_seq_length", "calib_batch_size"),
        ]
        help_texts: dict[str, str | Promise] = {
            "name": NAME_HELP,
            "format": _(
                "What weights become. FP8: half the memory, from Ada (SM 89) on, little is lost. INT4 AWQ: a "
                "quarter, Ampere to Hopper. NVFP4: Blackwell. INT8 SmoothQuant: Ampere, weights and activations. "
                "Weights only: no calibration, saves memory rather than time."
            ),
            "kv_cache_dtype": _(
                "What keys and values are stored as. Default 16 bit. FP8 halves the cache and keeps KV reuse with "
                "FP8 weights alone; INT8 halves it and switches KV reuse and chunked context off."
            ),
            "group_size": _(
                "Weights that share a scale, for AWQ and GPTQ. Default 128. 64 is more exact and a little larger; "
                "kernels know no other. Must divide each rank's width."
            ),
            "smoothquant": _("How far outliers move from activations to weights, 0 to 1. Default 0.5."),
            "per_channel": _("SmoothQuant: a scale for each channel of the weights. Default on: more exact."),
            "per_token": _(
                "SmoothQuant: a scale for each token's activations. Default on: more exact, a little slower."
            ),
            "quantize_lm_head": _("The last layer too; FP8 alone. Default off: it is kept in 16 bit."),
            "weights": _(
                "Folder or file of weights that are quantised already, for GPTQ and AWQ. Default none."
            ),
            "calib_dataset": _(
                "Texts for calibration: cnn_dailymail is fetched from a hub while the build runs; a folder works "
                "offline, and its path must contain cnn_dailymail."
            ),
            "calib_size": _(
                "How many texts. Default 512; -1 for all. AWQ takes at most 32. More takes longer."
            ),
            "calib_max_seq_length": _("Tokens of each text. Default 512."),
            "calib_batch_size": _("Texts at once. Default 1; GPU memory grows with it."),
        }

    def _form_field(self, name: str) -> str | None:
        found = quantization_field(name)
        return found if found in self.fields else None

    def service_data(self) -> dict[str, Any]:
        """What the service is asked to save."""
        data = self.cleaned_data
        found = {name: data[name] for name in (*_PLAIN, "quantize_lm_head", "weights")}
        calibration = ("dataset", "size", "max_seq_length", "batch_size")
        found["calibration"] = {name: data[f"calib_{name}"] for name in calibration}
        return {**found, "options": self.flag_values("quantize")}
