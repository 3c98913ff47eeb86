"""Sizes and dtypes of the weights in safetensors files, from their headers alone.

A file is 8 bytes with the header's length (little-endian), the header (a JSON object: name -> dtype, shape, offsets
of its bytes), then the bytes. Every length and offset is compared with the file's size before anything is read.
"""

from __future__ import annotations

import itertools
import math
import os
import re
import struct
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from apps.core.exceptions import Finding, InvalidInput
from apps.registry.domain.json_input import MIB, parse_object, read_object, refuse
from apps.registry.domain.regular_files import clean_text, open_regular

INDEX = "model.safetensors.index.json"
HEADER_LIMIT = 24 * MIB
INDEX_LIMIT = 24 * MIB
MAX_SHARDS = 2_000
MAX_TENSORS = 250_000
# Headers of all files together; the largest known (1 T weights, 384 experts a layer) take 25 MiB.
HEADERS_LIMIT = 48 * MIB
LENGTH = 8
# safetensors' dtypes -> bits.
BITS = {
    "F64": 64, "I64": 64, "U64": 64, "C64": 64, "F32": 32, "I32": 32, "U32": 32, "F16": 16, "BF16": 16, "I16": 16,
    "U16": 16, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "I8": 8, "U8": 8,
    "BOOL": 8, "F6_E2M3": 6, "F6_E3M2": 6, "F4": 4,
}  # fmt: skip
# Tensors that describe weights or are computed again, and so are no weights themselves.
NO_WEIGHT = re.compile(
    r"(^|[._])(scales?|qzeros|g_idx|weight_scale(_inv|_2)?|input_scale|activation_scale|k_scale|v_scale|output_scale"
    r"|weight_shape|weight_zero_point|weight_g_idx|absmax|quant_map|nested_\w+|inv_freq|masked_bias|cos_cached"
    r"|sin_cached)$|quant_state"
)
MASK = re.compile(r"(attn|attention)\.bias$")
OTHER = re.compile(
    r"(^|\.)(visual|vision\w*|multi_modal_projector|mm_projector|audio\w*|speech\w*|image_newline|patch_merger"
    r"|talker|token2wav|connector|perceiver\w*|embed_vision|embed_audio|mlp1)(\.|$)"
)
LAYER = re.compile(r"(?:^|\.)(?:layers|h|blocks)\.(\d+)\.")
HEAD = re.compile(r"(^|\.)(lm_head|embed_out|output_layer)\.weight$")


@dataclass(slots=True)
class Stored:
    """What the files of a checkpoint hold. Bytes are those of the tensors, weights counted as if unpacked.

    `language`, `other`, `beyond` and `head` count weights: of the language model, of vision and audio towers, of
    layers past the model's own (multi-token prediction), of an output projection.
    """

    files: int = 0
    tensors: int = 0
    bytes: int = 0
    language: int = 0
    other: int = 0
    beyond: int = 0
    head: int = 0
    dtypes: Counter[str] = field(default_factory=Counter)
    complete: bool = True
    packed: bool = False


def read_folder(
    folder: Path, names: list[str], layers: int | None, bits: float | None, findings: list[Finding]
) -> Stored | None:
    """Sum over the safetensors files of a folder; None where there are none.

    `names` are the folder's files, `layers` the model's number of layers, `bits` those of a packed weight. What is
    wrong with a file is a finding, and its weights are then not counted.
    """
    shards = _shards(folder, names, findings)
    if not shards:
        return None
    stored = Stored()
    read = 0
    for name in shards:
        try:
            entries, length = _header(folder / name)
            read += length
            _add(stored, entries, layers, bits)
        except InvalidInput as error:
            stored.complete = False
            findings.append(Finding(error.code, "error", error.sentence, name, error.remedy))
        if stored.tensors > MAX_TENSORS or read > HEADERS_LIMIT:
            stored.complete = False
            findings.append(
                Finding(
                    "safetensors_too_many",
                    "error",
                    f"The files hold more than {MAX_TENSORS:,} tensors, or {HEADERS_LIMIT:,} bytes of headers.",
                    name,
                    "No known model has as many: do not use this checkpoint before you know who made it.",
                )
            )
            break
        stored.files += 1
    return stored


def _shards(folder: Path, names: list[str], findings: list[Finding]) -> list[str]:
    found = sorted(name for name in names if name.endswith(".safetensors"))
    if INDEX in names:
        return _by_index(folder, set(found), findings)
    if "model.safetensors" in found:
        return ["model.safetensors"]
    return [name for name in found if not name.startswith(("consolidated", "adapter_"))][:MAX_SHARDS]


