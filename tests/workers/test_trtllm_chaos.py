"""Builds whose worker, step or lease is taken away at every stage: one alive at most, a reason, nothing left."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest
from django.conf import settings
from django.db import connections

from apps.core import clock
from apps.core.models import AuditEntry
from apps.engines import attempts, dispatch, paths, stages, states, sweep
from apps.engines.models import Build, Engine
from apps.engines.services import cancel_build, retry_build
from apps.fleet.models import GpuLease
from apps.fleet.processes import mark_of, ours
from tests.support.celery import Worker, wait_until
from tests.support.redis import RedisServer
from tests.support.trtllm import rows
from tests.support.trtllm.installed import Installed
from tests.workers.test_trtllm_builds import installed, made
from workers import build_run, supervisor
from workers.builders.base import Step
from workers.supervisor import StepResult, Supervisor
from workers.watch import Watch

__all__ = ["installed", "made"]
pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.faults, pytest.mark.one_database]

PUBLISH = dispatch._publish
ENGINE = {"convert": "convert_checkpoint.py", "build": "trtllm-build", "publish": ""}
CHECKPOINT = {"validate": "", "warm_up": "", "publish": ""}
# Both are told apart by their stages only; the second is for make test-full.
RECIPES = [("engine", ENGINE), pytest.param("checkpoint", CHECKPOINT, marks=pytest.mark.slow)]
Wait = Callable[[Supervisor, Any, Step, StepResult, Any], None]


@pytest.fixture
def tries(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as a test wants to take away."""
    monkeypatch.setattr(attempts, "MAX_RETRIES", 20)


@pytest.fixture
def at(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, Callable[[Step, int], None]], None]:
    """at(stage, act): act(step, pid) runs while that stage's program runs, instead of waiting for it at first."""
    real: Wait = Supervisor._wait

    def choose(stage: str, act: Callable[[Step, int], None]) -> None:
        def wait(self: Supervisor, child: Any, step: Step, result: StepResult, meter: Any) -> None:
            if step.name == stage:
                wait_until(lambda: _became(child.pid), 10, f"{stage} started")
                act(step, child.pid)
            real(self, child, step, result, meter)

        monkeypatch.setattr(Supervisor, "_wait", wait)

    return choose


def _became(pid: int) -> bool:
    """Whether the child is its step already, or has ended."""
    try:
        return not any("gate.py" in word for word in psutil.Process(pid).cmdline())
    except psutil.Error:
        return True


def a_build(recipe: str, **columns: Any) -> Build:
    options = {"build": {"max_batch_size": 8}} if recipe == "engine" else {}
    return rows.queued(recipe=recipe, options=options, **columns)


def fresh(build: Build) -> Build:
    return Build.objects.get(pk=build.pk)


def in_a_process(build: Build) -> int:
    """Run one attempt in a forked worker, which somebody may kill; returns what ended it."""
    connections.close_all()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            code = 0 if build_run.run_build(build.pk, "gpu0") else 3
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def reaped(build: Build) -> Build:
    """The row after its lease ran out and the sweep came by."""
    row = fresh(build)
    assert row.state == states.RUNNING, (row.state, row.sentence)
    sweep.sweep()
    assert fresh(build).state == states.RUNNING, "the lease still holds"
    Build.objects.filter(pk=build.pk).update(lease_expires_at=clock.now() - timedelta(seconds=1))
    sweep.sweep()
    nothing_left(build)
    Build.objects.filter(pk=build.pk).update(gpu=row.gpu, node=row.node)
    return fresh(build)


def nothing_left(build: Build) -> None:
    """Neither processes nor anything half-made of any attempt."""
    row = fresh(build)
    for attempt in range(1, row.attempt + 1):
        assert ours(mark_of(settings.INFLIGHT_NODE_ID, "build", row.pk, attempt)) == []
        assert not (paths.build_folder(row.number, attempt) / "work").exists()
    folder = paths.engines_folder()
    seen = [path.name for path in folder.iterdir()] if folder.exists() else []
    published = [engine.fingerprint for engine in Engine.objects.all()]
    assert [name for name in seen if not name.startswith(".") and name not in published] in (
        [],
        [row.fingerprint],
    )
    assert not GpuLease.objects.filter(released_at__isnull=True, expires_at__gt=clock.now()).exists()


