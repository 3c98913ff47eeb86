"""Configurations and repositories out of real reports, with the right answer."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from apps.serving.domain.repository_check.check import Report, check_repository
from apps.serving.domain.repository_check.fill_template import read_line, read_values
from apps.serving.domain.repository_check.findings import Remark

CASES = Path(__file__).resolve().parents[2] / "data/cases"


def case(number: str) -> Path:
    return next(CASES.glob(f"{number}-*"))


def expected(number: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((case(number) / "expected.json").read_text())
    return found


def checked(tmp_path: Path, models: dict[str, str], number: str) -> Report:
    """Check a repository whose models are files of a case."""
    for name, file in models.items():
        (tmp_path / name / "1").mkdir(parents=True)
        shutil.copy(case(number) / file, tmp_path / name / "config.pbtxt")
    return check_repository(tmp_path)


def of(report: Report, id: str) -> list[Remark]:
    return [found for found in report.findings if found.id == id]


def test_a_variable_in_place_of_an_enum(tmp_path: Path) -> None:
    right = expected("17")
    report = checked(tmp_path, {"tensorrt_llm": "input.config.pbtxt"}, "17")
    (found,) = of(report, "unfilled_placeholder")
    assert found.facts["line"] == right["parse_error_line"]
    assert found.facts["variable"] == right["variable"]
    assert found.facts["default"] == right["default"]
    assert found.severity == "error"
    (model,) = report.models
    assert (model["readable"], model["inputs"]) == (False, ["input_ids", "encoder_input_features"])
    assert model["refused_by"].startswith("9:16: ")


def test_a_parameter_that_model_py_needs_may_hold_a_variable_and_may_not_be_missing(tmp_path: Path) -> None:
    good = tmp_path / "good/preprocessing"
    bad = tmp_path / "bad/preprocessing"
    for folder, file in ((good, "input.ok.config.pbtxt"), (bad, "input.bad.config.pbtxt")):
        folder.mkdir(parents=True)
        shutil.copy(case("19") / file, folder / "config.pbtxt")
    assert check_repository(good).good
    report = check_repository(bad)
    (found,) = of(report, "parameter_missing")
    assert found.facts["raises"] + " at preprocessing initialize" == expected("19")["bad"]


def test_a_key_that_stands_twice_in_a_map(tmp_path: Path) -> None:
    right = expected("21")
    report = checked(tmp_path, {"pipeline": "input.config.pbtxt"}, "21")
    (found,) = of(report, "duplicate_key")
    assert found.facts["values"] == ["tokens_a", "tokens_b"]
    assert "output_map of step 0" in found.message
    assert found.facts["key"] in right["defect"]
    (unwritten,) = of(report, "ensemble_tensor_not_written")
    assert unwritten.facts["unwritten"] == right["unwritten"]


def test_an_ensemble_that_leaves_out_a_required_input(tmp_path: Path) -> None:
    right = expected("23")
    files = {"ensemble": "input.ensemble.config.pbtxt", "tensorrt_llm": "input.tensorrt_llm.config.pbtxt"}
    report = checked(tmp_path, files, "23")
    (found,) = of(report, "ensemble_input_missing")
    assert found.facts["missing_required"] == right["missing_required"]
    assert found.facts["missing_optional_ok"] == right["missing_optional_ok"]


def test_values_with_a_comma_or_a_colon() -> None:
    for row in json.loads((case("25") / "input.cases.json").read_text()):
        read = read_values(row["arg"])
        if row["result"].startswith("ValueError"):
            assert read.script_error == row["result"]
        elif row["result"].startswith("exit 0"):
            assert (read.script_error, read.substituted) == ("", {})
        else:
            assert list(read.substituted.values()) == [row["result"]]
    assert read_values("gpu_device_ids:0,1,engine_dir:s3://b/x").meant == {
        "gpu_device_ids": "0,1",
        "engine_dir": "s3://b/x",
    }
    line = "fill_template.py -i repo/tensorrt_llm/config.pbtxt triton_max_batch_size:8,decoupled_mode:True"
    read = read_line(line)
    assert read.file == "repo/tensorrt_llm/config.pbtxt"
    assert read.meant == {"triton_max_batch_size": "8", "decoupled_mode": "True"}
    assert read.findings == ()


def test_a_folder_that_is_no_model(tmp_path: Path) -> None:
    right = expected("73")
    for line in (case("73") / "input.tree.txt").read_text().split():
        path = tmp_path / line
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    repo = tmp_path / "repo"
    (repo / "preprocessing/config.pbtxt").write_text(
        'backend: "python" parameters { key: "tokenizer_dir" value { string_value: "/repo/article_summary/" } }'
    )
    report = check_repository(repo)
    assert [model["name"] for model in report.models] == right["models"]
    assert list(report.not_models) == right["not_models"]
    (found,) = of(report, "not_a_model")
    assert found.facts == {"tokenizer": True, "used_by": ["preprocessing.tokenizer_dir"]}


def test_a_name_that_is_not_the_folders(tmp_path: Path) -> None:
    right = expected("75")
    report = checked(tmp_path, {right["directory"]: "input.tensorrt_llm_2.config.pbtxt"}, "75")
    (found,) = of(report, right["error"])
    assert right["directory"] in found.message
    assert right["name"] in found.message


@pytest.mark.parametrize(
    "line", ["", "fill_template.py", 'fill_template.py "a', "cat fill_template.py -x a b"]
)
def test_what_is_no_fill_template_line_is_refused(line: str) -> None:
    from apps.core.exceptions import InvalidInput

    with pytest.raises(InvalidInput, match=r"no fill_template\.py line"):
        read_line(line)
