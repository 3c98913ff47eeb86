"""What a build profile may be given, from forms, YAML, API and command line alike."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.utils.translation import gettext as _
from pydantic import BaseModel, ConfigDict, ValidationError

from apps.core.exceptions import InvalidInput
from apps.engines.models import BuildProfile, Quantization


class BuildProfileInput(BaseModel):
    """Fields of a build profile; `checkpoint` is a name."""

    model_config = ConfigDict(extra="forbid", str_strip_whitespace=True)

    name: str
    checkpoint: str
    builder: str = str(BuildProfile.Builder.LLAMACPP)
    quantization: str = str(Quantization.F16)
    options: dict[str, Any] = {}


def parse_profile(data: Mapping[str, Any], instance: BuildProfile | None) -> BuildProfileInput:
    """Check the fields; what is left out keeps its value (of `instance`) or its default. Raises InvalidInput."""
    known: dict[str, Any] = {}
    if instance is not None:
        known = {
            "name": instance.name,
            "checkpoint": instance.checkpoint.name,
            "builder": instance.builder,
            "quantization": instance.quantization,
            "options": instance.options,
        }
    given = {
        key: getattr(value, "name", value) if key == "checkpoint" else value for key, value in data.items()
    }
    try:
        return BuildProfileInput.model_validate({**known, **given})
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise InvalidInput(
            "build_profile_invalid",
            _("%(field)s: %(why)s.") % {"field": where or "build profile", "why": first["msg"]},
            field=where,
            remedy=_("A build profile has the fields %(fields)s.")
            % {"fields": ", ".join(BuildProfileInput.model_fields)},
        ) from error
