"""Real builds: a real Redis, a real Celery worker, the serving environment's Python, the demo checkpoint."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from apps.core.models import AuditEntry
from apps.engines import states
from apps.engines.domain.llamacpp_commands import STEPS
from apps.engines.models import Build, Engine
from apps.engines.services import cancel_build, save_build_profile, start_build
from apps.engines.sweep import sweep
from apps.fleet.models import GpuLease
from apps.fleet.processes import mark_of, ours
from apps.fleet.services import register_node
from apps.registry.domain.gguf_facts import read_facts
from apps.registry.models import Checkpoint
from tests.support.celery import Worker, wait_until

pytestmark = pytest.mark.integration
StartWorker = Callable[..., Worker]


def fresh(build: Build) -> Build:
    return Build.objects.select_related("engine", "node", "gpu").get(pk=build.pk)


def wait_state(build: Build, state: str, seconds: float = 90.0) -> Build:
    """Wait for a state; a build that ended otherwise fails the test with its sentence."""

    def look() -> Build | None:
        row = fresh(build)
        if row.state in states.BUILD.terminal and row.state != state:
            pytest.fail(f"{row.state}: {row.reason} {row.sentence}\n{log_of(row)[-2000:]}")
        return row if row.state == state else None

    found: Build = wait_until(look, seconds, f"build {state}")
    return found


def frozen(build: Build) -> tuple[Build, str]:
    """The build while its convert step stands still (SIGSTOP, so no test races with its end), and its mark."""

    def look() -> Build | None:
        row = fresh(build)
        try:
            step = psutil.Process(row.child_pid or 0)
            if f"{STEPS}.convert" not in step.cmdline():
                return None
            step.suspend()
        except psutil.Error:
            return None
        return row

    row = wait_until(look, 60, "a running convert step")
    return row, mark_of(row.node.node_id, "build", row.pk, row.attempt)


def sent_again(build: Build) -> None:
    """As the sweep does; the first message may have grown too old while the worker started."""
    Build.objects.filter(pk=build.pk).update(dispatched_at=None)
    sweep()


def log_of(build: Build) -> str:
    path = Path(build.log_path)
    return path.read_text(encoding="utf-8", errors="replace") if build.log_path and path.exists() else ""


@pytest.fixture
def build(demo_checkpoint: Checkpoint, serving_python: str) -> Callable[[str], Build]:
    """Start a build of the demo checkpoint in a weight type."""
    register_node("test")

    def start(quantization: str) -> Build:
        data = {"name": quantization.lower().replace("_", "-"), "checkpoint": demo_checkpoint.name}
        return start_build("test", save_build_profile("test", {**data, "quantization": quantization}))

    return start


def test_a_build_succeeds_and_the_same_again_reuses_its_engine(
    start_worker: StartWorker, build: Callable[[str], Build]
) -> None:
    start_worker("gpu0")
    row = wait_state(build("Q8_0"), states.SUCCEEDED)

    assert [stage["name"] for stage in row.stages] == ["inspect", "convert", "verify", "publish"]
    assert {stage["state"] for stage in row.stages} == {"done"}
    assert row.progress == 1.0
    assert row.child_pid is None
    assert not GpuLease.objects.filter(released_at__isnull=True).exists()
    engine = row.engine
    assert engine is not None
    assert engine.state == states.READY
    folder = Path(engine.path)
    assert sorted(path.name for path in folder.iterdir()) == ["manifest.json", "model.gguf"]
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest == engine.manifest
    [file] = manifest["files"]
    assert file["sha256"] == hashlib.sha256((folder / "model.gguf").read_bytes()).hexdigest()
    assert manifest["verified"]["tokens"] > 0
    assert manifest["verified"]["text"].strip()
    assert manifest["source"]["sha256"] == row.checkpoint.sha256
    assert manifest["versions"]["xllamacpp"]
    facts, _header = read_facts(folder / "model.gguf")
    assert facts.file_type == "Q8_0"
    assert facts.tensor_types == {"F32": 61, "Q8_0": 211}
    assert facts.chat_template == row.checkpoint.chat_template
    assert "Load it and generate: ended with exit code 0" in log_of(row)
    assert not (Path(row.log_path).parent / "work").exists()

    assert row.profile is not None
    again = start_build("test", row.profile)
    assert again.pk != row.pk
    assert again.state == states.SUCCEEDED
    assert again.reused
    assert again.engine == engine
    assert Engine.objects.count() == 1


def test_cancel_ends_the_tree_within_five_seconds(
    start_worker: StartWorker, build: Callable[[str], Build]
) -> None:
    start_worker("gpu0")
    row = build("F16")
    running, mark = frozen(row)
    assert ours(mark)

    cancel_build("test", running)
    ended = wait_state(row, states.CANCELLED, 5.0)

    assert ours(mark) == []
    assert ended.child_pid is None
    assert ended.engine is None
    assert Engine.objects.count() == 0
    assert not (Path(ended.log_path).parent / "work").exists()
    assert "cancelled" in log_of(ended)


@pytest.mark.faults
def test_a_killed_worker_is_reaped_and_the_build_begins_again(
    start_worker: StartWorker, build: Callable[[str], Build]
) -> None:
    worker = start_worker("gpu0")
    row = build("Q4_0")
    running, mark = frozen(row)
    worker.kill()
    # PDEATHSIG: the step does not outlive the worker.
    wait_until(lambda: not ours(mark), 5, "the step gone with its worker")
    assert fresh(row).state == states.RUNNING
    sweep()
    assert fresh(row).state == states.RUNNING, "the lease has not run out yet"

    Build.objects.filter(pk=row.pk).update(lease_expires_at=running.created_at)
    sweep()
    queued = fresh(row)
    assert (queued.state, queued.retries, queued.reason) == (states.QUEUED, 1, "worker_lost")
    start_worker("gpu0")
    sent_again(row)
    done = wait_state(row, states.SUCCEEDED)

    assert done.attempt == 2
    assert AuditEntry.objects.filter(verb="build.requeued", reason="worker_lost").count() == 1
    assert Engine.objects.count() == 1


@pytest.mark.faults
def test_a_stopping_worker_gives_its_build_back(
    start_worker: StartWorker, build: Callable[[str], Build]
) -> None:
    worker = start_worker("gpu0")
    row = build("F16")
    _running, mark = frozen(row)
    worker.terminate()
    assert worker.wait(12) == 0

    given_back = fresh(row)
    assert ours(mark) == []
    assert given_back.state == states.QUEUED
    assert given_back.retries == 0, "a stop that somebody wanted uses up no retry"
    start_worker("gpu0")
    sent_again(row)
    assert wait_state(row, states.SUCCEEDED).attempt == 2
