"""What profiles may be given, from forms, YAML, API and command line alike."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from django.utils.translation import gettext as _
from pydantic import BaseModel, ConfigDict, ValidationError

from apps.core.exceptions import InvalidInput
from apps.engines.models import BuildProfile, QuantizationProfile
from apps.engines.serialize import build_profile_values, quantization_profile_values
from apps.engines.shapes import TRTLLM_FIELDS, BuildProfileFields, QuantizationProfileFields

LOOSE = ConfigDict(extra="forbid", str_strip_whitespace=True)
Input = TypeVar("Input", bound=BaseModel)


class BuildProfileInput(BuildProfileFields):
    """Fields of a build profile; `checkpoint` is a name."""

    model_config = LOOSE

    name: str


class QuantizationProfileInput(QuantizationProfileFields):
    """Fields of a quantization profile."""

    model_config = LOOSE

    name: str


def parse_profile(data: Mapping[str, Any], instance: BuildProfile | None) -> BuildProfileInput:
    """Check the fields; what is left out keeps its value (of `instance`) or its default. Raises InvalidInput."""
    known: dict[str, Any] = {}
    if instance is not None:
        known = {"name": instance.name, **build_profile_values(instance)}
        if data.get("builder", instance.builder) != instance.builder:
            # What the other builder was told means nothing to this one.
            known = {key: known[key] for key in ("name", "checkpoint", "builder")}
    given = {
        key: getattr(value, "name", value) if key == "checkpoint" else value for key, value in data.items()
    }
    codes = {"builder": "unknown_builder", "quantization": "unknown_quantization"}
    what = _("build profile")
    found = _parsed(BuildProfileInput, {**known, **given}, "build_profile_invalid", what, codes)
    _of_one_builder(found)
    return found


def parse_quantization(
    data: Mapping[str, Any], instance: QuantizationProfile | None
) -> QuantizationProfileInput:
    """The same for a quantization profile."""
    known: dict[str, Any] = {}
    if instance is not None:
        known = {"name": instance.name, **quantization_profile_values(instance)}
    what = _("quantization profile")
    return _parsed(QuantizationProfileInput, {**known, **data}, "quantization_profile_invalid", what)


def _of_one_builder(found: BuildProfileInput) -> None:
    """Raise InvalidInput for a field that the chosen builder does not have."""
    fresh = BuildProfileInput(name=found.name, checkpoint=found.checkpoint, builder=found.builder)
    other = TRTLLM_FIELDS if found.builder == BuildProfile.Builder.LLAMACPP else ("options",)
    for name in other:
        if getattr(found, name) == getattr(fresh, name):
            continue
        raise InvalidInput(
            "not_of_this_builder",
            _("The builder %(builder)s has no %(field)s.") % {"builder": found.builder, "field": name},
            field=name,
            remedy=_("Remove it, or choose the other builder.")
            if name != "options"
            else _("Write trtllm-build's flags under build, the conversion's under convert."),
        )


def _parsed(
    kind: type[Input],
    values: Mapping[str, Any],
    code: str,
    what: str,
    codes: Mapping[str, str] | None = None,
) -> Input:
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise InvalidInput(
            (codes or {}).get(where, code) if first["type"] == "enum" else code,
            _("%(field)s: %(why)s.") % {"field": where or what, "why": first["msg"]},
            field=where,
            remedy=_("A %(what)s has the fields %(fields)s.")
            % {"what": what, "fields": ", ".join(kind.model_fields)},
        ) from error
