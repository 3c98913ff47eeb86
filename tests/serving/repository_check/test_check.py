"""A whole TensorRT-LLM repository that is right, files that are no text, and the command."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from django.core.management import call_command

from apps.core.exceptions import InvalidInput
from apps.serving.domain.repository_check.check import check_repository
from tests.serving.repository_check.world import MODEL_PY, Repository, parameter


def test_a_right_repository_has_no_finding_and_a_graph(repository: Repository) -> None:
    report = repository.check()
    assert [found.as_dict() for found in report.findings] == []
    assert report.good
    assert {model["name"]: model["kind"] for model in report.models} == {
        name: name for name in repository.texts
    }
    assert all(model["loads"] for model in report.models)
    assert {"from": "preprocessing", "to": "tensorrt_llm", "tensor": "ids"} in report.graphs["ensemble"]
    assert {"from": "postprocessing", "to": "output", "tensor": "text_output"} in report.graphs["ensemble"]


def test_the_llmapi_model_follows_its_yaml(tmp_path: Path) -> None:
    folder = tmp_path / "tensorrt_llm"
    (folder / "1").mkdir(parents=True)
    (folder / "1/model.py").write_text(MODEL_PY)
    (folder / "1/model.yaml").write_text("model: /x\ntriton_config: {decoupled: true, max_batch_size: 0}\n")
    text = 'backend: "python" max_batch_size: 0 instance_group [ { count: 1 kind: KIND_CPU } ]\n'
    (folder / "config.pbtxt").write_text(text + parameter("enable_kv_cache_reuse", "true"))
    report = check_repository(tmp_path)
    found = {remark.id: remark for remark in report.findings}
    assert "decoupled: true" in found["decoupled_differs"].remedy
    assert "enable_block_reuse" in found["unknown_parameter"].remedy
    (folder / "1/model.yaml").write_text("a: [")
    assert "model_yaml_unreadable" in {remark.id for remark in check_repository(tmp_path).findings}


def test_files_that_are_no_text_are_said_and_do_not_end_the_check(repository: Repository) -> None:
    repository.check()
    (repository.path / "ensemble/config.pbtxt").write_bytes(b"\xff\xfe\x00")
    (repository.path / "postprocessing/config.pbtxt").unlink()
    (repository.path / "postprocessing/config.pbtxt").mkdir()
    report = check_repository(repository.path)
    unreadable = [remark.model for remark in report.findings if remark.id == "config_unreadable"]
    assert sorted(unreadable) == ["ensemble", "postprocessing"]


def test_where_there_is_no_repository(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="neither"):
        check_repository(tmp_path / "missing")
    with pytest.raises(InvalidInput, match="no subfolder"):
        check_repository(tmp_path)


def test_the_command_prints_json_and_exits_by_the_answer(repository: Repository) -> None:
    repository.check()
    out = io.StringIO()
    call_command("check_repository", str(repository.path), "--json", stdout=out)
    said = json.loads(out.getvalue())
    assert (len(said["models"]), said["findings"]) == (5, [])
    repository.change("ensemble", 'model_name: "postprocessing"', 'model_name: "post"')
    repository.check()
    out = io.StringIO()
    with pytest.raises(SystemExit) as ended:
        call_command("check_repository", str(repository.path), stdout=out)
    assert ended.value.code == 1
    assert "ensemble_model_missing" in out.getvalue()
    out = io.StringIO()
    with pytest.raises(SystemExit) as ended:
        call_command("check_repository", str(repository.path / "none"), "--json", stdout=out)
    assert json.loads(out.getvalue())["findings"][0]["id"] == "repository_missing"
