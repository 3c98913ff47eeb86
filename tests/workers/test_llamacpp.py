"""The llamacpp builder: its plan as data, and its steps on small files."""

from __future__ import annotations

import hashlib
import json
import os
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gguf
import numpy as np
import pytest

from apps.core.exceptions import InfrastructureError
from apps.engines.domain.build_spec import WRITABLE, BuildSpec
from apps.registry.domain.gguf_facts import read_facts
from apps.registry.domain.gguf_reader import read_header
from tests.support.llama import write_llama
from workers.builders import publishing as publish
from workers.builders.base import BuildContext
from workers.builders.llamacpp import LlamaCppBuilder
from workers.builders.llamacpp_steps import convert as convert_step
from workers.builders.llamacpp_steps import events, inspect_source, weights
from workers.builders.llamacpp_steps.convert import convert
from workers.builders.llamacpp_steps.events import StepFailed
from workers.builders.llamacpp_steps.plan import plan_tensors

FINGERPRINT = "f" * 64
Sent = list[dict[str, Any]]


VERSIONS = {"python": "3.11.0", "gguf": "0.19.0"}


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> Sent:
    """Events that the steps sent."""
    found: Sent = []

    def send(event: str, **values: Any) -> None:
        found.append({"event": event, **values})

    for module in (events, inspect_source, publish, convert_step):
        monkeypatch.setattr(module, "send", send)
    return found


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_llama(tmp_path / "source.gguf", tokenizer__chat_template="{{ x }}")


def context(folder: Path, **changes: Any) -> BuildContext:
    known: dict[str, Any] = {
        "number": 7,
        "attempt": 2,
        "fingerprint": FINGERPRINT,
        "folder": folder / "7-2",
        "engines": folder / "engines",
        "checkout": Path("/checkout"),
        "serving_python": Path("/bin/sh"),
        "node": {"cores": 3},
        "engine_bytes": 1000,
    }
    return BuildContext(**{**known, **changes})


def spec(path: Path, quantization: str = "Q8_0") -> BuildSpec:
    return BuildSpec(
        builder="llamacpp",
        builder_version="1",
        quantization=quantization,
        checkpoint="tiny",
        path=str(path),
        source={"sha256": "ab"},
    )


def test_the_plan_is_data(source: Path, tmp_path: Path) -> None:
    builder, where = LlamaCppBuilder(), context(tmp_path)
    steps = builder.plan(spec(source), where)
    assert steps == builder.plan(spec(source), where)
    assert [step.name for step in steps] == ["inspect", "convert", "verify", "publish"]
    assert not where.folder.exists(), "nothing is touched"
    for step in steps:
        assert step.argv[:4] == ("/bin/sh", "-P", "-u", "-m")
        assert step.cwd == where.folder
        assert step.env["PYTHONPATH"] == "/checkout"
        assert "DATABASE_URL" not in step.env
        assert not any(name.startswith("INFLIGHT") for name in step.env)
        assert json.dumps(step.as_dict())
    _inspect, conversion, _verify, publication = steps
    assert conversion.argv[4:] == (
        "workers.builders.llamacpp_steps.convert",
        "--source",
        str(source),
        "--target",
        str(where.work / "engine" / "model.gguf"),
        "--type",
        "Q8_0",
    )
    assert publication.outputs == (where.engines / FINGERPRINT / "manifest.json",)


def test_check(source: Path, tmp_path: Path) -> None:
    builder = LlamaCppBuilder()
    assert builder.check(spec(source), context(tmp_path)) == []
    lacking = builder.check(
        spec(tmp_path / "gone.gguf", "Q9"), context(tmp_path, serving_python=Path("/none"))
    )
    assert [finding.id for finding in lacking] == [
        "unknown_quantization",
        "serving_environment_missing",
        "checkpoint_missing",
    ]
    assert all(finding.remedy for finding in lacking)


@pytest.mark.parametrize("kind", WRITABLE)
def test_every_type_is_what_the_gguf_package_makes(
    kind: str, source: Path, tmp_path: Path, sent: Sent
) -> None:
    target = tmp_path / "out" / "model.gguf"
    convert(source, target, kind)
    facts, _header = read_facts(target)
    assert facts.file_type == kind
    assert facts.tensor_types == {"F32": 5, kind: 15}
    before, after = gguf.GGUFReader(source), gguf.GGUFReader(target)
    wanted = gguf.GGMLQuantizationType[kind]
    for old, new in zip(before.tensors, after.tensors, strict=True):
        assert (old.name, list(old.shape)) == (new.name, list(new.shape))
        if len(old.shape) == 1:
            assert new.tensor_type.name == "F32"
            np.testing.assert_array_equal(new.data, old.data)
        else:
            expected = gguf.quants.quantize(np.array(old.data, dtype=np.float32), wanted)
            assert new.data.tobytes() == expected.tobytes(), new.name
    replaced = {"general.file_type", "general.quantization_version"}
    kept = {key for key in before.fields if not key.startswith("GGUF.")} - replaced
    for key in kept:
        assert after.fields[key].contents() == before.fields[key].contents(), key
    assert sent[-1]["facts"]["tensor_types"] == {kind: 15, "F32": 5}
    assert {event["event"] for event in sent} == {"progress", "result"}