def die(step: Step, pid: int) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize(("recipe", "programs"), RECIPES)
def test_the_worker_is_killed_at_each_stage(
    installed: Installed, at: Any, tries: None, recipe: str, programs: dict[str, str]
) -> None:
    build = a_build(recipe)
    for number, stage in enumerate(programs, 1):
        at(stage, die)
        assert in_a_process(build) == -signal.SIGKILL
        row = reaped(build)
        assert (row.state, row.reason, row.attempt, row.retries) == (
            states.QUEUED,
            "worker_lost",
            number,
            number,
        )
    at("", die)
    assert in_a_process(build) == 0
    row = fresh(build)
    assert (row.state, row.engine is not None) == (states.SUCCEEDED, True), row.sentence
    nothing_left(build)
    # What was whole is not made again: a program runs twice at most, where the worker died in its stage.
    calls = installed.calls()
    assert all(1 <= calls.count(program) <= 2 for program in programs.values() if program)


def test_the_worker_is_killed_between_a_stages_end_and_its_row(
    installed: Installed, monkeypatch: pytest.MonkeyPatch, tries: None
) -> None:
    build = a_build("engine")
    real_keep, real_finish = stages.keep_stage, attempts.finish_build

    def keep_and_die(*args: Any, **more: Any) -> None:
        real_keep(*args, **more)
        os.kill(os.getpid(), signal.SIGKILL)

    def die_instead(*args: Any) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    monkeypatch.setattr(stages, "keep_stage", keep_and_die)
    for _stage in ("convert", "build"):
        assert in_a_process(build) == -signal.SIGKILL
        reaped(build)
    monkeypatch.setattr(stages, "keep_stage", real_keep)
    monkeypatch.setattr(attempts, "finish_build", die_instead)
    assert in_a_process(build) == -signal.SIGKILL
    assert reaped(build).state == states.QUEUED
    assert not Engine.objects.exists()
    monkeypatch.setattr(attempts, "finish_build", real_finish)
    assert in_a_process(build) == 0
    assert fresh(build).state == states.SUCCEEDED
    assert installed.calls() == ["convert_checkpoint.py", "trtllm-build"]
    assert Engine.objects.count() == 1


@pytest.mark.parametrize(("recipe", "programs"), RECIPES)
def test_the_step_is_killed_at_each_stage(
    installed: Installed, at: Any, tries: None, recipe: str, programs: dict[str, str]
) -> None:
    build = a_build(recipe)
    for stage in programs:
        at(stage, lambda step, pid: os.kill(pid, signal.SIGKILL))
        assert build_run.run_build(build.pk, "gpu0")
        row = fresh(build)
        assert (row.state, row.reason) == (states.QUEUED, "killed"), row.sentence
        assert {s["name"]: s["state"] for s in row.stages}[stage] == "failed"
        nothing_left(build)
    at("", lambda step, pid: None)
    assert build_run.run_build(build.pk, "gpu0")
    assert fresh(build).state == states.SUCCEEDED


def test_a_step_that_is_killed_again_and_again_fails_with_its_reason(installed: Installed, at: Any) -> None:
    build = a_build("engine")
    at("build", lambda step, pid: os.kill(pid, signal.SIGKILL))
    for _attempt in range(3):
        assert build_run.run_build(build.pk, "gpu0")
    row = fresh(build)
    assert (row.state, row.reason, row.attempt) == (states.FAILED, "killed", 3)
    assert row.sentence
    assert not build_run.run_build(build.pk, "gpu0")


def hold(build: Build, step: Step, pid: int) -> None:
    """Cancel; stopped, so that no stage ends by itself before the order is seen."""
    os.kill(pid, signal.SIGSTOP)
    cancel_build("test", fresh(build))


@pytest.mark.parametrize(("recipe", "programs"), RECIPES)
def test_cancelled_at_each_stage(
    installed: Installed,
    at: Any,
    monkeypatch: pytest.MonkeyPatch,
    recipe: str,
    programs: dict[str, str],
) -> None:
    monkeypatch.setattr(supervisor, "GRACE_SECONDS", 0.1)
    monkeypatch.setattr(build_run, "Watch", partial(Watch, poll_every=0.05))
    build = a_build(recipe)
    gpu, node = build.gpu, build.node
    for stage in programs:
        at(stage, partial(hold, build))
        assert build_run.run_build(build.pk, "gpu0")
        row = fresh(build)
        assert (row.state, row.reason) == (states.CANCELLED, "cancelled"), (stage, row.sentence)
        nothing_left(build)
        build = retry_build("test", row)
        Build.objects.filter(pk=build.pk).update(gpu=gpu, node=node)
    at("", lambda step, pid: None)
    assert build_run.run_build(build.pk, "gpu0")
    assert fresh(build).state == states.SUCCEEDED


