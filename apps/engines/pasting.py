"""Pasted commands as the profiles that they stand for: fields, documents, and what a form is filled with."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import yaml
from django.utils.translation import gettext as _
from pydantic.alias_generators import to_snake

from apps.core.exceptions import Finding, InvalidInput
from apps.engines.domain.trtllm.build_flags import BY_NAME
from apps.engines.domain.trtllm.conversion_flags import CONVERT
from apps.engines.domain.trtllm.flag import normalised
from apps.engines.domain.trtllm.translate import NEWEST, translate
from apps.engines.domain.trtllm.translated import Translated
from apps.engines.models import QuantizationProfile
from apps.registry.models import Checkpoint

API_VERSION = "inflight/v1"
NAME = "pasted"


@dataclass(frozen=True, slots=True)
class Pasted:
    """`profile` are the fields of a BuildProfile document, `quantization` those of a QuantizationProfile, None where
    weights stay. `checkpoint` is the registered one whose folder the command names."""

    translated: Translated
    profile: dict[str, Any]
    quantization: dict[str, Any] | None
    checkpoint: Checkpoint | None


def read(text: str, release: str = "") -> Pasted:
    """Read pasted commands. Raises InvalidInput where nothing of it makes a build, or it never existed."""
    found = translate(text, release or NEWEST)
    profile = dict(found.profile)
    quantization = profile.pop("quantization", None)
    for section, table in (("build", BY_NAME), ("convert", CONVERT)):
        if section in profile:
            profile[section] = normalised(table, profile[section])
    if release:
        profile["target"] = {"tensorrtLlm": release}
    if quantization is not None and quantization.get("format", "none") == "none":
        quantization = quantization if len(quantization) > 1 else None
    checkpoint = Checkpoint.objects.filter(path=found.model).first() if found.model else None
    if found.model and checkpoint is None:
        found.findings.append(
            Finding(
                "checkpoint_not_registered",
                "warning",
                _("No checkpoint is registered for %(path)s.") % {"path": found.model},
                "checkpoint",
                _("Register that folder, or choose another checkpoint."),
            )
        )
    return Pasted(found, profile, quantization, checkpoint)


def as_dict(pasted: Pasted) -> dict[str, Any]:
    """JSON form: program, model, profile, quantization, changes, findings, documents."""
    return {
        **pasted.translated.as_dict(),
        "profile": pasted.profile,
        "quantization": pasted.quantization,
        "documents": documents(pasted),
    }


def documents(pasted: Pasted, name: str = NAME) -> str:
    """YAML documents that `apply` takes once the checkpoint is named."""
    found = []
    spec = dict(pasted.profile)
    spec["checkpoint"] = pasted.checkpoint.name if pasted.checkpoint else "CHECKPOINT"
    if pasted.quantization is not None:
        found.append(_document("QuantizationProfile", name, pasted.quantization))
        spec["quantization"] = name
    found.append(_document("BuildProfile", name, spec))
    return yaml.safe_dump_all(found, sort_keys=False, allow_unicode=True, width=100)


@dataclass(frozen=True, slots=True)
class Inputs:
    """What the services take: a build profile's fields, and a quantization profile's, None where there is none."""

    profile: dict[str, Any]
    quantization: dict[str, Any] | None


def with_checkpoint(pasted: Pasted, checkpoint: Checkpoint) -> Pasted:
    """The same for a checkpoint that a person chose."""
    findings = pasted.translated.findings
    findings[:] = [finding for finding in findings if finding.id != "checkpoint_not_registered"]
    return replace(pasted, checkpoint=checkpoint)


def inputs(pasted: Pasted, name: str) -> Inputs:
    """Fields for the services, in their spelling. Raises InvalidInput where no checkpoint is known."""
    if pasted.checkpoint is None:
        raise InvalidInput(
            "checkpoint_missing",
            _("The command names no registered checkpoint."),
            field="checkpoint",
            remedy=_("Choose one."),
        )
    profile = _snake(pasted.profile)
    profile |= {"name": name, "checkpoint": pasted.checkpoint.name}
    if pasted.quantization is None:
        return Inputs(profile, None)
    profile["quantization"] = name
    return Inputs(profile, {"name": name, **_snake(pasted.quantization)})


def initial(pasted: Pasted, name: str) -> dict[str, Any]:
    """What the build profile's form is opened with, as the address spells it."""
    profile = _snake(pasted.profile)
    found: dict[str, Any] = {"name": name, "builder": "trtllm"}
    if pasted.checkpoint is not None:
        found["checkpoint"] = pasted.checkpoint.pk
    for field in ("recipe", "dtype"):
        if field in profile:
            found[field] = profile[field]
    found |= profile.get("parallel", {}) | profile.get("target", {})
    for section in ("build", "convert"):
        found |= {f"{section}__{flag}": _typed(value) for flag, value in profile.get(section, {}).items()}
    if pasted.quantization is not None:
        row = QuantizationProfile.objects.filter(name=name).first()
        found |= {"quantization_profile": row.pk} if row else {}
    return found


def quantization_initial(pasted: Pasted, name: str) -> dict[str, Any]:
    """The same for the quantization profile's form."""
    fields = _snake(pasted.quantization or {})
    found: dict[str, Any] = {"name": name}
    found |= {f"calib_{field}": value for field, value in fields.pop("calibration", {}).items()}
    found |= {f"quantize__{flag}": _typed(value) for flag, value in fields.pop("options", {}).items()}
    # A form reads any text as true; what is off is the form's own empty box.
    return found | {field: value for field, value in fields.items() if value is not False}


def _typed(value: Any) -> Any:
    return " ".join(map(str, value)) if isinstance(value, list) else value


def _snake(values: dict[str, Any]) -> dict[str, Any]:
    inner = {"parallel", "target", "calibration"}
    return {to_snake(key): _snake(value) if key in inner else value for key, value in values.items()}


def _document(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name}, "spec": spec}
