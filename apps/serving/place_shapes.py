"""Where servers of a deployment may run, beside device and share: what people write, and how it is kept."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from django.utils.translation import gettext as _
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from apps.core.exceptions import InvalidInput
from apps.engines.domain.memory.units import parse_bytes
from apps.fleet.inputs import check_labels

Word = Annotated[str, Field(min_length=1, max_length=63)]


class PlaceFields(BaseModel):
    """What placement is asked for; null and left out: no wish. Kept without what is left out."""

    model_config = ConfigDict(extra="forbid", strict=True)

    gpus: int | None = Field(
        None,
        ge=1,
        le=64,
        description="GPUs of one host for each server; at least tp x pp, which is the default.",
    )
    memory: int | None = Field(
        None, description="Lease so much memory of a GPU instead of a share, such as 24GiB; kept in bytes."
    )
    nodes: list[Word] | None = Field(None, min_length=1, max_length=64, description="Node ids: only there.")
    slots: list[Annotated[int, Field(ge=0, le=10_000)]] | None = Field(
        None, min_length=1, max_length=64, description="Numbers of the slots: only those."
    )
    labels: dict[str, str] | None = Field(None, description="Labels that the node must have.")
    versions: dict[Word, Word] | None = Field(
        None, max_length=16, description="Versions that the node must have, such as driver: 580."
    )
    mig: Literal["any", "only", "never"] | None = Field(None, description="MIG slices or whole GPUs; any.")
    nvlink: bool | None = Field(None, description="Several GPUs only where NVLink joins them.")
    strategy: Literal["spread", "pack"] | None = Field(
        None, description="spread: the least loaded node; pack: the fullest that has room. Default spread."
    )
    purpose: Literal["serve", "test"] | None = Field(
        None, description="What the GPUs are leased for; a host's policy may take one and not the other."
    )
    mps: bool | None = Field(
        None, description="Share a GPU through CUDA MPS, where the host's policy names its daemon."
    )

    @field_validator("memory", mode="before")
    @classmethod
    def _bytes(cls, value: Any) -> Any:
        if value is None or isinstance(value, bool) or not isinstance(value, int | str):
            return value
        try:
            return parse_bytes(value, "placement.memory")
        except InvalidInput as error:
            raise ValueError(f"{error.sentence} {error.remedy}") from error

    @field_validator("labels", mode="after")
    @classmethod
    def _words(cls, value: dict[str, str] | None) -> dict[str, str] | None:
        try:
            return check_labels(value) if value is not None else None
        except InvalidInput as error:
            raise ValueError(f"{error.sentence} {error.remedy}") from error


KEYS = frozenset(PlaceFields.model_fields)


def check_place(placement: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of a placement that this module knows, checked, without nulls. Raises InvalidInput."""
    given = {key: value for key, value in placement.items() if key in KEYS}
    try:
        found = PlaceFields.model_validate(given).model_dump(exclude_none=True)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise InvalidInput(
            "placement_unreadable",
            _("placement.%(field)s cannot be used: %(why)s.")
            % {"field": where, "why": first["msg"].removeprefix("Value error, ").rstrip(".")},
            field=f"placement.{where}",
            remedy=_("docs/fleet.md lists what a placement may say."),
        ) from error
    if "memory" in found and placement.get("share") is not None:
        raise InvalidInput(
            "placement_share_and_memory",
            _("A server leases either a share of its slot or an amount of memory."),
            field="placement.memory",
            remedy=_("Leave one of the two out."),
        )
    return found
