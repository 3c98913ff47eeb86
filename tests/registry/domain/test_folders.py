"""A folder in Hugging Face form: weights by their headers, tokenizer files, and what is missing."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest

from apps.registry.domain.checkpoint_reader import Found, read_checkpoint
from tests.support.hugging_face import TINY, llama_tensors, write_hugging_face, write_safetensors

PARAMS = 2 * 96 * 64 + 2 * (2 * 64 * 64 + 2 * 32 * 64 + 3 * 64 * 128 + 2 * 64) + 64


def ids(found: Found) -> list[str]:
    return [finding.id for finding in found.facts.findings]


def split(folder: Path, parts: int = 2) -> dict[str, str]:
    """The weights in several files with an index; the single file goes."""
    (folder / "model.safetensors").unlink()
    tensors, mapping = llama_tensors(), {}
    for part in range(parts):
        name = f"model-{part + 1:05}-of-{parts:05}.safetensors"
        chosen = {key: value for index, (key, value) in enumerate(tensors.items()) if index % parts == part}
        write_safetensors(folder / name, chosen)
        mapping |= dict.fromkeys(chosen, name)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": mapping}))
    return mapping


def test_a_good_folder(tmp_path: Path) -> None:
    found = read_checkpoint(write_hugging_face(tmp_path / "m"))
    facts = found.facts
    assert ids(found) == []
    assert (facts.params, facts.weights_bytes, facts.tensors) == (PARAMS, 2 * PARAMS, len(llama_tensors()))
    assert facts.tensor_types == {"BF16": 2 * PARAMS}
    assert (facts.bos_token, facts.bos_token_id, facts.eos_token) == ("<s>", 1, "</s>")
    assert facts.eos_token_ids == (2, 3)
    assert found.chat_template == "{{ messages }}"


def test_config_alone(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(TINY))
    alone, folder = read_checkpoint(tmp_path / "config.json"), read_checkpoint(tmp_path)
    assert (alone.facts.params, ids(alone)) == (PARAMS, [])
    assert ids(folder) == ["tokenizer_missing", "chat_template_missing", "weights_missing"]
    assert folder.facts.errors() == ()


class TestWeights:
    """Headers of safetensors."""

    def test_several_files(self, tmp_path: Path) -> None:
        folder = write_hugging_face(tmp_path / "m")
        split(folder)
        # The same weights once more in another layout, as some repositories have them.
        write_safetensors(folder / "consolidated.safetensors", llama_tensors())
        found = read_checkpoint(folder)
        assert (ids(found), found.facts.params, found.facts.weights_bytes) == ([], PARAMS, 2 * PARAMS)

    def test_a_missing_file(self, tmp_path: Path) -> None:
        folder = write_hugging_face(tmp_path / "m")
        split(folder, 3)
        (folder / "model-00002-of-00003.safetensors").unlink()
        found = read_checkpoint(folder)
        (error,) = found.facts.errors()
        assert error.id == "shard_missing"
        assert "1 of 3" in error.message
        assert "model-00002-of-00003" in error.message

    @pytest.mark.parametrize(
        "name", ["../outside.safetensors", "/etc/passwd", "a/b.safetensors", "x\0.safetensors"]
    )
    def test_an_index_that_points_outside(self, tmp_path: Path, name: str) -> None:
        folder = write_hugging_face(tmp_path / "m")
        write_safetensors(tmp_path / "outside.safetensors", {"a": ("F32", [4])})
        mapping = split(folder)
        mapping["evil"] = name
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": mapping}))
        found = read_checkpoint(folder)
        assert [finding.id for finding in found.facts.errors()] == ["index_path_outside"]
        assert found.facts.weights_bytes == 2 * PARAMS

    @pytest.mark.parametrize("index", ["{}", '{"weight_map": []}', '{"weight_map": {"a": 1}}', "[", ""])
    def test_an_index_that_is_none(self, tmp_path: Path, index: str) -> None:
        folder = write_hugging_face(tmp_path / "m")
        (folder / "model.safetensors.index.json").write_text(index)
        assert read_checkpoint(folder).facts.errors()

    def test_the_files_count_where_they_differ(self, tmp_path: Path) -> None:
        tensors = {**llama_tensors(), "model.extra.weight": ("BF16", [8])}
        found = read_checkpoint(write_hugging_face(tmp_path / "m", tensors=tensors))
        assert (ids(found), found.facts.params) == (["params_differ"], PARAMS + 8)

    def test_towers_and_prediction_layers_are_told_apart(self, tmp_path: Path) -> None:
        more = {
            "vision_tower.encoder.weight": ("BF16", [10]),
            "multi_modal_projector.linear.weight": ("BF16", [20]),
            "model.layers.2.mlp.up_proj.weight": ("BF16", [30]),
            "model.layers.0.self_attn.rotary_emb.inv_freq": ("F32", [8]),
        }
        facts = read_checkpoint(write_hugging_face(tmp_path / "m", tensors={**llama_tensors(), **more})).facts
        assert (facts.params, facts.other_params, facts.mtp_params) == (PARAMS, 30, 30)

    def test_a_tied_projection_that_is_stored_counts_once(self, tmp_path: Path) -> None:
        found = read_checkpoint(write_hugging_face(tmp_path / "m", {"tie_word_embeddings": True}))
        assert (ids(found), found.facts.params) == ([], PARAMS - 96 * 64)

    def test_packed_weights_count_unpacked(self, tmp_path: Path) -> None:
        awq = {
            "model_type": "never_heard_of",
            "architectures": [],
            "quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 64},
        }
        tensors = {
            "model.layers.0.mlp.up_proj.qweight": ("I32", [64, 16]),
            "model.layers.0.mlp.up_proj.qzeros": ("I32", [1, 16]),
            "model.layers.0.mlp.up_proj.scales": ("F16", [1, 128]),
            "model.embed_tokens.weight": ("F16", [96, 64]),
        }
        facts = read_checkpoint(write_hugging_face(tmp_path / "m", awq, tensors=tensors)).facts
        assert facts.params == 64 * 128 + 96 * 64

    def test_an_unknown_family_is_counted_by_its_files(self, tmp_path: Path) -> None:
        facts = read_checkpoint(
            write_hugging_face(tmp_path / "m", {"model_type": "x", "architectures": []})
        ).facts
        assert (facts.params, facts.family) == (PARAMS, "x")

    def test_pickles_are_not_read(self, tmp_path: Path) -> None:
        folder = write_hugging_face(tmp_path / "m")
        (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
        assert ids(read_checkpoint(folder)) == ["pickle_weights"]


BROKEN: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "safetensors_truncated"),
    "short": (b"\1\0", "safetensors_truncated"),
    "length beyond the file": (struct.pack("<Q", 2**63), "safetensors_truncated"),
    "pointer": (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\n", "git_lfs_pointer"),
    "no JSON": (struct.pack("<Q", 4) + b"\xff\xfe{}", "not_utf8"),
    "no object": (struct.pack("<Q", 2) + b"[]", "json_not_an_object"),
}
LIES: dict[str, tuple[Any, str]] = {
    "no entry": (5, "safetensors_header_invalid"),
    "dtype": ({"dtype": "X9", "shape": [1], "data_offsets": [0, 1]}, "safetensors_header_invalid"),
    "shape": ({"dtype": "U8", "shape": "1", "data_offsets": [0, 1]}, "safetensors_header_invalid"),
    "negative": ({"dtype": "U8", "shape": [-1], "data_offsets": [0, 1]}, "safetensors_header_invalid"),
    "backwards": ({"dtype": "U8", "shape": [1], "data_offsets": [1, 0]}, "safetensors_header_invalid"),
    "size": ({"dtype": "F32", "shape": [1], "data_offsets": [0, 2]}, "safetensors_header_invalid"),
    "huge": ({"dtype": "U8", "shape": [2**40, 2**40], "data_offsets": [0, 1]}, "safetensors_header_invalid"),
    "beyond": ({"dtype": "U8", "shape": [2**30], "data_offsets": [0, 2**30]}, "safetensors_truncated"),
    "ranks": ({"dtype": "U8", "shape": [1] * 100_000, "data_offsets": [0, 1]}, "safetensors_header_invalid"),
}


class TestHostileWeights:
    """Headers that lie."""

    @pytest.mark.parametrize("name", BROKEN)
    def test_broken_files(self, tmp_path: Path, name: str) -> None:
        raw, code = BROKEN[name]
        folder = write_hugging_face(tmp_path / "m")
        (folder / "model.safetensors").write_bytes(raw)
        self.check(folder, code)

    @pytest.mark.parametrize("name", LIES)
    def test_lies(self, tmp_path: Path, name: str) -> None:
        entry, code = LIES[name]
        self.write(tmp_path, {"t\0\ud800": entry})
        self.check(tmp_path / "m", code)

    def test_overlap(self, tmp_path: Path) -> None:
        entry = {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]}
        self.write(tmp_path, {"a": entry, "b": {**entry, "data_offsets": [2, 6]}})
        self.check(tmp_path / "m", "safetensors_overlap")

    def test_a_folder_in_place_of_a_file(self, tmp_path: Path) -> None:
        folder = write_hugging_face(tmp_path / "m")
        (folder / "model.safetensors").unlink()
        (folder / "model.safetensors").mkdir()
        self.check(folder, "not_a_file")

    def write(self, tmp_path: Path, header: dict[str, Any]) -> None:
        folder = write_hugging_face(tmp_path / "m")
        raw = json.dumps(header).encode()
        (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(raw)) + raw + bytes(64))

    def check(self, folder: Path, code: str) -> None:
        found = read_checkpoint(folder)
        (error,) = found.facts.errors()
        assert (error.id, error.where) == (code, "model.safetensors")
        assert error.message
        assert error.remedy
        # The configuration's own arithmetic still stands.
        assert found.facts.params == PARAMS
        json.dumps(found.facts.model_dump(mode="json")).encode()


class TestTokenizer:
    """Files beside the weights."""

    def test_a_template_file_counts_first(self, tmp_path: Path) -> None:
        folder = write_hugging_face(tmp_path / "m")
        (folder / "chat_template.jinja").write_text("\ufeff{{ x }}\0")
        assert read_checkpoint(folder).chat_template == "{{ x }}\ufffd"

    def test_of_several_templates_the_default(self, tmp_path: Path) -> None:
        folder = write_hugging_face(tmp_path / "m")
        named = [{"name": "tool_use", "template": "T"}, {"name": "default", "template": "D"}, {"name": []}, 5]
        (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": named}))
        assert read_checkpoint(folder).chat_template == "D"

    @pytest.mark.parametrize(
        "settings",
        [[], {"chat_template": 5, "bos_token": [], "added_tokens_decoder": {"x": 1, "7": []}}, "x"],
    )
    def test_of_the_wrong_shape(self, tmp_path: Path, settings: object) -> None:
        folder = write_hugging_face(tmp_path / "m")
        (folder / "tokenizer_config.json").write_text(json.dumps(settings))
        (folder / "generation_config.json").write_text('{"eos_token_id": [true, -1, 1e999, "x", 7]}')
        found = read_checkpoint(folder)
        assert "chat_template_missing" in ids(found)
        assert (found.facts.errors(), found.facts.eos_token_ids) == ((), (7,))

    def test_a_token_outside_of_the_vocabulary(self, tmp_path: Path) -> None:
        folder = write_hugging_face(tmp_path / "m")
        (folder / "generation_config.json").write_text('{"eos_token_id": 96}')
        assert ids(read_checkpoint(folder)) == ["token_outside_vocabulary"]


def test_an_adapter_is_no_model(tmp_path: Path) -> None:
    (tmp_path / "adapter_config.json").write_text("{}")
    assert ids(read_checkpoint(tmp_path)) == ["adapter_only"]
