"""What a person gives to bring in a model repository, as YAML documents spell it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)
from pydantic_core import PydanticCustomError


class RepositorySource(BaseModel):
    """Where a model repository lies: a folder, or an archive, which `sha256` may name for certain."""

    model_config = ConfigDict(extra="forbid", strict=True)

    path: str | None = Field(None, min_length=1, max_length=1000, description="Folder on this node.")
    archive: str | None = Field(
        None, min_length=1, max_length=1000, description=".tar, .tar.gz or .zip there."
    )
    sha256: str | None = Field(None, pattern=r"^[0-9a-f]{64}$", description="Of the archive.")

    @model_validator(mode="after")
    def _one_of_two(self) -> RepositorySource:
        if (self.path is None) == (self.archive is None) or (
            self.path is not None and self.sha256 is not None
        ):
            raise PydanticCustomError(
                "one_of_two", "name either a path or an archive, with its sha256 if you like"
            )
        return self

    def is_that_of(self, known: dict[str, Any]) -> bool:
        """Whether a repository with the source `known` was brought in from here."""
        if self.path is not None:
            return known == {"path": self.path}
        named = Path(self.archive or "").name == known.get("archive")
        return named and self.sha256 in (None, known.get("sha256"))

    @model_serializer(mode="wrap")
    def _without_absent(self, handler: SerializerFunctionWrapHandler) -> dict[str, object]:
        return {key: value for key, value in handler(self).items() if value is not None}


class ModelRepositoryFields(BaseModel):
    """All of a model repository that is configured; what its files say is adopted as a deployment."""

    model_config = ConfigDict(extra="forbid", strict=True)

    source: RepositorySource
