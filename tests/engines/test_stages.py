"""Kept stages: whole or not there, one of two writers wins, unused ones go."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings

from apps.engines import stages

Make = Callable[..., stages.Stage]


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "INFLIGHT_HOME", tmp_path)


@pytest.fixture
def keep(tmp_path: Path) -> Make:
    """keep("ab", b"bytes"): a stage of two files."""

    def make(key: str, content: bytes = b"weights") -> stages.Stage:
        made = tmp_path / f"made-{time.monotonic_ns()}"
        (made / "deep").mkdir(parents=True)
        (made / "config.json").write_text("{}")
        (made / "deep" / "rank0.safetensors").write_bytes(content)
        return stages.keep_stage(key, "convert", made, build=7, facts={"a": {"b": 1}}, seconds=3.5)

    return make


def test_a_stage_is_found_by_its_key_with_what_it_was(keep: Make) -> None:
    kept = keep("ab")
    found = stages.find_stage("ab")
    assert found == kept
    assert (found.name, found.build, found.facts, found.seconds) == ("convert", 7, {"a": {"b": 1}}, 3.5)
    assert found.size_bytes == 9
    assert stages.find_stage("cd") is None


@pytest.mark.parametrize(
    "harm",
    [
        lambda path: (path / "deep/rank0.safetensors").unlink(),
        lambda path: (path / "deep/rank0.safetensors").write_bytes(b"short"),
        lambda path: (path / "stage.json").unlink(),
        lambda path: (path / "stage.json").write_text('{"key": "ab", "fil'),
        lambda path: (path / "stage.json").write_text("[]"),
        lambda path: (path / "stage.json").write_text(json.dumps({"key": "cd", "name": "x", "files": []})),
    ],
)
def test_what_is_not_whole_is_not_there_and_is_replaced(keep: Make, harm: Callable[[Path], Any]) -> None:
    harm(keep("ab").path)
    assert stages.find_stage("ab") is None
    assert stages.kept_stages() == []
    again = keep("ab", b"new weights")
    assert stages.find_stage("ab") == again


def test_the_second_of_two_uses_the_firsts(keep: Make, tmp_path: Path) -> None:
    keep("ab", b"first")
    second = keep("ab", b"the second's")
    assert (second.path / "deep/rank0.safetensors").read_bytes() == b"first"
    assert list(tmp_path.glob("made-*")) == []


def test_inputs_make_the_key_in_any_order() -> None:
    assert stages.stage_key({"a": 1, "b": [2]}) == stages.stage_key({"b": [2], "a": 1})
    assert stages.stage_key({"a": 1}) != stages.stage_key({"a": 2})


def test_what_nobody_used_for_a_week_goes_and_the_pinned_stays(keep: Make) -> None:
    for key in ("old", "used", "pinned", "new"):
        keep(key)
    long_ago = time.time() - stages.KEPT_SECONDS - 60
    for key in ("old", "used", "pinned"):
        os.utime(stages.stage_folder(key) / "stage.json", (long_ago, long_ago))
    stages.set_pinned("pinned", True)
    assert stages.use_stage("used") is not None
    left = stages.stages_folder() / ".removed-ab-1"
    left.mkdir()
    os.utime(left, (long_ago, long_ago))
    assert stages.sweep_stages() == 1
    assert {stage.key for stage in stages.kept_stages()} == {"used", "pinned", "new"}
    assert not left.exists()
    stages.set_pinned("pinned", False)
    assert stages.sweep_stages() == 1
    assert stages.remove_stage("new")
    assert not stages.remove_stage("new")


def test_without_a_folder_there_is_nothing_to_sweep() -> None:
    assert (stages.sweep_stages(), stages.kept_stages()) == (0, [])
