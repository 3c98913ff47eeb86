"""The frozen specification: its fingerprint, and what is wrong with it."""

from __future__ import annotations

from typing import Any

import gguf
import pytest

from apps.engines.domain.build_spec import (
    READABLE,
    WRITABLE,
    BuildSpec,
    bits_per_weight,
    canonical,
    check_facts,
    check_spec,
    engine_bytes,
)
from apps.engines.models import BuildProfile, Quantization
from workers.build_run import BUILDERS
from workers.builders.llamacpp_steps.convert import FILE_TYPES

BASE: dict[str, Any] = {
    "builder": "llamacpp",
    "builder_version": "1",
    "quantization": "F16",
    "checkpoint": "tiny",
    "path": "/a/m.gguf",
    "source": {"sha256": "ab"},
    "options": {},
}


def spec(**changes: Any) -> BuildSpec:
    return BuildSpec(**{**BASE, **changes})


def test_the_fingerprint_is_that_of_the_content() -> None:
    known = spec().fingerprint()
    assert len(known) == 64
    assert spec(checkpoint="other", path="/b/m.gguf").fingerprint() == known
    for change in (
        {"builder_version": "2"},
        {"quantization": "Q8_0"},
        {"source": {"sha256": "cd"}},
        {"options": {"x": 1}},
    ):
        assert spec(**change).fingerprint() != known


def test_canonical_json_is_one_text_for_equal_data() -> None:
    assert (
        canonical({"b": [1, 2], "a": "é"})
        == canonical({"a": "é", "b": [1, 2]})
        == '{"a":"\\u00e9","b":[1,2]}'
    )
    with pytest.raises(ValueError, match="JSON"):
        canonical({"a": float("nan")})


def test_a_spec_survives_the_row() -> None:
    known = spec(source={"size": 3, "mtime_ns": 2**60, "header_sha256": "x"})
    assert BuildSpec.model_validate(known.model_dump(mode="json")).fingerprint() == known.fingerprint()


def test_the_tables_agree() -> None:
    assert set(WRITABLE) == set(Quantization.values) == set(FILE_TYPES)
    assert WRITABLE == FILE_TYPES
    assert set(BUILDERS) <= set(BuildProfile.Builder.values)
    for name, number in WRITABLE.items():
        assert gguf.LlamaFileType(number).name == f"MOSTLY_{name}"
        traits = gguf.quants._type_traits
        assert name == "F16" or hasattr(traits[gguf.GGMLQuantizationType[name]], "quantize_blocks")
    plain = {"F32", "F16", "F64", "I8", "I16", "I32", "I64"}
    assert {kind.name for kind in gguf.quants._type_traits} | plain == READABLE


@pytest.mark.parametrize(
    ("arguments", "ids"),
    [
        (("llamacpp", "F16", {}), []),
        (("trtllm", "F16", {}), ["unknown_builder"]),
        (("llamacpp", "Q3_K", {}), ["unknown_quantization"]),
        (("llamacpp", "", {"a": 1, "b": 2}), ["unknown_quantization", "unknown_option", "unknown_option"]),
    ],
)
def test_settings(arguments: tuple[str, str, dict[str, Any]], ids: list[str]) -> None:
    found = check_spec(*arguments)
    assert [finding.id for finding in found] == ids
    assert all(finding.remedy and finding.where for finding in found)


def test_weights_that_cannot_be_read_and_widening() -> None:
    errors = [
        item.id for item in check_facts("Q8_0", {"F32": 3, "Q8_K": 1}, None) if item.severity == "error"
    ]
    assert errors == ["weights_not_readable"]
    [note] = check_facts("F16", {"F32": 61, "Q4_1": 210}, "Q4_1")
    assert (note.id, note.severity) == ("widened_weights", "info")
    assert check_facts("Q4_0", {"F32": 1, "F16": 9}, "F16") == []
    assert check_facts("F16", {}, None) == []


def test_sizes() -> None:
    assert bits_per_weight("F16") == 16
    assert bits_per_weight("Q4_0") == 4.5
    assert bits_per_weight("nothing") is None
    # The demo's F16 engine has 270,885,952 bytes.
    assert 265e6 < engine_bytes(134_515_008, "F16") < 290e6