def test_a_lost_lease_ends_the_work_and_the_next_worker_begins_once_it_has_run_out(
    installed: Installed, at: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build_run, "Watch", partial(Watch, renew_every=0.05, poll_every=0.02))
    build = a_build("engine")
    seen: list[bool] = []

    def lose(step: Step, pid: int) -> None:
        os.kill(pid, signal.SIGSTOP)
        seen.append(build_run.run_build(build.pk, "gpu1"))
        Build.objects.filter(pk=build.pk).update(lease_expires_at=clock.now() - timedelta(seconds=1))

    at("build", lose)
    assert build_run.run_build(build.pk, "gpu0")
    assert seen == [False], "nobody else may begin while it runs"
    row = fresh(build)
    assert row.state == states.RUNNING, "what became of it is not ours to write"
    sweep.sweep()
    row = fresh(build)
    assert (row.state, row.reason) == (states.QUEUED, "worker_lost")
    nothing_left(build)
    at("", lambda step, pid: None)
    assert build_run.run_build(build.pk, "gpu1")
    assert fresh(build).state == states.SUCCEEDED


def test_a_message_that_comes_many_times_runs_one_build(installed: Installed) -> None:
    build = a_build("engine")
    connections.close_all()
    pids = []
    for _copy in range(4):
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                code = 0 if build_run.run_build(build.pk, "gpu0") else 3
            finally:
                os._exit(code)
        pids.append(pid)
    codes = sorted(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids)
    assert codes == [0, 3, 3, 3]
    assert fresh(build).state == states.SUCCEEDED
    assert installed.calls() == ["convert_checkpoint.py", "trtllm-build"]
    assert AuditEntry.objects.filter(object_type="build", to_state=states.RUNNING).count() == 1


def test_two_builds_that_share_a_stage_each_end_well(installed: Installed) -> None:
    """Both convert at once: whoever is second uses what the first one kept."""
    one = a_build("engine")
    two = rows.queued(name="two", options={"build": {"max_batch_size": 4}})
    second = two.node.gpus.get(index=1)
    Build.objects.filter(pk=two.pk).update(gpu=second)
    connections.close_all()
    threads = [
        threading.Thread(target=build_run.run_build, args=(build.pk, f"gpu{index}"))
        for index, build in enumerate((one, two))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert [fresh(build).state for build in (one, two)] == [states.SUCCEEDED] * 2
    assert installed.calls().count("trtllm-build") == 2
    assert len([stage for stage in stages.kept_stages() if stage.name == "convert"]) == 1


@pytest.mark.parametrize("stage", ["convert", "build"])
def test_a_disk_that_is_full_when_a_stage_is_kept(
    installed: Installed, monkeypatch: pytest.MonkeyPatch, stage: str
) -> None:
    real = stages._sync

    def full(path: Path) -> None:
        if path.name == "stage.json" and stage == ("build" if path.parent.name == "engine" else "convert"):
            raise OSError(28, os.strerror(28), str(path))
        real(path)

    monkeypatch.setattr(stages, "_sync", full)
    build = a_build("engine")
    assert build_run.run_build(build.pk, "gpu0")
    row = fresh(build)
    assert (row.state, row.reason) == (states.FAILED, "disk_full")
    assert row.remedy
    nothing_left(build)


@pytest.mark.integration
@pytest.mark.slow
def test_redis_goes_away_and_comes_back(
    start_worker: Callable[..., Worker],
    celery_broker: RedisServer,
    installed: Installed,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A running build does not notice; one that is started meanwhile says why it waits, and starts by itself."""
    monkeypatch.setattr(dispatch, "_publish", PUBLISH)
    start_worker("gpu0")
    installed.set(seconds=4.0)
    first = rows.queued()
    resent(first)
    wait_until(lambda: "trtllm-build" in installed.calls(), 60, "the first build compiles")
    celery_broker.stop()
    second = rows.queued(name="second", options={"build": {"max_batch_size": 4}})
    wait_until(lambda: fresh(first).state == states.SUCCEEDED, 60, "the first build ended without Redis")
    assert not dispatch.send(fresh(second))
    assert fresh(second).reason == "queue_unreachable"
    celery_broker.start()
    installed.set(seconds=0.02)

    def done() -> bool:
        resent(second)
        return fresh(second).state == states.SUCCEEDED

    wait_until(done, 60, "the second build, once Redis is back")
    assert fresh(second).attempt == 1
    for build in (first, second):
        nothing_left(build)


def resent(build: Build) -> None:
    """As the sweep does, whose next look may be seconds away."""
    if fresh(build).state == states.QUEUED:
        Build.objects.filter(pk=build.pk).update(dispatched_at=None)
        sweep.sweep()
