"""A failed build's page and what is pressed there; two compared; clean-up, pins, policy and imports."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from apps.accounts.roles import OPERATOR, VIEWER
from apps.core import clock
from apps.engines.domain.resources import FILE
from apps.engines.models import Build, BuildProfile, Engine
from apps.engines.retention import policy_row
from tests import objects
from tests.engines.test_imports import CONFIG

SignIn = Callable[..., Client]


@pytest.fixture(autouse=True)
def _home(db: None, tmp_path: Path, settings: Any) -> None:
    settings.INFLIGHT_HOME = tmp_path


def failed(tmp_path: Path) -> Build:
    """A build that ran out of disk, with a log, a course of its resources and a diagnosis."""
    folder = tmp_path / "builds" / "7-1"
    folder.mkdir(parents=True)
    (folder / "log.txt").write_text("one\ntwo\nNo space left on device\n")
    course = [
        {"at": 1000 + 5 * n, "stage": "convert", "memory_bytes": 10**8 * (n + 1), "disk_bytes": 10**6 * n}
        for n in range(9)
    ]
    (folder / FILE).write_text("\n".join(map(json.dumps, course)))
    now = clock.now()
    stage = {
        "name": "convert", "title": "Convert", "state": "failed", "started_at": now.isoformat(),
        "finished_at": (now + timedelta(seconds=40)).isoformat(), "peak_bytes": 900_000_000, "disk_bytes": 8_000_000,
        "argv": ["python", "-m", "convert", "--type", "F16"],
    }  # fmt: skip
    evidence = [{"line": 3, "text": "No space left on device"}]
    return objects.build(
        objects.build_profile(), "failed", 7, stages=[stage], log_path=str(folder / "log.txt"), reason="disk_full",
        sentence="The disk is full.", started_at=now, finished_at=now + timedelta(seconds=41),
        diagnosis={"id": "disk_full", "title": "The disk is full.", "remedies": ["Free space."], "evidence": evidence,
                   "facts": {}},
    )  # fmt: skip


def test_a_failed_build_shows_what_it_took_why_and_what_to_change(sign_in: SignIn, tmp_path: Path) -> None:
    failed(tmp_path)
    text = sign_in(OPERATOR).get("/builds/7/").content.decode()
    for part in (
        'href="#log-3" data-log-line="3"',
        "Use narrower weights",
        "Apply and build again",
        "900\u202fMB",
        'title="Weight type that is written."',
        'class="usage-line"',
        "Memory of its processes",
    ):
        assert part in text, part
    assert "Apply and build again" not in sign_in(VIEWER).get("/builds/7/").content.decode()


def test_a_remedy_changes_the_profile_and_builds_again(sign_in: SignIn, tmp_path: Path) -> None:
    build = failed(tmp_path)
    answer = sign_in(OPERATOR).post("/builds/7/remedy/", {"remedy": "quantization"})
    again = Build.objects.latest("number")
    assert answer.headers["Location"] == f"/builds/{again.number}/"
    assert (again.state, again.quantization, again.profile) == ("queued", "Q8_0", build.profile)
    build.refresh_from_db()
    assert (build.spec["quantization"], BuildProfile.objects.get().quantization) == ("F16", "Q8_0")
    refused = sign_in(OPERATOR).post("/builds/7/remedy/", {"remedy": "tp"})
    assert refused.status_code == 404
    compared = sign_in(VIEWER).get(f"/builds/compare/?a=7&b={again.number}").content.decode()
    assert "differ" in compared
    assert "quantization" in compared
    assert sign_in(VIEWER).get("/builds/compare/?a=7&b=x").status_code == 422


def test_clean_up_pin_and_policy(sign_in: SignIn, tmp_path: Path) -> None:
    failed(tmp_path)
    Build.objects.update(finished_at=clock.now() - timedelta(days=400))
    client = sign_in(OPERATOR)
    page = client.get("/builds/clean-up/").content.decode()
    assert "Not used for 400 days." in page
    assert 'value="log:7-1" checked' in page
    assert client.post("/builds/clean-up/pin/", {"item": "log:7-1", "pinned": "1"}).status_code == 303
    assert "Pinned." in client.get("/builds/clean-up/").content.decode()
    client.post("/builds/clean-up/pin/", {"item": "log:7-1", "pinned": "0"})
    assert client.post("/builds/clean-up/run/", {"item": ["log:7-1"]}).status_code == 303
    assert not (tmp_path / "builds" / "7-1").exists()
    broken = client.post("/builds/clean-up/policy/", {"engines_days": "0", "keep_newest": "1"})
    assert broken.status_code == 422
    saved = client.post("/builds/clean-up/policy/", {"enabled": "on", "logs_days": "5", "keep_newest": "2"})
    assert saved.status_code == 303
    row = policy_row()
    assert (row.enabled, row.logs_days, row.engines_days, row.keep_newest) == (True, 5, None, 2)


def test_an_engine_is_looked_at_and_imported(sign_in: SignIn, tmp_path: Path) -> None:
    objects.checkpoint()
    folder = tmp_path / "checkpoints" / "engine"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG))
    client = sign_in(OPERATOR)
    given = {"path": str(folder), "checkpoint": "tiny"}
    looked = client.post("/builds/import/", {**given, "look": "1"}).content.decode()
    assert "2 of 2 rank files are missing" in looked
    assert client.post("/builds/import/", given).status_code == 422
    for rank in range(2):
        (folder / f"rank{rank}.engine").write_bytes(b"plan")
    answer = client.post("/builds/import/", given)
    engine = Engine.objects.get()
    assert answer.headers["Location"] == f"/builds/engines/{engine.pk}/"
    page = client.get(answer.headers["Location"]).content.decode()
    assert "its origin is not known" in page
    assert "max_num_tokens" in page
