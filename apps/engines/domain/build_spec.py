"""The frozen input of a build, its fingerprint, and what is wrong with it.

`Build.spec` of the builder llamacpp is the JSON of BuildSpec below. Of the builder trtllm it is the JSON of
domain.trtllm.spec.TrtllmSpec:

    {"builder": "trtllm", "builder_version": "1", "checkpoint": <name>, "path": <folder>, "source": {...},
     "quantization": <format, "none" where weights stay>, "recipe": "auto"|"engine"|"checkpoint",
     "toolchain": <name, "" for any that fits>, "request": BuildRequest.model_dump(mode="json", by_alias=True),
     "sm": <compute capability x 10, null>,
     "versions": {"tensorrt_llm": ..., "tensorrt": ..., "cuda": ..., "image": ...}}

`engines.requests.spec_of(profile, sm=..., versions=...)` makes it from a build profile;
`engines.requests.model_facts(checkpoint)` gives the facts that `compose(request, work, facts)` wants beside it. Its
fingerprint counts source, request (without names, folders and target), recipe, GPU architecture and versions.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from pydantic import BaseModel, ConfigDict

from apps.core.exceptions import Finding
from apps.registry.domain.gguf_types import BY_NAME

# Grows when the builder writes other bytes for the same input, so that old engines are not taken for new ones.
BUILDER_VERSIONS: dict[str, str] = {"llamacpp": "1"}
# Weight types that gguf.quants can write, with llama.cpp's number for a file of mostly that type (llama.h).
WRITABLE: dict[str, int] = {"F16": 1, "Q4_0": 2, "Q4_1": 3, "Q8_0": 7, "Q5_0": 8, "Q5_1": 9, "BF16": 32}
# Source types whose weights gguf.quants can turn back into numbers.
READABLE: frozenset[str] = frozenset(BY_NAME) - {"Q8_1", "Q8_K", "Q1_0"}
# Room left on the disk beside the engine, for logs and the database.
DISK_RESERVE_BYTES = 256 * 1024 * 1024
# Metadata, padding and the 1-D tensors that stay F32.
OVERHEAD = 1.03


class BuildSpec(BaseModel):
    """What a build makes and from what. Every field counts for the fingerprint but `checkpoint` and `path`.

    `source` identifies the content: {"sha256"} where the file was hashed when it was registered, else
    {"size", "mtime_ns", "header_sha256"}. `options` are those of the builder.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    builder: str
    builder_version: str
    quantization: str
    checkpoint: str
    path: str
    source: dict[str, str | int]
    options: dict[str, Any] = {}

    def fingerprint(self) -> str:
        """SHA-256 over the canonical JSON of what decides the engine's bytes."""
        counted = self.model_dump(exclude={"checkpoint", "path"})
        return hashlib.sha256(canonical(counted).encode()).hexdigest()


def canonical(data: object) -> str:
    """JSON with sorted keys and no spaces: equal data gives equal text."""
    return json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def check_spec(builder: str, quantization: str, options: dict[str, Any]) -> list[Finding]:
    """What is wrong with a builder's settings, before any file is looked at."""
    if builder not in BUILDER_VERSIONS:
        known = ", ".join(sorted(BUILDER_VERSIONS))
        return [
            Finding(
                "unknown_builder", "error", f"There is no builder {builder!r}.", "builder", f"Use {known}."
            )
        ]
    findings = []
    if quantization not in WRITABLE:
        findings.append(
            Finding(
                "unknown_quantization",
                "error",
                f"The llama.cpp builder does not write {quantization!r}.",
                "quantization",
                f"Choose one of {', '.join(WRITABLE)}.",
            )
        )
    findings += [
        Finding(
            "unknown_option",
            "error",
            f"The llama.cpp builder has no option {name!r}.",
            f"options.{name}",
            "Remove it.",
        )
        for name in sorted(options)
    ]
    return findings


def check_facts(quantization: str, tensor_types: dict[str, int], file_type: str | None) -> list[Finding]:
    """What the checkpoint's weight types mean for a build of this type."""
    findings = []
    unreadable = sorted(set(tensor_types) - READABLE)
    if unreadable:
        findings.append(
            Finding(
                "weights_not_readable",
                "error",
                f"Weights of type {', '.join(unreadable)} cannot be turned back into numbers.",
                "checkpoint",
                "Register the F16 or BF16 file of the same model.",
            )
        )
    stored = bits_per_weight(_most(tensor_types))
    wanted = bits_per_weight(quantization)
    if stored is not None and wanted is not None and wanted > stored:
        findings.append(
            Finding(
                "widened_weights",
                "info",
                f"The checkpoint is stored as {file_type or _most(tensor_types)}: {quantization} makes the engine "
                "larger without bringing back precision.",
                "quantization",
                "It may still be faster where the processor has no kernels for the narrow type.",
            )
        )
    return findings


def bits_per_weight(kind: str | None) -> float | None:
    """Bits that one weight takes in a type, or None for an unknown one."""
    known = BY_NAME.get(kind or "")
    return known.size * 8 / known.block if known else None


def engine_bytes(params: int, quantization: str) -> int:
    """Estimated size of the engine in bytes."""
    return int(params * (bits_per_weight(quantization) or 16) / 8 * OVERHEAD)


def _most(tensor_types: dict[str, int]) -> str | None:
    weights = {kind: count for kind, count in tensor_types.items() if kind != "F32"} or tensor_types
    return max(weights, key=lambda kind: weights[kind], default=None)
