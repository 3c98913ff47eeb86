"""Checkpoints through their services: ready, refused with a reason, missing, deleted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from apps.core.exceptions import InvalidInput, NotAllowed, NotFound, NotPossibleNow
from apps.core.models import AuditEntry
from apps.engines.models import Build
from apps.engines.services import save_build_profile
from apps.registry import selectors, states
from apps.registry.models import Checkpoint
from apps.registry.serialize import checkpoint_dict
from apps.registry.services import change_source, delete_checkpoint, inspect_again, register_checkpoint
from apps.registry.sweep import sweep
from tests import objects
from tests.people import person
from tests.support.hugging_face import write_hugging_face
from tests.support.llama import write_llama

pytestmark = pytest.mark.django_db


@pytest.fixture
def roots(settings: Any, tmp_path: Path) -> Path:
    settings.INFLIGHT_CHECKPOINT_ROOTS = [str(tmp_path)]
    return tmp_path


@pytest.fixture
def good(roots: Path) -> Path:
    return write_llama(roots / "good.gguf", tokenizer__chat_template="{{ x }}")


def test_a_good_file_is_ready(good: Path) -> None:
    row = register_checkpoint("cli", "tiny", {"path": str(good)})
    assert (row.state, row.format, row.size_bytes) == (states.READY, "gguf", good.stat().st_size)
    assert len(row.sha256) == 64
    assert row.chat_template == "{{ x }}"
    assert "chat_template" not in row.facts
    assert row.facts["num_layers"] == 2
    shown = checkpoint_dict(row)
    assert shown["facts"]["kv_bytes_per_token"] == 256
    assert "identity" not in shown["facts"]
    assert shown["reason"] is None
    assert [entry.verb for entry in AuditEntry.objects.order_by("id")] == [
        "checkpoint.registered",
        "checkpoint.ready",
    ]


@pytest.mark.parametrize(
    ("content", "reason"), [(b"not a model at all, sorry", "gguf_not_a_gguf"), (None, "gguf_truncated")]
)
def test_a_bad_file_gives_a_refused_row_with_sentence_and_remedy(
    roots: Path, content: bytes | None, reason: str
) -> None:
    bad = roots / "bad.gguf"
    bad.write_bytes(write_llama(roots / "w.gguf").read_bytes()[:9_000] if content is None else content)
    row = register_checkpoint("cli", "bad", {"path": str(bad)})
    assert (row.state, row.reason) == (states.REFUSED, reason)
    assert row.sentence
    assert row.remedy
    assert row.facts == {}

    write_llama(bad)
    assert inspect_again("cli", row).state == states.READY
    assert (row.reason, row.sentence, row.remedy) == ("", "", "")


def test_an_unreadable_file_is_refused(good: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(*args: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("apps.registry.domain.checkpoint_reader.read_facts", denied)
    row = register_checkpoint("cli", "tiny", {"path": str(good)})
    assert (row.state, row.reason) == (states.REFUSED, "unreadable")
    assert "Permission denied" in row.sentence


@pytest.mark.parametrize("name", ["", "Tiny", "a b", "-a", "a" * 64, "warmup", "a\n"])
def test_names_are_checked(good: Path, name: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        register_checkpoint("cli", name, {"path": str(good)})
    assert (caught.value.code, caught.value.field) == ("name_invalid", "name")
    assert not Checkpoint.objects.exists()


def test_a_name_is_taken_once(good: Path) -> None:
    register_checkpoint("cli", "tiny", {"path": str(good)})
    with pytest.raises(InvalidInput) as caught:
        register_checkpoint("cli", "tiny", {"path": str(good)})
    assert (caught.value.code, caught.value.field) == ("name_taken", "name")


def test_nothing_is_written_for_a_source_that_is_not_there(roots: Path) -> None:
    with pytest.raises(InvalidInput):
        register_checkpoint("cli", "tiny", {"path": str(roots / "nothing.gguf")})
    assert not Checkpoint.objects.exists()
    assert not AuditEntry.objects.exists()


def test_roles(good: Path) -> None:
    with pytest.raises(NotAllowed):
        register_checkpoint(person("viewer"), "tiny", {"path": str(good)})
    row = register_checkpoint(person("operator"), "tiny", {"path": str(good)})
    for act in (inspect_again, delete_checkpoint):
        with pytest.raises(NotAllowed):
            act(person(name=act.__name__), row)


def test_a_hugging_face_folder_gives_facts_template_and_size(roots: Path) -> None:
    folder = write_hugging_face(roots / "hf")
    row = register_checkpoint("cli", "hf", {"path": str(folder)})
    assert (row.state, row.format, row.chat_template) == (states.READY, "hf", "{{ messages }}")
    assert row.size_bytes == sum(file.stat().st_size for file in folder.iterdir())
    told = checkpoint_dict(row)
    assert [finding["id"] for finding in told["findings"]] == ["needs_tensorrt_llm_builder"]
    found = told["facts"]
    assert (found["family"], found["num_layers"], found["valid_tp"]) == ("llama", 2, [1, 2, 4])
    assert found["eos_token_ids"] == [2, 3]
    assert "identity" not in found


def test_facts_of_a_refused_checkpoint_stay_on_its_row(roots: Path) -> None:
    quantized = {"quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 32}}
    folder = write_hugging_face(roots / "hf", quantized)
    row = register_checkpoint("cli", "hf", {"path": str(folder)})
    assert (row.state, row.reason) == (states.REFUSED, "quantization_group_size")
    assert "group_size 32" in row.sentence
    assert row.remedy
    assert (row.facts["num_layers"], row.facts["quantization"]["group_size"]) == (2, 32)


def test_a_folder_changes_its_identity_with_its_files(roots: Path) -> None:
    folder = write_hugging_face(roots / "hf")
    first = register_checkpoint("cli", "hf", {"path": str(folder)}).facts["identity"]
    (folder / "tokenizer.json").write_text('{"version": "1.0"}')
    second = inspect_again("cli", Checkpoint.objects.get(name="hf")).facts["identity"]
    assert first["listing_sha256"] != second["listing_sha256"]


def test_a_file_that_is_gone_is_noticed_and_comes_back(good: Path) -> None:
    row = register_checkpoint("cli", "tiny", {"path": str(good)})
    kept = good.read_bytes()
    good.unlink()
    assert [found.pk for found in sweep()] == [row.pk]
    assert sweep() == []
    row.refresh_from_db()
    assert (row.state, row.reason) == (states.MISSING, "file_missing")
    with pytest.raises(InvalidInput):
        inspect_again("cli", row)
    good.write_bytes(kept)
    assert inspect_again("cli", row).state == states.READY


def test_change_source(good: Path, roots: Path) -> None:
    row = register_checkpoint("cli", "tiny", {"path": str(good)})
    other = write_llama(roots / "other.gguf", layers=3)
    change_source("cli", row, {"path": str(other)})
    assert (row.state, row.facts["num_layers"], row.path) == (states.READY, 3, str(other))


def test_deleting_waits_for_profiles_and_running_builds_and_takes_history_along(
    good: Path, django_capture_on_commit_callbacks: Any
) -> None:
    row = register_checkpoint("cli", "tiny", {"path": str(good)})
    profile = save_build_profile("cli", {"name": "f16", "checkpoint": row})
    build = objects.build(profile)
    with pytest.raises(NotPossibleNow) as caught:
        delete_checkpoint("cli", row)
    assert "#1" in caught.value.sentence
    Build.objects.filter(pk=build.pk).delete()
    build = objects.build(profile, "failed")
    with pytest.raises(NotPossibleNow) as caught:
        delete_checkpoint("cli", row)
    assert "f16" in caught.value.sentence
    assert Build.objects.filter(pk=build.pk).exists(), "rolled back"
    profile.delete()
    with django_capture_on_commit_callbacks(execute=True):
        delete_checkpoint("cli", row)
    assert not Checkpoint.objects.exists()
    assert not Build.objects.exists()
    assert good.exists()


def test_selectors(good: Path) -> None:
    with pytest.raises(NotFound):
        selectors.checkpoint("tiny")
    row = register_checkpoint("cli", "tiny", {"path": str(good)})
    assert selectors.checkpoint("tiny") == row
    assert list(selectors.checkpoints()) == [row]
