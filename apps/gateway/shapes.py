"""What a person gives to configure the gateway, as API bodies and YAML documents spell it."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

from apps.core.bounds import number_field
from apps.gateway.models import GatewayRoute, PriorityClass

_MOST = 1_000_000_000
_STRICT = ConfigDict(extra="forbid", strict=True)


class LimitFields(BaseModel):
    """Bounds of a key or a route; null: none."""

    model_config = _STRICT

    requests_per_minute: int | None = Field(None, ge=1, le=_MOST)
    tokens_per_minute: int | None = Field(None, ge=1, le=_MOST, description="Prompt and answer together.")
    concurrent_requests: int | None = Field(None, ge=1, le=100_000)
    max_tokens: int | None = Field(None, ge=1, le=_MOST, description="Tokens that one answer may have.")


class KeyFields(LimitFields):
    """All of a key but its name and owner."""

    routes: list[str] | None = Field(None, description="Public names that it may use; null: all.")
    priority: PriorityClass = Field(PriorityClass.NORMAL, strict=False)


class Target(BaseModel):
    """One deployment, of ours or external, behind a public name."""

    model_config = _STRICT

    deployment: str | None = Field(None, max_length=63)
    external: str | None = Field(None, max_length=63)
    weight: float = Field(
        1.0, ge=0, le=1_000_000, description="Share of new requests, relative.", strict=False
    )
    max_prompt_tokens: int | None = Field(None, ge=1, le=_MOST, description="Longest prompt that goes there.")

    @model_validator(mode="after")
    def _one_of_two(self) -> Target:
        if bool(self.deployment) == bool(self.external):
            raise ValueError("give exactly one of deployment and external")
        return self

    def as_dict(self) -> dict[str, Any]:
        """What a row keeps: without what is absent."""
        return self.model_dump(mode="json", exclude_none=True)


class RouteFields(LimitFields):
    """All of a route but its name."""

    targets: list[Target] = Field(
        default_factory=list, max_length=32, description="Empty: the deployment of the route's own name."
    )
    fallback: str = Field("", max_length=63, description="Public name to try where nothing here can answer.")
    queue_size: int = Field(**number_field(GatewayRoute, "queue_size"), description="Requests that may wait.")
    queue_seconds: float = Field(60.0, ge=0, le=3600, strict=False, description="Longest wait.")
    record_bodies: bool = Field(False, description="Keep the texts of requests and answers.")
    body_days: int = Field(**number_field(GatewayRoute, "body_days"))


class ExternalFields(BaseModel):
    """All of an external deployment but its name and its secret."""

    model_config = _STRICT

    base_url: str = Field(min_length=1, max_length=2000, description="What stands before /chat/completions.")
    model: str = Field(min_length=1, max_length=200, description="Name of the model there.")
    slots: int | None = Field(
        None, ge=1, le=100_000, description="Requests sent there at once; null: no bound."
    )
    max_sequence_tokens: int | None = Field(None, ge=1, le=_MOST, description="Prompt and answer together.")
