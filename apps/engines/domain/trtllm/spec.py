"""The frozen input of a TensorRT-LLM build and its fingerprint. The contract stands in domain/build_spec.py."""

from __future__ import annotations

import hashlib
from typing import Literal

from pydantic import BaseModel, ConfigDict

from apps.engines.domain.build_spec import canonical
from apps.engines.domain.trtllm.request import BuildRequest

# Grows when the composer writes other steps for the same request, so that old engines are not taken for new ones.
VERSION = "1"


class TrtllmSpec(BaseModel):
    """What a build makes and from what; `Build.spec` is its JSON (by alias).

    `recipe` is engine or checkpoint once a toolchain was chosen, auto before. `quantization` is the request's format.
    `source` identifies the weights as in BuildSpec. `sm` is the compute capability times ten, null while no GPU is
    chosen. `versions` are those of the toolchain that decide the bytes: tensorrt_llm, tensorrt, cuda, image.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    builder: Literal["trtllm"] = "trtllm"
    builder_version: str = VERSION
    quantization: str
    checkpoint: str
    path: str
    source: dict[str, str | int]
    recipe: Literal["auto", "engine", "checkpoint"]
    toolchain: str = ""
    request: BuildRequest
    sm: int | None = None
    versions: dict[str, str] = {}

    def fingerprint(self) -> str:
        """SHA-256 over what decides the engine's bytes: names, folders and the toolchain's name do not count."""
        counted = self.model_dump(mode="json", by_alias=True, exclude={"checkpoint", "path", "toolchain"})
        request = dict(counted["request"])
        for name in ("name", "model", "config"):
            request.pop(name)
        # Where it was asked to run decides through `sm` and `versions` alone.
        request.pop("target")
        return hashlib.sha256(canonical({**counted, "request": request}).encode()).hexdigest()

    def as_row(self) -> dict[str, object]:
        """JSON for Build.spec."""
        return self.model_dump(mode="json", by_alias=True)
