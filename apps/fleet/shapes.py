"""What people write about a node as a document: labels, host policy, prices of its slots."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field, field_validator

from apps.core.exceptions import InvalidInput
from apps.fleet.domain.host_policy import HostPolicy
from apps.fleet.inputs import check_labels

# What the column holds: eight digits before the point, four behind it.
MOST_PRICE = 100_000_000
PRICE_DIGITS = 4
MOST_SLOTS = 1024


class SlotFields(BaseModel):
    """One slot by its number and what it costs per hour, in one currency for the whole fleet."""

    model_config = ConfigDict(extra="forbid", strict=True)

    index: int = Field(ge=0, le=10_000)
    price_per_hour: float = Field(ge=0, lt=MOST_PRICE, allow_inf_nan=False)

    @field_validator("price_per_hour")
    @classmethod
    def _as_kept(cls, value: float) -> float:
        return round(value, PRICE_DIGITS)


class NodeFields(BaseModel):
    """What differs between hosts by somebody's decision. A slot that is left out has no known price."""

    model_config = ConfigDict(extra="forbid", strict=True)

    labels: dict[str, str] = Field(default_factory=dict)
    policy: HostPolicy = Field(default_factory=lambda: HostPolicy.model_validate({}))
    slots: list[SlotFields] = Field(default_factory=list, max_length=MOST_SLOTS)

    @field_validator("labels")
    @classmethod
    def _words(cls, value: dict[str, str]) -> dict[str, str]:
        try:
            return dict(sorted(check_labels(value).items()))
        except InvalidInput as error:
            raise ValueError(f"{error.sentence} {error.remedy}".rstrip(".")) from error

    @field_validator("slots")
    @classmethod
    def _each_once(cls, value: list[SlotFields]) -> list[SlotFields]:
        numbers = [each.index for each in value]
        if len(set(numbers)) < len(numbers):
            raise ValueError("each slot is named once")
        return sorted(value, key=lambda each: each.index)
