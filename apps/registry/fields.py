"""What a person gives to register a checkpoint, as API bodies and YAML documents spell it."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

SOURCES = ("demo", "path", "huggingface")


class HuggingFaceSource(BaseModel):
    """A repository in the local Hugging Face cache or mirror."""

    model_config = ConfigDict(extra="forbid", strict=True)

    repo: str = Field(min_length=1, max_length=200, description="owner/name")
    revision: str | None = Field(
        None, max_length=200, description="Branch, tag or commit; null: the default."
    )


class Source(BaseModel):
    """Where the weights lie: exactly one of demo, path and huggingface."""

    model_config = ConfigDict(extra="forbid", strict=True)

    demo: str | None = Field(
        None, min_length=1, max_length=63, description="A checkpoint that ships with Inflight."
    )
    path: str | None = Field(None, min_length=1, max_length=1000, description="Absolute path on the node.")
    huggingface: HuggingFaceSource | None = None

    @model_validator(mode="after")
    def _exactly_one(self) -> Source:
        given = [name for name in SOURCES if getattr(self, name) is not None]
        if len(given) != 1:
            raise PydanticCustomError(
                "exactly_one", "needs exactly one of {names}", {"names": ", ".join(SOURCES)}
            )
        return self


class CheckpointFields(BaseModel):
    """All of a checkpoint that is configured."""

    model_config = ConfigDict(extra="forbid", strict=True)

    source: Source


def source_as_dict(source: Source) -> dict[str, Any]:
    """The form that the column holds: one key, absent values left out."""
    return source.model_dump(exclude_none=True)