def test_quantised_sources_are_read_back(source: Path, tmp_path: Path, sent: Sent) -> None:
    small, again, copy = (tmp_path / f"{name}.gguf" for name in ("small", "again", "copy"))
    convert(source, small, "Q4_1")
    convert(small, again, "F16")
    convert(small, copy, "Q4_1")
    assert copy.read_bytes() == small.read_bytes(), "what has the wanted type is copied"
    old, new = gguf.GGUFReader(small), gguf.GGUFReader(again)
    for left, right in zip(old.tensors, new.tensors, strict=True):
        numbers = gguf.quants.dequantize(left.data, left.tensor_type)
        np.testing.assert_array_equal(
            np.array(right.data, dtype=np.float32), numbers.astype(right.data.dtype)
        )


def test_rows_that_fill_no_block_stay_f16_and_it_is_said(tmp_path: Path, sent: Sent) -> None:
    source, target = tmp_path / "a.gguf", tmp_path / "b.gguf"
    writer = gguf.GGUFWriter(source, "llama")
    random = np.random.default_rng(1)
    for name, shape in {
        "odd.weight": (4, 48),
        "even.weight": (4, 64),
        "blk.0.ffn_gate_inp.weight": (4, 64),
        "blk.0.attn_rel.bias": (4, 64),
        "experts.weight": (2, 4, 64),
        "norm.weight": (64,),
        "one_row.weight": (1, 64),
    }.items():
        writer.add_tensor(name, random.standard_normal(shape).astype(np.float32))
    writer.add_tensor("positions.weight", np.arange(8, dtype=np.int32).reshape(2, 4))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    convert(source, target, "Q4_0")
    types = {tensor.name: tensor.type for tensor in read_header(target).tensors}
    assert types == {
        "odd.weight": "F16",
        "even.weight": "Q4_0",
        "blk.0.ffn_gate_inp.weight": "F32",
        "blk.0.attn_rel.bias": "F32",
        "experts.weight": "Q4_0",
        "norm.weight": "F32",
        "one_row.weight": "F32",
        "positions.weight": "I32",
    }
    [note] = [event["text"] for event in sent if event["event"] == "note"]
    assert note == "1 tensors stay F16 instead of Q4_0: rows of 48 are no multiple of 32."
    assert sent[-1]["facts"]["notes"] == [note]


@pytest.mark.parametrize(
    ("value", "kind", "reason"),
    [
        (float("nan"), "Q8_0", "weights_not_finite"),
        (float("inf"), "BF16", "weights_not_finite"),
        (70_000.0, "F16", "weights_overflow_f16"),
    ],
)
def test_weights_that_are_no_numbers_or_too_large(
    value: float, kind: str, reason: str, tmp_path: Path, sent: Sent
) -> None:
    source = tmp_path / "a.gguf"
    writer = gguf.GGUFWriter(source, "llama")
    numbers = np.zeros((2, 32), dtype=np.float32)
    numbers[1, 3] = value
    writer.add_tensor("a.weight", numbers)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(StepFailed) as caught:
        convert(source, tmp_path / "b.gguf", kind)
    assert caught.value.reason == reason
    assert "a.weight" in caught.value.sentence
    assert caught.value.remedy


