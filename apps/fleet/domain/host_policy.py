"""What the operator of a host lets Inflight do with it."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

Purpose = Literal["build", "serve", "test"]
PURPOSES: tuple[Purpose, ...] = ("build", "serve", "test")


class HostPolicy(BaseModel):
    """Keys that are left out keep these defaults.

    `mps_pipe_directory`: where the host's CUDA MPS daemon listens (CUDA_MPS_PIPE_DIRECTORY); servers that share a GPU
    then go through it. Inflight does not start that daemon.
    """

    model_config = ConfigDict(extra="forbid", strict=True)

    purposes: list[Purpose] = Field(default_factory=lambda: list(PURPOSES), min_length=1)
    allow_old_triton: bool = False
    mps_pipe_directory: str = Field("", max_length=500)
    share_gpus: bool = True

    @field_validator("purposes")
    @classmethod
    def _once(cls, value: list[Purpose]) -> list[Purpose]:
        return [purpose for purpose in PURPOSES if purpose in value]

    @field_validator("mps_pipe_directory")
    @classmethod
    def _absolute(cls, value: str) -> str:
        if value and (not value.startswith("/") or "\0" in value):
            raise ValueError("give an absolute path, for example /tmp/nvidia-mps, or nothing")
        return value

    def chosen(self) -> dict[str, object]:
        """What differs from the defaults, as it is stored."""
        return self.model_dump(mode="json", exclude_defaults=True)
