"""The header reader trusts nothing: each hostile file is refused with a finding id, a sentence and a remedy."""

from __future__ import annotations

import struct
import tracemalloc
from pathlib import Path

import gguf
import pytest

from apps.core.exceptions import InvalidInput
from apps.registry.domain import gguf_cursor, gguf_reader
from apps.registry.domain.gguf_reader import Array, read_header, read_strings
from apps.registry.domain.gguf_types import BY_NAME, FILE_TYPES, TENSOR_TYPES
from tests.support.llama import write_llama

U32, F32, STR, ARR, U64 = 4, 6, 8, 9, 10


def text(value: bytes) -> bytes:
    return struct.pack("<Q", len(value)) + value


def entry(key: bytes, kind: int, value: bytes) -> bytes:
    return text(key) + struct.pack("<I", kind) + value


def tensor(name: bytes, shape: tuple[int, ...], kind: int = 0, offset: int = 0) -> bytes:
    return text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, offset)


def header(
    entries: list[bytes] | None = None,
    tensors: list[bytes] | None = None,
    *,
    magic: bytes = b"GGUF",
    version: int = 3,
    counts: tuple[int, int] | None = None,
    data: int = 0,
) -> bytes:
    """A file from its parts; `counts` lies about (tensors, entries)."""
    entries = [entry(b"general.architecture", STR, text(b"llama"))] if entries is None else entries
    tensors = tensors or []
    found = counts or (len(tensors), len(entries))
    body = magic + struct.pack("<IQQ", version, *found) + b"".join(entries) + b"".join(tensors)
    return body + bytes(-len(body) % 32) + bytes(data)


