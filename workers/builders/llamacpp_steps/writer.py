"""Writes a GGUF file front to back. The source's metadata is copied byte for byte, but for the file type."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import BinaryIO

from apps.registry.domain.gguf_reader import MAGIC, Header
from apps.registry.domain.gguf_types import BY_NAME, UINT32
from workers.builders.llamacpp_steps.plan import Target

VERSION = 3
FILE_TYPE, QUANTIZATION_VERSION = "general.file_type", "general.quantization_version"
# ggml.h, GGML_QNT_VERSION: block layouts of the quantised types.
CURRENT_QUANTIZATION_VERSION = 2


def write_header(
    source: BinaryIO, header: Header, targets: list[Target], file_type: int, out: BinaryIO
) -> int:
    """Write everything before the weights; returns the number of bytes, padded to the alignment."""
    replaced = {FILE_TYPE: file_type, QUANTIZATION_VERSION: CURRENT_QUANTIZATION_VERSION}
    kept = [entry for entry in header.entries.values() if entry.key not in replaced]
    written = out.write(MAGIC + struct.pack("<IQQ", VERSION, len(targets), len(kept) + len(replaced)))
    for entry in kept:
        source.seek(entry.start)
        written += out.write(source.read(entry.end - entry.start))
    for key, value in replaced.items():
        written += out.write(_text(key) + struct.pack("<II", UINT32, value))
    written += _write_tensor_infos(targets, header.alignment, out)
    return written + pad(written, header.alignment, out)


def _write_tensor_infos(targets: Iterable[Target], alignment: int, out: BinaryIO) -> int:
    written, offset = 0, 0
    for target in targets:
        shape = target.source.shape
        written += out.write(
            _text(target.source.name)
            + struct.pack(f"<I{len(shape)}Q", len(shape), *shape)
            + struct.pack("<IQ", BY_NAME[target.type].number, offset)
        )
        offset += target.size + -target.size % alignment
    return written


def pad(written: int, alignment: int, out: BinaryIO) -> int:
    """Write zeros up to the next multiple of the alignment; returns how many."""
    return out.write(bytes(-written % alignment))


def _text(value: str) -> bytes:
    data = value.encode()
    return struct.pack("<Q", len(data)) + data