def _by_index(folder: Path, present: set[str], findings: list[Finding]) -> list[str]:
    """The files that the index names; those that are missing or lie elsewhere are findings."""
    try:
        document = read_object(folder / INDEX, INDEX_LIMIT)
    except InvalidInput as error:
        findings.append(Finding(error.code, "error", error.sentence, INDEX, error.remedy))
        return []
    findings.extend(document.findings)
    mapping = document.data.get("weight_map")
    if not isinstance(mapping, dict) or not mapping:
        findings.append(
            Finding(
                "index_invalid",
                "error",
                f"{INDEX} has no weight_map.",
                INDEX,
                "Fetch the file again from where the checkpoint came.",
            )
        )
        return []
    wanted = {name for name in mapping.values() if isinstance(name, str)}
    strange = sorted(name for name in wanted if not _plain(name))
    if strange or len(wanted) > MAX_SHARDS or any(not isinstance(name, str) for name in mapping.values()):
        findings.append(
            Finding(
                "index_path_outside",
                "error",
                f"{INDEX} names files outside of the folder, or what is no file name"
                f"{f' ({strange[0][:60]!a})' if strange else ''}.",
                INDEX,
                "Do not use this checkpoint before you know who made it.",
            )
        )
    missing = sorted(wanted - present - set(strange))
    if missing:
        findings.append(
            Finding(
                "shard_missing",
                "error",
                f"{len(missing)} of {len(wanted)} files of weights are not there: "
                f"{clean_text(', '.join(missing[:3])[:200])}{'…' if len(missing) > 3 else ''}.",
                INDEX,
                "Fetch the missing files.",
            )
        )
    return sorted(wanted & present)[:MAX_SHARDS]


def _plain(name: str) -> bool:
    return bool(re.fullmatch(r"[^/\\\x00]{1,255}\.safetensors", name)) and name not in (".", "..")


def _header(path: Path) -> tuple[dict[str, Any], int]:
    """The entries of a file's header, each checked against the file's size, and the header's length in bytes."""
    try:
        with open_regular(path) as file:
            return _entries(file, path)
    except OSError as error:
        raise refuse("unreadable", path, f"cannot be read: {error.strerror or error}") from error


def _entries(file: BinaryIO, path: Path) -> tuple[dict[str, Any], int]:
    size = os.fstat(file.fileno()).st_size
    start = file.read(LENGTH)
    if len(start) < LENGTH:
        raise refuse("safetensors_truncated", path, f"has {len(start)} bytes, too few for safetensors")
    (length,) = struct.unpack("<Q", start)
    room = size - LENGTH
    if start[:1] != b"{" and start.startswith(b"version "):
        raise refuse("git_lfs_pointer", path, "is a Git LFS pointer", "Fetch the file itself: git lfs pull.")
    if length > room:
        raise refuse(
            "safetensors_truncated",
            path,
            f"claims a header of {length:,} bytes, it has {size:,} in all",
            "The download was cut off, or this is no safetensors file: fetch it again.",
        )
    if length > HEADER_LIMIT:
        raise refuse("safetensors_header_too_large", path, f"has a header of {length:,} bytes")
    entries = parse_object(file.read(length), path).data
    entries.pop("__metadata__", None)
    _check(entries, room - length, path)
    return entries, length


def _check(entries: dict[str, Any], room: int, path: Path) -> None:
    spans: list[tuple[int, int]] = []
    for name, entry in entries.items():
        dtype, shape, offsets = _parts(name, entry, path)
        begin, end = offsets
        if end > room:
            raise refuse(
                "safetensors_truncated",
                path,
                f"ends before its weights do: {name[:80]} needs the bytes up to {end:,} of {room:,}",
                "The download was cut off: fetch the file again.",
            )
        if (math.prod(shape) * BITS[dtype] + 7) // 8 != end - begin:
            raise refuse(
                "safetensors_header_invalid",
                path,
                f"gives {name[:80]} {end - begin:,} bytes, which is not what its shape and dtype need",
            )
        if end > begin:
            spans.append((begin, end))
    spans.sort()
    if any(after[0] < before[1] for before, after in itertools.pairwise(spans)):
        raise refuse("safetensors_overlap", path, "has tensors that overlap")


def _parts(name: str, entry: object, path: Path) -> tuple[str, list[int], tuple[int, int]]:
    if isinstance(entry, dict):
        dtype, shape, offsets = entry.get("dtype"), entry.get("shape"), entry.get("data_offsets")
        if (
            isinstance(dtype, str)
            and dtype in BITS
            and isinstance(shape, list)
            and len(shape) <= 16
            and all(_count(item) for item in shape)
            and isinstance(offsets, list)
            and len(offsets) == 2
            and all(_count(item) for item in offsets)
            and offsets[0] <= offsets[1]
        ):
            return dtype, shape, (offsets[0], offsets[1])
    raise refuse("safetensors_header_invalid", path, f"describes {name[:80]} in a way that cannot be")


def _count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**48


def _add(stored: Stored, entries: dict[str, Any], layers: int | None, bits: float | None) -> None:
    for name, entry in entries.items():
        size = entry["data_offsets"][1] - entry["data_offsets"][0]
        stored.tensors += 1
        stored.bytes += size
        stored.dtypes[entry["dtype"]] += size
        if NO_WEIGHT.search(name) or (MASK.search(name) and len(entry["shape"]) == 4):
            continue
        weights = math.prod(entry["shape"]) * _unpacked(stored, name, entry, bits)
        layer = LAYER.search(name)
        if OTHER.search(name):
            stored.other += weights
        elif layers is not None and layer and int(layer[1]) >= layers and len(layer[1]) < 6:
            stored.beyond += weights
        elif HEAD.search(name):
            stored.head += weights
        else:
            stored.language += weights


def _unpacked(stored: Stored, name: str, entry: dict[str, Any], bits: float | None) -> int:
    """Weights in one element of a tensor: several where an integer holds them packed."""
    dtype = entry["dtype"]
    if name.endswith(("qweight", "weight_packed")) and dtype in ("I32", "U32") and bits:
        stored.packed = True
        return int(32 // bits) or 1
    if name.endswith(("_blocks", "weight_packed", ".weight")) and dtype == "U8":
        stored.packed = True
        return 2
    return 1