def test_memory_stays_bounded(tmp_path: Path, sent: Sent, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tensor of 32 MiB is converted in pieces of 256 KiB."""
    source = tmp_path / "a.gguf"
    writer = gguf.GGUFWriter(source, "llama")
    writer.add_tensor("a.weight", np.ones((8192, 1024), dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    monkeypatch.setattr(weights, "CHUNK_ELEMENTS", 65_536)
    tracemalloc.start()
    convert(source, tmp_path / "b.gguf", "Q8_0")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 6 * 1024 * 1024


def test_a_source_that_shrinks_while_it_is_read(source: Path, tmp_path: Path, sent: Sent) -> None:
    target = plan_tensors(read_header(source), "Q8_0")[0]
    with source.open("r+b") as file:
        file.truncate(target.source.offset + 10)
        file.seek(0)
        with pytest.raises(StepFailed) as caught:
            list(weights.converted(file, target))
    assert caught.value.reason == "gguf_truncated"


def test_inspect_knows_the_file_again(source: Path, tmp_path: Path, sent: Sent) -> None:
    found = source.stat()
    identity: dict[str, Any] = {"size": found.st_size, "mtime_ns": found.st_mtime_ns}
    inspect_source.inspect(source, identity, "Q8_0", tmp_path / "work")
    facts = sent[-1]["facts"]
    assert facts["size_bytes"] == found.st_size
    assert facts["architecture"] == "llama"
    inspect_source.inspect(source, {"sha256": facts["sha256"]}, "Q8_0", tmp_path / "work")
    os.utime(source, ns=(1, 1))
    inspect_source.inspect(source, {"sha256": facts["sha256"]}, "Q8_0", tmp_path / "work")
    for wrong in (identity, {"sha256": "00"}, {**identity, "size": 3}):
        with pytest.raises(StepFailed) as caught:
            inspect_source.inspect(source, wrong, "Q8_0", tmp_path / "work")
        assert caught.value.reason == "checkpoint_changed"


def test_inspect_says_before_hand_that_the_disk_is_too_small(
    source: Path, tmp_path: Path, sent: Sent, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = SimpleNamespace(free=1000)
    monkeypatch.setattr(inspect_source, "shutil", SimpleNamespace(disk_usage=lambda path: free))
    with pytest.raises(SystemExit):
        inspect_source.inspect(source, {"sha256": "x"}, "Q8_0", tmp_path / "work")
    assert sent[-1]["reason"] == "disk_full"
    assert "0.27 GB are needed" in sent[-1]["sentence"]


@pytest.fixture
def artefact(tmp_path: Path) -> Callable[[], Path]:
    def make() -> Path:
        folder = tmp_path / "work" / "engine"
        folder.mkdir(parents=True)
        (folder / "model.gguf").write_bytes(b"weights")
        return folder

    return make


def test_publish_is_one_rename_with_a_manifest(
    artefact: Callable[[], Path], tmp_path: Path, sent: Sent
) -> None:
    folder, engines = artefact(), tmp_path / "engines"
    publish.publish(
        folder, {"quantization": "Q8_0", "versions": {"driver": "5"}}, engines, FINGERPRINT, VERSIONS
    )
    assert not folder.exists()
    assert [path.name for path in engines.iterdir()] == [FINGERPRINT]
    manifest = json.loads((engines / FINGERPRINT / "manifest.json").read_text())
    digest = hashlib.sha256(b"weights").hexdigest()
    assert manifest["files"] == [{"name": "model.gguf", "size_bytes": 7, "sha256": digest}]
    assert manifest["fingerprint"] == FINGERPRINT
    assert manifest["quantization"] == "Q8_0"
    assert manifest["versions"] == {"driver": "5", **VERSIONS}
    assert publish.whole(engines / FINGERPRINT, FINGERPRINT)
    artefact_of = LlamaCppBuilder().collect(context(tmp_path))
    assert (artefact_of.size_bytes, artefact_of.manifest) == (7, manifest)


def test_whoever_publishes_second_uses_the_first(
    artefact: Callable[[], Path], tmp_path: Path, sent: Sent, monkeypatch: pytest.MonkeyPatch
) -> None:
    engines = tmp_path / "engines"
    publish.publish(artefact(), {}, engines, FINGERPRINT, {})
    first = (engines / FINGERPRINT / "manifest.json").read_bytes()
    publish.publish(artefact(), {}, engines, FINGERPRINT, {})
    assert sent[-1]["facts"] == {"reused": True}
    # The other one appears between the look and the rename.
    real, looks = publish.whole, iter([False])
    monkeypatch.setattr(publish, "whole", lambda *args: next(looks, None) is None and real(*args))
    publish.publish(tmp_path / "work" / "engine", {}, engines, FINGERPRINT, {})
    assert sent[-1]["facts"] == {"reused": True}
    assert (engines / FINGERPRINT / "manifest.json").read_bytes() == first
    assert [path.name for path in engines.iterdir()] == [FINGERPRINT]


def test_a_broken_engine_in_the_way_is_replaced(
    artefact: Callable[[], Path], tmp_path: Path, sent: Sent
) -> None:
    place = tmp_path / "engines" / FINGERPRINT
    place.mkdir(parents=True)
    (place / "model.gguf").write_bytes(b"half")
    publish.publish(artefact(), {}, tmp_path / "engines", FINGERPRINT, {})
    assert sent[-1]["facts"] == {"reused": False}
    assert publish.whole(place, FINGERPRINT)
    assert [path.name for path in place.parent.iterdir()] == [FINGERPRINT]


def test_engines_on_another_disk(
    artefact: Callable[[], Path], tmp_path: Path, sent: Sent, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Path.rename

    def rename(self: Path, target: Path) -> Path:
        if self.name == "engine":
            raise OSError(18, "Invalid cross-device link")
        return real(self, target)

    monkeypatch.setattr(Path, "rename", rename)
    publish.publish(artefact(), {}, tmp_path / "engines", FINGERPRINT, {})
    assert publish.whole(tmp_path / "engines" / FINGERPRINT, FINGERPRINT)
    assert [path.name for path in (tmp_path / "engines").iterdir()] == [FINGERPRINT]


def test_collect_refuses_what_is_not_whole(tmp_path: Path) -> None:
    with pytest.raises(InfrastructureError) as caught:
        LlamaCppBuilder().collect(context(tmp_path))
    assert caught.value.code == "engine_missing"
