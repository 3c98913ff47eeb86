"""Header-only reader of GGUF version 2 and 3 that trusts nothing in the file.

Every count, length and offset is compared with the file's size and with the limits below before anything is
allocated or skipped. Large arrays are walked and sampled, never kept. Needs the standard library alone, so that
build steps run it under the serving environment's Python too. Layout: the GGUF specification (ggml, docs/gguf.md).
"""

from __future__ import annotations

import hashlib
import itertools
import struct
from dataclasses import dataclass
from pathlib import Path

from apps.registry.domain.gguf_cursor import (
    KEPT_NUMBERS,
    MAX_ALIGNMENT,
    MAX_ARRAY,
    MAX_ARRAY_DEPTH,
    MAX_DIMENSIONS,
    MAX_KEY_BYTES,
    MAX_METADATA,
    MAX_NAME_BYTES,
    MAX_STRING_BYTES,
    MAX_TENSORS,
    NUMBER_BYTES,
    SAMPLE,
    Cursor,
    refuse,
)
from apps.registry.domain.gguf_types import ARRAY, BOOL, SCALARS, STRING, TENSOR_TYPES, tensor_bytes
from apps.registry.domain.regular_files import open_regular

MAGIC = b"GGUF"
VERSIONS = (2, 3)
DEFAULT_ALIGNMENT = 32
Scalar = int | float | bool | str


@dataclass(frozen=True, slots=True)
class Array:
    """An array in the metadata: its element type (GGUF type number), length and first values.

    `values` is the whole array for up to 1024 numbers, else the first 8; `start` is the byte offset of the first
    element in the file.
    """

    element: int
    length: int
    start: int
    values: tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Entry:
    """One key with its value; `start` to `end` are the bytes of key, type and value in the file."""

    key: str
    value: Scalar | Array
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor: dimensions as stored (fastest first), type name, absolute offset and size in bytes."""

    name: str
    shape: tuple[int, ...]
    type: str
    offset: int
    size: int

    @property
    def elements(self) -> int:
        """Number of weights."""
        product = 1
        for length in self.shape:
            product *= length
        return product


@dataclass(frozen=True, slots=True)
class Header:
    """All that a GGUF file says before its weights. `digest` is the SHA-256 of the header's bytes."""

    version: int
    size: int
    alignment: int
    data_start: int
    entries: dict[str, Entry]
    tensors: tuple[Tensor, ...]
    digest: str

    def get(self, key: str) -> Scalar | Array | None:
        """Value of a key, or None."""
        entry = self.entries.get(key)
        return entry.value if entry else None