HUGE = 2**62
HOSTILE: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "gguf_not_a_gguf"),
    "short": (b"GGUF\x03\0\0\0", "gguf_not_a_gguf"),
    "text": (b"This is a text file that is long enough.", "gguf_not_a_gguf"),
    "zip": (b"PK\x03\x04" + bytes(60), "gguf_not_a_gguf"),
    "git lfs pointer": (b"version https://git-lfs.github.com/spec/v1", "gguf_not_a_gguf"),
    "web page": (b"<!DOCTYPE html><html><body>Sign in</body></html>", "gguf_not_a_gguf"),
    "big endian": (b"GGUF" + struct.pack(">IQQ", 3, 0, 0) + bytes(32), "gguf_big_endian"),
    "version 1": (header(version=1), "gguf_version_unknown"),
    "version 99": (header(version=99), "gguf_version_unknown"),
    "too many tensors": (header(counts=(HUGE, 1)), "gguf_hostile_size"),
    "too many entries": (header(counts=(0, HUGE)), "gguf_hostile_size"),
    "more entries than there are": (header(counts=(0, 50))[:69], "gguf_truncated"),
    "key length": (header([struct.pack("<Q", HUGE) + b"x"]), "gguf_hostile_size"),
    "key longer than the file": (header([struct.pack("<Q", 60_000) + b"x"]), "gguf_truncated"),
    "string length": (header([entry(b"a", STR, struct.pack("<Q", 2**64 - 1))]), "gguf_hostile_size"),
    "string longer than the file": (header([entry(b"a", STR, struct.pack("<Q", 9_999))]), "gguf_truncated"),
    "unknown value type": (header([entry(b"a", 77, b"")]), "gguf_unknown_type"),
    "unknown element type": (header([entry(b"a", ARR, struct.pack("<IQ", 77, 1))]), "gguf_unknown_type"),
    "array length": (header([entry(b"a", ARR, struct.pack("<IQ", U64, HUGE))]), "gguf_hostile_size"),
    "array longer than the file": (
        header([entry(b"a", ARR, struct.pack("<IQ", U32, 999))]),
        "gguf_hostile_size",
    ),
    "array of strings longer than the file": (
        header([entry(b"a", ARR, struct.pack("<IQ", STR, 1_000_000))]),
        "gguf_hostile_size",
    ),
    "array of arrays of arrays": (
        header([entry(b"a", ARR, struct.pack("<IQ", ARR, 1) * 9 + struct.pack("<IQI", U32, 1, 1))]),
        "gguf_hostile_size",
    ),
    "duplicate key": (header([entry(b"a", U32, bytes(4))] * 2), "gguf_duplicate_key"),
    "alignment 0": (header([entry(b"general.alignment", U32, struct.pack("<I", 0))]), "gguf_bad_alignment"),
    "alignment 48": (header([entry(b"general.alignment", U32, struct.pack("<I", 48))]), "gguf_bad_alignment"),
    "alignment 2^31": (
        header([entry(b"general.alignment", U32, struct.pack("<I", 2**31))]),
        "gguf_bad_alignment",
    ),
    "alignment text": (header([entry(b"general.alignment", STR, text(b"32"))]), "gguf_bad_alignment"),
    "no dimensions": (header(tensors=[tensor(b"t", ())], data=64), "gguf_bad_tensor"),
    "nine dimensions": (header(tensors=[tensor(b"t", (1,) * 9)], data=64), "gguf_bad_tensor"),
    "dimension 0": (header(tensors=[tensor(b"t", (4, 0))], data=64), "gguf_bad_tensor"),
    "shape overflows": (header(tensors=[tensor(b"t", (2**40, 2**40))], data=64), "gguf_bad_tensor"),
    "row of half a block": (header(tensors=[tensor(b"t", (16, 2), kind=2)], data=64), "gguf_bad_tensor"),
    "unknown tensor type": (
        header(tensors=[tensor(b"t", (4,), kind=99)], data=64),
        "gguf_unknown_tensor_type",
    ),
    "removed tensor type": (
        header(tensors=[tensor(b"t", (32,), kind=4)], data=64),
        "gguf_unknown_tensor_type",
    ),
    "offset not aligned": (header(tensors=[tensor(b"t", (4,), offset=4)], data=64), "gguf_bad_tensor"),
    "offset past the end": (header(tensors=[tensor(b"t", (4,), offset=HUGE)], data=64), "gguf_truncated"),
    "offset wraps": (header(tensors=[tensor(b"t", (4,), offset=2**64 - 32)], data=64), "gguf_truncated"),
    "weights cut off": (header(tensors=[tensor(b"t", (64,))], data=64), "gguf_truncated"),
    "overlapping": (
        header(tensors=[tensor(b"a", (16,)), tensor(b"b", (16,), offset=32)], data=128),
        "gguf_overlapping_tensors",
    ),
    "same tensor twice": (
        header(tensors=[tensor(b"a", (8,)), tensor(b"a", (8,), offset=32)], data=128),
        "gguf_duplicate_tensor",
    ),
    "tensor name length": (header(counts=(1, 1))[:69] + struct.pack("<Q", HUGE), "gguf_hostile_size"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_are_refused_without_large_allocations(name: str, tmp_path: Path) -> None:
    data, code = HOSTILE[name]
    path = tmp_path / "model.gguf"
    path.write_bytes(data)
    tracemalloc.start()
    try:
        with pytest.raises(InvalidInput) as caught:
            read_header(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert caught.value.code == code
    assert caught.value.field == "source"
    assert caught.value.sentence.endswith(".")
    assert caught.value.remedy
    assert peak < 4 * 1024 * 1024


def test_every_truncation_of_a_good_file_is_refused(tmp_path: Path) -> None:
    whole = write_llama(tmp_path / "whole.gguf", layers=1, vocab=32).read_bytes()
    size = len(whole)
    path = tmp_path / "cut.gguf"
    for length in [*range(0, 600, 7), *range(600, size, 4_001), size - 1]:
        path.write_bytes(whole[:length])
        with pytest.raises(InvalidInput) as caught:
            read_header(path)
        assert caught.value.code in {"gguf_truncated", "gguf_not_a_gguf", "gguf_hostile_size"}, length
    path.write_bytes(whole)
    assert len(read_header(path).tensors) == 11


@pytest.mark.parametrize("version", [2, 3])
def test_good_versions(version: int, tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(header(tensors=[tensor(b"t", (8, 2))], version=version, data=64))
    found = read_header(path)
    assert found.version == version
    assert found.get("general.architecture") == "llama"
    assert [(item.name, item.shape, item.type, item.size) for item in found.tensors] == [
        ("t", (8, 2), "F32", 64)
    ]
    assert found.tensors[0].offset == found.data_start


def test_reading_agrees_with_the_gguf_package(tmp_path: Path) -> None:
    path = write_llama(tmp_path / "model.gguf")
    found, known = read_header(path), gguf.GGUFReader(path)
    assert set(found.entries) == {key for key in known.fields if not key.startswith("GGUF.")}
    for ours, theirs in zip(found.tensors, known.tensors, strict=True):
        assert ours.name == theirs.name
        assert list(ours.shape) == list(theirs.shape)
        assert ours.type == theirs.tensor_type.name
        assert (ours.offset, ours.size) == (theirs.data_offset, theirs.n_bytes)


def test_arrays_are_sampled_and_strings_found_by_index(tmp_path: Path) -> None:
    path = write_llama(tmp_path / "model.gguf", vocab=3_000)
    found = read_header(path)
    tokens, scores = found.get("tokenizer.ggml.tokens"), found.get("tokenizer.ggml.scores")
    assert isinstance(tokens, Array)
    assert isinstance(scores, Array)
    assert (tokens.length, len(tokens.values)) == (3_000, gguf_reader.SAMPLE)
    assert (scores.length, len(scores.values)) == (3_000, gguf_reader.SAMPLE)
    assert read_strings(path, tokens, {1, 2_999, 50_000}) == {1: "<s>", 2_999: "▁w2996"}


def test_short_numeric_arrays_are_kept_whole(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    values = struct.pack("<IQ20I", U32, 20, *range(20))
    path.write_bytes(header([entry(b"llama.attention.head_count_kv", ARR, values)]))
    found = read_header(path).get("llama.attention.head_count_kv")
    assert isinstance(found, Array)
    assert found.values == tuple(range(20))


def test_a_string_budget_over_the_whole_header(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gguf_cursor, "MAX_WALKED", 100)
    path = tmp_path / "model.gguf"
    many = struct.pack("<IQ", STR, 60) + bytes(8 * 60)
    path.write_bytes(header([entry(b"a", ARR, many), entry(b"b", ARR, many)]))
    with pytest.raises(InvalidInput) as caught:
        read_header(path)
    assert caught.value.code == "gguf_hostile_size"


def test_entries_name_their_own_bytes(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    parts = [entry(b"general.architecture", STR, text(b"llama")), entry(b"x.y", F32, struct.pack("<f", 1.5))]
    path.write_bytes(header(parts))
    raw = path.read_bytes()
    found = read_header(path)
    assert [raw[item.start : item.end] for item in found.entries.values()] == parts


def test_tables_agree_with_the_gguf_package() -> None:
    known = {kind.name: sizes for kind, sizes in gguf.GGML_QUANT_SIZES.items()}
    assert {item.name: (item.block, item.size) for item in TENSOR_TYPES.values()} == known
    assert {item.name: item.number for item in BY_NAME.values()} == {
        kind.name: kind.value for kind in gguf.GGMLQuantizationType
    }
    for kind in gguf.LlamaFileType:
        if kind.name not in {"GUESSED"}:
            name = kind.name.removeprefix("ALL_").removeprefix("MOSTLY_").removesuffix("_MOE")
            assert FILE_TYPES[kind.value] == name
