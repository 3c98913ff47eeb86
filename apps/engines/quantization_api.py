"""REST: quantization profiles, and pasted commands as profiles."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.http import HttpRequest
from ninja import Query, Router, Schema, Status
from pydantic import BaseModel, ConfigDict, Field

from apps.accounts.rest import REFUSALS, Page, PageQuery, actor_of, page_of
from apps.accounts.roles import Action, require
from apps.engines import pasting, services
from apps.engines.quantization_selectors import quantization_profile, quantization_profiles
from apps.engines.serialize import quantization_profile_dict
from apps.engines.shapes import CalibrationFields, QuantizationProfileFields

router = Router()
TAGS = ["quantization profiles"]


class QuantizationProfile(Schema):
    """How a TensorRT-LLM build stores weights and KV cache."""

    id: int
    name: str
    format: str
    kv_cache_dtype: str
    calibration: CalibrationFields
    group_size: int
    smoothquant: float
    per_channel: bool
    per_token: bool
    quantize_lm_head: bool
    weights: str
    options: dict[str, Any]
    created_at: datetime
    updated_at: datetime


class NewQuantizationProfile(QuantizationProfileFields):
    """A quantization profile to create."""

    name: str


class PastedCommand(BaseModel):
    """Text of trtllm-build, convert_checkpoint.py or quantize.py commands."""

    model_config = ConfigDict(extra="forbid", strict=True)

    command: str = Field(min_length=1, max_length=65536)
    release: str = Field("", max_length=30, description="TensorRT-LLM release, as 1.2.1; empty: the newest.")


class CommandChange(Schema):
    """One thing that was not taken over as written."""

    was: str
    now: str
    why: str


class TranslatedCommand(Schema):
    """A pasted command as fields of profiles. Nothing is saved."""

    program: str
    model: str
    profile: dict[str, Any]
    quantization: dict[str, Any] | None
    changes: list[CommandChange]
    findings: list[dict[str, Any]]
    documents: str = Field(description="The same as YAML documents, to apply once the checkpoint is named.")


@router.get(
    "/quantization-profiles",
    response={200: Page[QuantizationProfile], **REFUSALS},
    operation_id="list_quantization_profiles",
    tags=TAGS,
)
def list_quantization_profiles(request: HttpRequest, page: Query[PageQuery]) -> dict[str, Any]:
    """Every quantization profile, by name."""
    require(actor_of(request), Action.VIEW)
    return page_of(quantization_profiles(), page, quantization_profile_dict)


@router.post(
    "/quantization-profiles",
    response={201: QuantizationProfile, **REFUSALS},
    operation_id="create_quantization_profile",
    tags=TAGS,
)
def create_quantization_profile(request: HttpRequest, body: NewQuantizationProfile) -> Status[dict[str, Any]]:
    """Create a quantization profile."""
    made = services.save_quantization_profile(actor_of(request), body.model_dump(mode="json"))
    return Status(201, quantization_profile_dict(made))


@router.get(
    "/quantization-profiles/{name}",
    response={200: QuantizationProfile, **REFUSALS},
    operation_id="get_quantization_profile",
    tags=TAGS,
)
def get_quantization_profile(request: HttpRequest, name: str) -> dict[str, Any]:
    """One quantization profile."""
    require(actor_of(request), Action.VIEW)
    return quantization_profile_dict(quantization_profile(name))


@router.put(
    "/quantization-profiles/{name}",
    response={200: QuantizationProfile, **REFUSALS},
    operation_id="change_quantization_profile",
    tags=TAGS,
)
def change_quantization_profile(
    request: HttpRequest, name: str, body: QuantizationProfileFields
) -> dict[str, Any]:
    """Change a quantization profile; what is left out goes back to its default. Builds that exist keep theirs."""
    require(actor_of(request), Action.CONFIGURE)
    changed = services.save_quantization_profile(
        actor_of(request), body.model_dump(mode="json"), quantization_profile(name)
    )
    return quantization_profile_dict(changed)


@router.delete(
    "/quantization-profiles/{name}",
    response={204: None, **REFUSALS},
    operation_id="delete_quantization_profile",
    tags=TAGS,
)
def delete_quantization_profile(request: HttpRequest, name: str) -> Status[None]:
    """Delete a quantization profile that no build profile uses."""
    require(actor_of(request), Action.CONFIGURE)
    services.delete_quantization_profile(actor_of(request), quantization_profile(name))
    return Status(204, None)


@router.post(
    "/build-commands/translate",
    response={200: TranslatedCommand, **REFUSALS},
    operation_id="translate_command",
    tags=["build profiles"],
)
def translate_command(request: HttpRequest, body: PastedCommand) -> dict[str, Any]:
    """Read pasted commands as profiles, with what changed. Nothing is run or saved."""
    require(actor_of(request), Action.VIEW)
    return pasting.as_dict(pasting.read(body.command, body.release))