def read_header(path: Path) -> Header:
    """Read and check the header of a GGUF file.

    Raises InvalidInput (code: gguf_not_a_gguf, gguf_truncated, gguf_hostile_size...) with a sentence and a remedy,
    and OSError where the file cannot be opened.
    """
    with open_regular(path, buffering=1024 * 1024) as file:
        size = file.seek(0, 2)
        file.seek(0)
        digest = hashlib.sha256()
        cursor = Cursor(file, size, path.name, hash=digest.update)
        version = _preamble(cursor)
        tensor_count = _count(cursor, MAX_TENSORS, "tensors")
        entry_count = _count(cursor, MAX_METADATA, "metadata entries")
        entries = _entries(cursor, entry_count)
        alignment = _alignment(cursor, entries)
        described = [_tensor_info(cursor) for _ in range(tensor_count)]
        data_start = -(-cursor.at // alignment) * alignment
        tensors = _placed(cursor, described, data_start, alignment)
        return Header(version, size, alignment, data_start, entries, tensors, digest.hexdigest())


def read_strings(path: Path, array: Array, wanted: set[int]) -> dict[int, str]:
    """Elements of a string array by index, found by walking the file; indices out of range are left out."""
    if array.element != STRING or not wanted:
        return {}
    count = min(max(wanted) + 1, array.length)
    with open_regular(path, buffering=1024 * 1024) as file:
        cursor = Cursor(file, file.seek(0, 2), path.name)
        file.seek(array.start)
        cursor.at = array.start
        return cursor.strings(count, "a token", wanted)


def _preamble(cursor: Cursor) -> int:
    if cursor.size < 24:
        raise refuse(
            "gguf_not_a_gguf",
            f"{cursor.where} has {cursor.size} bytes, too few for a GGUF file.",
            "Name a .gguf file that was fetched completely.",
        )
    magic = cursor.take(4, "the magic")
    if magic != MAGIC:
        raise refuse(
            "gguf_not_a_gguf",
            f"{cursor.where} is not a GGUF file: it begins with {magic!r} instead of {MAGIC!r}.",
            _hint(magic),
        )
    version = cursor.number("I", "the version")
    if version in VERSIONS:
        return version
    if int.from_bytes(version.to_bytes(4, "little"), "big") in VERSIONS:
        raise refuse(
            "gguf_big_endian",
            f"{cursor.where} was written for a big-endian machine.",
            "Fetch the little-endian file, or convert it with gguf-convert-endian.",
        )
    raise refuse(
        "gguf_version_unknown",
        f"{cursor.where} has GGUF version {version}; versions 2 and 3 are known.",
        "Convert the original weights again with a current llama.cpp.",
    )


def _hint(magic: bytes) -> str:
    if magic[:2] == b"PK":
        return "This is a zip archive: unpack it and name the .gguf file inside."
    if magic == b"vers":
        return "This looks like a Git LFS pointer: fetch the file itself with git lfs pull."
    if magic in {b"<!DO", b"<htm", b"<HTM", b"<!do"}:
        return "This is a web page: the download went to a sign-in or error page. Fetch the file itself."
    return "Name a .gguf file. Weights in another form have to be converted first."


def _count(cursor: Cursor, limit: int, what: str) -> int:
    count = cursor.number("Q", f"the number of {what}")
    if count > limit:
        raise refuse(
            "gguf_hostile_size", f"{cursor.where} claims {count} {what}; at most {limit} make sense."
        )
    return count


def _entries(cursor: Cursor, count: int) -> dict[str, Entry]:
    entries: dict[str, Entry] = {}
    for _ in range(count):
        start = cursor.at
        key = cursor.text(MAX_KEY_BYTES, "a key")
        kind = cursor.number("I", f"the type of {key[:80]}")
        value = _value(cursor, kind, key[:80])
        if key in entries:
            raise refuse("gguf_duplicate_key", f"{cursor.where} has the key {key[:80]} twice.")
        entries[key] = Entry(key, value, start, cursor.at)
    return entries


def _value(cursor: Cursor, kind: int, key: str) -> Scalar | Array:
    if kind == STRING:
        text = cursor.text(MAX_STRING_BYTES, f"the value of {key}")
        cursor.keep(len(text), key)
        return text
    if kind == ARRAY:
        return _array(cursor, key, 1)
    if kind not in SCALARS:
        raise refuse("gguf_unknown_type", f"{cursor.where}: {key} has the unknown type {kind}.")
    return _scalar(cursor.take(SCALARS[kind][1], f"the value of {key}"), kind)


def _scalar(raw: bytes, kind: int) -> int | float | bool:
    value = struct.unpack("<" + SCALARS[kind][0], raw)[0]
    return bool(value) if kind == BOOL else value


def _array(cursor: Cursor, key: str, depth: int) -> Array:
    if depth > MAX_ARRAY_DEPTH:
        raise refuse(
            "gguf_hostile_size", f"{cursor.where}: {key} nests arrays deeper than {MAX_ARRAY_DEPTH}."
        )
    element = cursor.number("I", f"the element type of {key}")
    length = cursor.number("Q", f"the length of {key}")
    if element not in SCALARS and element not in (STRING, ARRAY):
        raise refuse("gguf_unknown_type", f"{cursor.where}: {key} is an array of the unknown type {element}.")
    # The smallest element of each type: its width, a string's length field, an array's type and length.
    width = SCALARS[element][1] if element in SCALARS else 8 if element == STRING else 12
    if length > MAX_ARRAY or length * width > cursor.size - cursor.at:
        raise refuse(
            "gguf_hostile_size",
            f"{cursor.where}: {key} claims {length} elements, more than the file can hold or than makes sense.",
        )
    start = cursor.at
    values: list[object] = []
    if element in SCALARS:
        kept = length if length <= KEPT_NUMBERS else SAMPLE
        cursor.keep(kept * NUMBER_BYTES, key)
        raw = cursor.take(kept * width, f"the array {key}")
        values = [_scalar(raw[index * width : (index + 1) * width], element) for index in range(kept)]
        cursor.skip((length - kept) * width, f"the array {key}")
    elif element == STRING:
        cursor.walk(key, length)
        sample = cursor.strings(length, key, range(min(length, SAMPLE)))
        values = list(sample.values())
        cursor.keep(sum(map(len, sample.values())), key)
    else:
        for index in range(length):
            cursor.walk(key)
            inner = _array(cursor, key, depth + 1)
            if index < SAMPLE:
                values.append(inner)
    return Array(element, length, start, tuple(values))


def _alignment(cursor: Cursor, entries: dict[str, Entry]) -> int:
    entry = entries.get("general.alignment")
    if entry is None:
        return DEFAULT_ALIGNMENT
    value = entry.value
    if not isinstance(value, int) or not 1 <= value <= MAX_ALIGNMENT or value & (value - 1):
        raise refuse(
            "gguf_bad_alignment", f"{cursor.where}: general.alignment is {value!r}, not a power of two."
        )
    return value


def _tensor_info(cursor: Cursor) -> tuple[str, tuple[int, ...], str, int]:
    name = cursor.text(MAX_NAME_BYTES, "a tensor's name")
    dimensions = cursor.number("I", f"the dimensions of {name}")
    if not 1 <= dimensions <= MAX_DIMENSIONS:
        raise refuse(
            "gguf_bad_tensor", f"{cursor.where}: tensor {name} has {dimensions} dimensions, not 1 to 4."
        )
    shape = tuple(cursor.number("Q", f"the shape of {name}") for _ in range(dimensions))
    kind = cursor.number("I", f"the type of {name}")
    offset = cursor.number("Q", f"the offset of {name}")
    if kind not in TENSOR_TYPES:
        raise refuse(
            "gguf_unknown_tensor_type",
            f"{cursor.where}: tensor {name} has the unknown weight type {kind}.",
            "The file is newer than this release knows, or damaged: try another quantization of the same weights.",
        )
    return name, shape, TENSOR_TYPES[kind].name, offset


def _placed(
    cursor: Cursor, described: list[tuple[str, tuple[int, ...], str, int]], data_start: int, alignment: int
) -> tuple[Tensor, ...]:
    """Tensors with absolute offsets; each inside the file, none over another, no name twice."""
    tensors: list[Tensor] = []
    names: set[str] = set()
    for name, shape, kind, offset in described:
        if name in names:
            raise refuse("gguf_duplicate_tensor", f"{cursor.where} has the tensor {name} twice.")
        names.add(name)
        size = tensor_bytes(shape, kind)
        if size is None or size == 0:
            raise refuse(
                "gguf_bad_tensor",
                f"{cursor.where}: tensor {name} has the shape {list(shape)}, which does not exist in {kind}.",
            )
        if offset % alignment:
            raise refuse(
                "gguf_bad_tensor", f"{cursor.where}: tensor {name} is not aligned to {alignment} bytes."
            )
        if offset > cursor.size or size > cursor.size - data_start - offset:
            raise refuse(
                "gguf_truncated",
                f"{cursor.where} ends before its weights do: {name} needs the bytes up to "
                f"{data_start + offset + size}, the file has {cursor.size}.",
                "The download was cut off: fetch the file again.",
            )
        tensors.append(Tensor(name, shape, kind, data_start + offset, size))
    _refuse_overlap(cursor, tensors)
    return tuple(tensors)


def _refuse_overlap(cursor: Cursor, tensors: list[Tensor]) -> None:
    ordered = sorted(tensors, key=lambda tensor: tensor.offset)
    for left, right in itertools.pairwise(ordered):
        if left.offset + left.size > right.offset:
            raise refuse(
                "gguf_overlapping_tensors", f"{cursor.where}: tensors {left.name} and {right.name} overlap."
            )
