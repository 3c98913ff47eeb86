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


def call(server: RunningServer, path: str, body: object = None) -> dict[str, object]:
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(f"{server.http_url}/v2/models/{path}", data=data, timeout=20) as answer:
        found: dict[str, object] = json.loads(answer.read())
    return found


def test_it_answers_as_it_did_and_with_the_edited_setting(tmp_path: Path) -> None:
    objects.write_pair(tmp_path)
    first = tmp_path / "first/config.pbtxt"
    # What this leaves out the server fills in, as it does for its owner.
    first.write_text(first.read_text().replace('name: "first"\n', ""))
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
    assert texts["first/config.pbtxt"] == first.read_text()
