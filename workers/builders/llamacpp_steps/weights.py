"""Weights as numbers and back: a few rows at a time, so that memory stays bounded."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, BinaryIO

import gguf
import numpy as np
import numpy.typing as npt

from apps.registry.domain.gguf_types import BY_NAME
from workers.builders.llamacpp_steps.events import StepFailed
from workers.builders.llamacpp_steps.plan import Target

# Weights that are numbers at the same time: 16 MiB as F32, a few times that with what numpy needs besides.
CHUNK_ELEMENTS = 4 * 1024 * 1024
F16_LARGEST = 65504.0


def converted(file: BinaryIO, target: Target) -> Iterator[bytes]:
    """The bytes of one tensor of the engine, in pieces.

    Raises StepFailed: weights_not_finite, weights_overflow_f16, gguf_truncated.
    """
    tensor = target.source
    row = tensor.shape[0]
    known = BY_NAME[tensor.type]
    row_bytes = row // known.block * known.size
    rows = tensor.size // row_bytes
    step = max(1, CHUNK_ELEMENTS // row)
    file.seek(tensor.offset)
    for first in range(0, rows, step):
        count = min(step, rows - first)
        raw = file.read(count * row_bytes)
        if len(raw) != count * row_bytes:
            raise StepFailed(
                "gguf_truncated",
                f"The checkpoint became shorter while {tensor.name} was read.",
                "Put the whole file back and inspect it again.",
            )
        yield raw if target.raw else _convert(raw, count, target)


def _convert(raw: bytes, rows: int, target: Target) -> bytes:
    numbers = _numbers(np.frombuffer(raw, dtype=np.uint8).reshape(rows, -1), target.source.type)
    if not np.isfinite(numbers).all():
        raise StepFailed(
            "weights_not_finite",
            f"The tensor {target.source.name} holds weights that are no numbers (NaN or infinite).",
            "Fetch the checkpoint again, or choose another quantization of the same model.",
        )
    if target.type == "F16" and float(np.abs(numbers).max(initial=0.0)) > F16_LARGEST:
        raise StepFailed(
            "weights_overflow_f16",
            f"The tensor {target.source.name} holds weights beyond {F16_LARGEST:.0f}, the largest that F16 keeps.",
            "Build with BF16, which has the range of F32.",
        )
    return _bytes(numbers, target.type)


def _numbers(raw: npt.NDArray[np.uint8], kind: str) -> npt.NDArray[np.float32]:
    if kind == "F64":
        return raw.view(np.float64).astype(np.float32)
    found: npt.NDArray[Any] = gguf.quants.dequantize(raw, gguf.GGMLQuantizationType[kind])
    return found.astype(np.float32, copy=False)


def _bytes(numbers: npt.NDArray[np.float32], kind: str) -> bytes:
    if kind == "F32":
        return numbers.astype("<f4", copy=False).tobytes()
    if kind == "F16":
        return numbers.astype("<f2").tobytes()
    quantized: npt.NDArray[Any] = gguf.quants.quantize(numbers, gguf.GGMLQuantizationType[kind])
    return quantized.tobytes()
