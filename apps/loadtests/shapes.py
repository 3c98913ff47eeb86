"""What a person gives to configure a load test, as API bodies and YAML documents spell it."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from apps.loadtests.domain.scenario import Scenario


class LoadTestFields(Scenario):
    """All of a load test but its name; see docs/load-tests.md."""


class QualityGateFields(BaseModel):
    """All of a quality gate but its name; see docs/quality.md."""

    model_config = ConfigDict(extra="forbid", strict=True)

    build: str = Field(description="The build profile whose engines are asked.")
    max_perplexity_ratio: float | None = Field(
        None, ge=1, description="Perplexity of the build over its source's."
    )
    max_divergence: float | None = Field(None, ge=0, description="KL divergence, nats a token.")
    min_top1: float | None = Field(
        None, ge=0, le=1, description="Share of tokens with the same likeliest successor."
    )
    min_agreement: float | None = Field(
        None, ge=0, le=1, description="Share of golden prompts answered the same."
    )
    blocking: bool = Field(True, description="Whether an engine that does not keep it is not deployed.")
