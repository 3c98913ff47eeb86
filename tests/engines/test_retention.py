"""Clean-up of real files: the dry run, what a press removes, what it never touches, pins and the schedule."""

from __future__ import annotations

import os
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.contrib.auth.models import User

from apps.accounts.roles import OPERATOR, VIEWER
from apps.core import clock
from apps.core.exceptions import InvalidInput, NotAllowed, NotFound
from apps.core.models import AuditEntry
from apps.engines import retention, stages
from apps.engines.domain.retention import Policy
from apps.engines.models import Build, Engine
from tests import objects, people

pytestmark = pytest.mark.django_db
SHORT = Policy(engines_days=1, stages_days=1, logs_days=1, keep_newest=0)
LONG_AGO = timedelta(days=60)


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, settings: Any) -> None:
    """A home of its own: other tests leave folders in the shared one."""
    settings.INFLIGHT_HOME = tmp_path


@pytest.fixture
def operator() -> User:
    return people.person(OPERATOR)


def old_engine(name: str = "f16", **fields: str) -> Engine:
    """An engine that nobody has used for two months."""
    engine = objects.engine(objects.build_profile(name, **fields))
    Engine.objects.filter(pk=engine.pk).update(created_at=clock.now() - LONG_AGO)
    return engine


def old_log(number: int, state: str = "failed") -> Path:
    folder = Path(settings.INFLIGHT_HOME) / "builds" / f"{number}-1"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "log.txt").write_text("one\n" * 100, encoding="utf-8")
    profile = objects.build_profile(f"p{number}", quantization="Q8_0")
    ended = clock.now() - LONG_AGO if state == "failed" else None
    objects.build(profile, state, number, log_path=str(folder / "log.txt"), finished_at=ended)
    return folder


def old_stage(letter: str) -> str:
    key = letter * 64
    made = Path(settings.INFLIGHT_HOME) / f"made-{letter}"
    made.mkdir()
    (made / "rank0.safetensors").write_bytes(b"x" * 50)
    stage = stages.keep_stage(key, "quantize", made, build=1, facts={}, seconds=1.0)
    past = time.time() - LONG_AGO.total_seconds()
    os.utime(stage.path / stages.MANIFEST, (past, past))
    return key


def by_id(policy: Policy = SHORT) -> dict[str, str]:
    return {each.id: each.why for each in retention.plan_clean_up(policy)}


def test_a_dry_run_changes_nothing_and_says_why() -> None:
    used = objects.revision(objects.deployment("demo")).engine
    assert used is not None
    free, folder, key = old_engine("q4", quantization="Q4_0"), old_log(7), old_stage("a")
    found = by_id()
    assert found[f"engine:{used.fingerprint}"] == "used"
    assert found[f"engine:{free.fingerprint}"] == found["log:7-1"] == found[f"stage:{key}"] == "unused"
    assert folder.is_dir()
    assert Path(free.path).is_dir()
    sizes = {each.id: each.item.size_bytes for each in retention.plan_clean_up(SHORT)}
    assert sizes["log:7-1"] == 400
    assert sizes[f"stage:{key}"] == 50


def test_a_clean_up_removes_what_was_confirmed_and_nothing_that_is_used(operator: User) -> None:
    used = objects.revision(objects.deployment("demo")).engine
    assert used is not None
    free, folder, key = old_engine("q4", quantization="Q4_0"), old_log(8), old_stage("b")
    other = old_log(9)
    wanted = [
        f"engine:{free.fingerprint}",
        f"engine:{used.fingerprint}",
        "log:8-1",
        f"stage:{key}",
        "log:nonsense",
    ]
    cleaned = retention.clean_up(operator, wanted, SHORT)
    assert {each.id for each in cleaned.removed} == {wanted[0], wanted[2], wanted[3]}
    assert cleaned.bytes == 12_345 + 400 + 50
    free.refresh_from_db()
    assert (free.state, Path(free.path).exists(), folder.exists()) == ("deleted", False, False)
    assert stages.find_stage(key) is None
    assert Build.objects.get(number=8).log_path == ""
    assert Path(used.path).is_dir()
    assert other.is_dir()
    entry = AuditEntry.objects.get(verb="retention.cleaned")
    assert (entry.actor, entry.detail["bytes"]) == (operator, cleaned.bytes)


def test_what_runs_or_is_pinned_stays(operator: User) -> None:
    engine, key = old_engine("q4", quantization="Q4_0"), old_stage("c")
    old_log(10)
    for kind, name in (("engine", engine.fingerprint), ("log", "10-1"), ("stage", key)):
        retention.set_pinned(operator, kind, name, True)
    assert set(by_id().values()) == {"pinned"}
    assert retention.clean_up(operator, policy=SHORT).removed == ()
    retention.set_pinned(operator, "stage", key, False)
    assert by_id()[f"stage:{key}"] == "unused"
    # Which kept stage a running build reads is its worker's business.
    old_log(11, "running")
    assert by_id()[f"stage:{key}"] == by_id()["log:11-1"] == "used"


@pytest.mark.parametrize(
    ("kind", "key"), [("engine", "0" * 64), ("log", "99"), ("stage", "../x"), ("disk", "a")]
)
def test_a_pin_of_what_is_not_there(operator: User, kind: str, key: str) -> None:
    with pytest.raises(NotFound):
        retention.set_pinned(operator, kind, key, True)


def test_a_load_makes_an_engine_young_again() -> None:
    engine = old_engine("q4", quantization="Q4_0")
    assert by_id()[f"engine:{engine.fingerprint}"] == "unused"
    retention.mark_used(engine)
    assert by_id()[f"engine:{engine.fingerprint}"] == "recent"


def test_the_schedule_is_off_until_it_is_switched_on_and_runs_once_a_day() -> None:
    folder = old_log(12)
    assert retention.run_scheduled() is None
    retention.save_retention_policy(people.person(OPERATOR), {"enabled": True, "logs_days": 30})
    cleaned = retention.run_scheduled()
    assert cleaned is not None
    assert "log:12-1" in {each.id for each in cleaned.removed}
    assert not folder.exists()
    assert retention.run_scheduled() is None


def test_roles_and_broken_policies() -> None:
    viewer = people.person(VIEWER)
    with pytest.raises(NotAllowed):
        retention.clean_up(viewer)
    with pytest.raises(NotAllowed):
        retention.save_retention_policy(viewer, {"enabled": True})
    for data, field in (
        ({"logs_days": 0}, "logs_days"),
        ({"keep_newest": "2"}, "keep_newest"),
        ({"x": 1}, "x"),
    ):
        with pytest.raises(InvalidInput) as caught:
            retention.save_retention_policy("test", data)
        assert caught.value.field == field
