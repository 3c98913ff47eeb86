"""A repository that somebody had, served by the real server: its ensemble under a public name, a setting edited."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path

import pytest

from apps.serving.domain import repository as written
from apps.serving.domain.adopting import files, plan
from apps.serving.domain.repository_check.check import check_repository
from benchmarks.serving import RunningServer, find_installation, serve_folder
from tests import objects
from tests.serving.adopting.test_settings import DEFAULTS
from tests.support.triton import find_installation as find_values

pytestmark = [pytest.mark.triton, pytest.mark.timeout(120)]
PAIR = """name: "pair" platform: "ensemble" max_batch_size: 4
input [ { name: "X" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "Y" data_type: TYPE_FP32 dims: [ -1 ] } ]
ensemble_scheduling { step [
  { model_name: "first" model_version: -1 input_map { key: "INPUT" value: "X" }
    output_map { key: "OUTPUT" value: "mid" } },
  { model_name: "second" model_version: -1 input_map { key: "INPUT" value: "mid" }
    output_map { key: "OUTPUT" value: "Y" } } ] }
"""


def call(server: RunningServer, path: str, body: object = None) -> dict[str, object]:
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(f"{server.http_url}/v2/models/{path}", data=data, timeout=20) as answer:
        found: dict[str, object] = json.loads(answer.read())
    return found


def test_it_answers_as_it_did_and_with_the_edited_setting(tmp_path: Path) -> None:
    for name in ("first", "second"):
        (tmp_path / name / "1").mkdir(parents=True)
        (tmp_path / name / "1/model.py").write_text(objects.PYTHON_MODEL)
        text = objects.PYTHON_CONFIG.replace('"doubler"', f'"{name}"')
        if name == "first":
            # What this leaves out the server fills in, as it does for its owner.
            text = text.replace('name: "first"\n', "")
        (tmp_path / name / "config.pbtxt").write_text(text)
    (tmp_path / "pair/1").mkdir(parents=True)
    (tmp_path / "pair/config.pbtxt").write_text(PAIR)
    found = plan.make(tmp_path, check_repository(tmp_path).as_dict(), "", frozenset({"python"}))
    assert (found.entry, found.tuned, found.blockers) == ("pair", "second", ())
    profile = {**DEFAULTS, **found.profile, "max_queue_delay_microseconds": 7000}
    made = files.instance_files(tmp_path, found, "public", profile, DEFAULTS)

    def fill(root: Path) -> None:
        written.write(root, made)

    installation = find_installation(find_values().values)
    with serve_folder(installation, fill, without=["--disable-auto-complete-config"]) as server:
        server.control("/v2/repository/models/public/load")
        asked = {"inputs": [{"name": "X", "datatype": "FP32", "shape": [1, 2], "data": [1.5, 2]}]}
        answer = call(server, "public/infer", asked)
        assert answer["outputs"][0]["data"] == [6.0, 8.0]  # type: ignore[index]
    texts = files.rendered(tmp_path, found, "public", profile, DEFAULTS)
    assert "max_queue_delay_microseconds: 7000" in texts["second/config.pbtxt"]
    assert texts["first/config.pbtxt"] == (tmp_path / "first/config.pbtxt").read_text()
