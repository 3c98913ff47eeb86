"""The reaper, engines whose files are gone, and engines that people delete."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from apps.core import clock
from apps.core.exceptions import NotAllowed, NotFound, NotPossibleNow
from apps.engines import paths, states, topics
from apps.engines.models import Build, BuildProfile, Engine
from apps.engines.services import delete_engine, start_build
from apps.engines.sweep import sweep
from apps.fleet.leases import take_lease
from apps.fleet.models import Gpu, GpuLease, Node
from apps.fleet.processes import MARK, identify, mark_of
from apps.fleet.selectors import free_share
from tests import objects
from tests.people import person
from tests.support.celery import wait_until

pytestmark = pytest.mark.django_db


def running(make: Callable[..., Build], **columns: Any) -> Build:
    ago = clock.now() - timedelta(seconds=1)
    return make(state=states.RUNNING, attempt=1, lease_expires_at=ago, **columns)


def test_a_silent_workers_build_is_ended_and_queued_again(
    queued: Callable[..., Build], slot: Gpu, sent: list[Any]
) -> None:
    build = running(queued)
    assert take_lease(slot, GpuLease.Purpose.BUILD, build, attempt=1, seconds=40)
    work = paths.build_folder(build.number, 1) / "work"
    work.mkdir(parents=True)
    (work / "half.gguf").write_bytes(b"x")
    child = subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(600)"],
        env={**os.environ, MARK: mark_of("n-test", "build", build.pk, 1)},
        start_new_session=True,
    )
    try:
        wait_until(lambda: identify(child.pid), 5, "the child")
        swept = sweep()
        assert child.wait(timeout=5) != 0
    finally:
        child.kill()
    build.refresh_from_db()
    assert (swept.reaped, build.state, build.retries) == (1, states.QUEUED, 1)
    assert not work.exists()
    assert free_share(slot) == 100
    assert sent == [(1, "node.n-test.gpu0")], "sent again by the same sweep"


def test_a_living_lease_is_left_alone(queued: Callable[..., Build]) -> None:
    build = queued(state=states.RUNNING, attempt=1, lease_expires_at=clock.now() + timedelta(seconds=5))
    assert sweep().reaped == 0
    build.refresh_from_db()
    assert build.state == states.RUNNING


def test_after_two_retries_it_fails_and_says_why(queued: Callable[..., Build]) -> None:
    build = running(queued, retries=2)
    sweep()
    build.refresh_from_db()
    assert (build.state, build.reason) == (states.FAILED, "worker_lost")
    assert build.sentence
    assert build.remedy


def publish(profile: BuildProfile, node: Node) -> Engine:
    engine = objects.engine(profile)
    folder = Path(engine.path)
    (folder / "model.gguf").write_bytes(b"12345")
    manifest = {"fingerprint": engine.fingerprint, "files": [{"name": "model.gguf", "size_bytes": 5}]}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    Engine.objects.filter(pk=engine.pk).update(node=node)
    engine.refresh_from_db()
    return engine


@pytest.mark.parametrize("harm", ["gone", "short", "no manifest", "broken manifest"])
def test_an_engine_without_its_files_is_missing_until_they_are_back(
    profile: BuildProfile, node: Node, harm: str
) -> None:
    engine = publish(profile, node)
    assert sweep().missing == 0
    folder, kept = Path(engine.path), Path(f"{engine.path}.kept")
    shutil.copytree(folder, kept)
    match harm:
        case "gone":
            shutil.rmtree(folder)
        case "short":
            (folder / "model.gguf").write_bytes(b"123")
        case "no manifest":
            (folder / "manifest.json").unlink()
        case _:
            (folder / "manifest.json").write_text("[]")
    assert sweep().missing == 1
    engine.refresh_from_db()
    assert (engine.state, engine.reason) == (states.MISSING, "engine_missing")
    shutil.rmtree(folder, ignore_errors=True)
    kept.rename(folder)
    assert sweep().missing == 0
    engine.refresh_from_db()
    assert (engine.state, engine.reason) == (states.READY, "")
    shutil.rmtree(folder)


def test_deleting_an_engine(profile: BuildProfile, node: Node) -> None:
    engine = publish(profile, node)
    with pytest.raises(NotAllowed):
        delete_engine(person("viewer"), engine)
    delete_engine("cli", engine)
    assert engine.state == states.DELETED
    assert not Path(engine.path).exists()
    assert list(paths.engines_folder().glob(".deleted-*")) == []
    with pytest.raises(NotPossibleNow):
        delete_engine("cli", engine)
    assert start_build("cli", profile).state == states.QUEUED
    objects.engine(profile)
    assert Engine.objects.count() == 2
    shutil.rmtree(paths.engine_folder(engine.fingerprint))


def test_an_engine_that_a_revision_needs_stays(profile: BuildProfile, node: Node) -> None:
    engine = publish(profile, node)
    revision = objects.revision(objects.deployment())
    assert revision.engine == engine
    with pytest.raises(NotPossibleNow) as caught:
        delete_engine("cli", engine)
    assert "demo r1" in caught.value.sentence
    assert Path(engine.path).exists()
    shutil.rmtree(engine.path)


def test_hidden_leftovers_are_removed_after_a_day(node: Node) -> None:
    folder = paths.engines_folder()
    old, new = folder / ".incoming-abc-1", folder / ".deleted-xyz"
    for left in (old, new):
        left.mkdir(parents=True)
        (left / "model.gguf").write_bytes(b"x")
    os.utime(old, (1, 1))
    sweep()
    assert not old.exists()
    assert new.exists()
    shutil.rmtree(new)


def test_live_topics(profile: BuildProfile) -> None:
    build = objects.build(profile, log_path="/some/log.txt")
    assert topics.builds_snapshot(0)["builds"][0]["number"] == 1
    assert topics.build_snapshot(1)["build"]["id"] == build.pk
    assert topics.build_log(1) == "/some/log.txt"
    with pytest.raises(NotFound):
        topics.build_snapshot(2)
