"""One attempt in this process, with steps of the tests' own: every end leaves a reason and nothing half-made."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from celery.exceptions import SoftTimeLimitExceeded
from django.conf import settings
from django.db import DatabaseError

from apps.core.exceptions import Finding, InfrastructureError
from apps.engines import attempts, dispatch, paths, stages, states
from apps.engines.attempts import Artefact
from apps.engines.domain.build_spec import BuildSpec
from apps.engines.models import Build, Engine
from apps.engines.services import cancel_build
from apps.fleet.models import GpuLease
from apps.fleet.processes import MARK, ProcessIdentity, identify, mark_of, ours
from apps.fleet.services import register_node
from tests import objects
from tests.fleet.conftest import host
from tests.support.celery import CHECKOUT, wait_until
from workers import attempt_rows, build_run
from workers.builders.base import BuildContext, Step
from workers.builders.keeping import keeping
from workers.pumps import LogFile

EVENTS = "from workers.builders.llamacpp_steps.events import StepFailed, run, send\n"
PUBLISH = EVENTS + textwrap.dedent(
    """
    import json, pathlib, sys
    place = pathlib.Path(sys.argv[1])
    place.mkdir(parents=True)
    (place / "model.gguf").write_bytes(b"12345")
    files = [{"name": "model.gguf", "size_bytes": 5}]
    (place / "manifest.json").write_text(json.dumps({"fingerprint": place.name, "files": files}))
    send("result", facts={"reused": False})
    """
)


class ScriptedBuilder:
    """Steps are Python programs, given by the test."""

    name = "llamacpp"

    def __init__(self) -> None:
        self.codes: list[str] = [PUBLISH]
        self.findings: list[Finding] = []
        self.fields: dict[str, Any] = {}
        self.broken: Exception | None = None
        # Keep what the first step leaves in the work folder's `out`; the second one judges it.
        self.keeps = False

    def check(self, spec: BuildSpec, context: BuildContext) -> list[Finding]:
        return self.findings

    def plan(self, spec: BuildSpec, context: BuildContext) -> list[Step]:
        env = {"PATH": os.defpath, "PYTHONPATH": str(CHECKOUT), "PYTHONDONTWRITEBYTECODE": "1"}
        place = str(context.engines / context.fingerprint)
        steps = [
            Step(
                name=f"s{index}",
                title=f"Step {index}",
                argv=(sys.executable, "-u", "-c", textwrap.dedent(code), place, str(context.work)),
                cwd=context.folder,
                env=env,
                **self.fields,
            )
            for index, code in enumerate(self.codes)
        ]
        key = f"{context.fingerprint[:8]}-kept"
        judges = ("s1",)
        out = context.work / "out"
        return keeping(steps, "s0", out, key, context.stages, judges) if self.keeps else steps

    def facts(self, spec: BuildSpec, context: BuildContext) -> dict[str, Any]:
        return {}

    def collect(self, context: BuildContext) -> Artefact:
        if self.broken is not None:
            raise self.broken
        place = context.engines / context.fingerprint
        return Artefact(str(place), 5, {"files": []})


@pytest.fixture
def builder(monkeypatch: pytest.MonkeyPatch) -> ScriptedBuilder:
    made = ScriptedBuilder()
    monkeypatch.setitem(build_run.BUILDERS, "llamacpp", made)
    return made


@pytest.fixture
def build(transactional_db: None) -> Iterator[Build]:
    """A queued build on this host's slot."""
    node = register_node("test", settings.INFLIGHT_NODE_ID, facts=host())
    row = objects.build(objects.build_profile(), node=node, gpu=node.gpus.get())
    yield row
    for attempt in range(1, 5):
        assert ours(mark_of(settings.INFLIGHT_NODE_ID, "build", row.pk, attempt)) == []
        assert not (paths.build_folder(row.number, attempt) / "work").exists()


@pytest.fixture(autouse=True)
def _no_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    """A build that is queued again is sent; here nobody listens."""
    monkeypatch.setattr(dispatch, "_publish", lambda build, slot: None)


@pytest.fixture(autouse=True)
def _clean_home() -> Iterator[None]:
    """Other tests of this process share the home."""

    def clean() -> None:
        for folder in ("builds", "engines", "stages"):
            shutil.rmtree(Path(settings.INFLIGHT_HOME) / folder, ignore_errors=True)

    clean()
    yield
    clean()


def run(build: Build) -> Build:
    """One claim and attempt; returns the row as it then stands."""
    assert build_run.run_build(build.pk, "gpu0")
    row = Build.objects.get(pk=build.pk)
    if row.state != states.SUCCEEDED:
        assert not Engine.objects.exists(), "nothing half-made is visible"
        assert not paths.engines_folder().exists() or list(paths.engines_folder().iterdir()) == []
    if row.state != states.RUNNING:
        assert not GpuLease.objects.filter(released_at__isnull=True).exists()
    return row


def log_of(build: Build) -> str:
    return (paths.build_folder(build.number, build.attempt) / "log.txt").read_text()


def test_success(build: Build, builder: ScriptedBuilder) -> None:
    builder.codes = ["print('working')", PUBLISH]
    row = run(build)
    assert (row.state, row.sentence, row.attempt) == (states.SUCCEEDED, "", 1)
    assert [(stage["name"], stage["title"], stage["state"]) for stage in row.stages] == [
        ("s0", "Step 0", "done"),
        ("s1", "Step 1", "done"),
    ]
    assert row.stages[0]["argv"][0] == sys.executable
    assert "working" in log_of(row)
    assert row.log_path == str(paths.build_folder(1, 1) / "log.txt")
    assert not build_run.run_build(build.pk, "gpu0"), "a second message finds nothing to do"


def test_a_failure_that_a_step_names(build: Build, builder: ScriptedBuilder) -> None:
    builder.codes = [
        EVENTS + "def main(): raise StepFailed('weights_not_finite', 'No numbers.', 'Fetch it.')\nrun(main)",
        PUBLISH,
    ]
    row = run(build)
    assert (row.state, row.reason, row.sentence, row.remedy) == (
        states.FAILED,
        "weights_not_finite",
        "No numbers.",
        "Fetch it.",
    )
    assert [stage["state"] for stage in row.stages] == ["failed", "skipped"]
    assert "weights_not_finite" in log_of(row)


def test_the_log_names_the_cause(build: Build, builder: ScriptedBuilder) -> None:
    builder.codes = ["print(\"unknown model architecture: 'qwen9'\"); raise SystemExit(1)"]
    row = run(build)
    assert (row.state, row.reason) == (states.FAILED, "unsupported_architecture")
    assert row.diagnosis["facts"] == {"architecture": "qwen9"}
    assert "qwen9" in row.sentence
    assert row.remedy


def test_a_cause_that_nobody_knows(build: Build, builder: ScriptedBuilder) -> None:
    builder.codes = ["print('the last words'); raise SystemExit(7)"]
    row = run(build)
    assert (row.state, row.reason) == (states.FAILED, "step_failed")
    assert "exit code 7" in row.sentence
    assert row.remedy


def test_a_full_disk(build: Build, builder: ScriptedBuilder) -> None:
    builder.codes = [EVENTS + "def main(): open('/dev/full', 'wb').write(b'x' * 99999)\nrun(main)"]
    row = run(build)
    assert (row.state, row.reason) == (states.FAILED, "disk_full")
    assert row.remedy


@pytest.mark.parametrize(
    ("number", "reason", "state"),
    [
        (28, "disk_full", states.FAILED),
        (13, "worker_cannot_work", states.FAILED),
        (11, "worker_cannot_work", states.QUEUED),
    ],
)
def test_a_worker_that_cannot_even_begin(
    build: Build,
    builder: ScriptedBuilder,
    monkeypatch: pytest.MonkeyPatch,
    number: int,
    reason: str,
    state: str,
) -> None:
    def fail(path: Path) -> LogFile:
        raise OSError(number, os.strerror(number), str(path))

    monkeypatch.setattr(build_run, "LogFile", fail)
    row = run(build)
    assert (row.state, row.reason) == (state, reason)
    assert row.sentence
    assert row.remedy


def test_killed_from_outside_is_tried_again_twice(build: Build, builder: ScriptedBuilder) -> None:
    builder.codes = ["import os; os.kill(os.getpid(), 9)"]
    assert run(build).state == states.QUEUED
    assert run(build).state == states.QUEUED
    row = run(build)
    assert (row.state, row.reason, row.attempt, row.retries) == (states.FAILED, "killed", 3, 2)


KEEP = """
    import json, os, pathlib, sys
    out = pathlib.Path(sys.argv[2]) / "out"
    out.mkdir()
    (out / "file").write_text("made")
    print("made", flush=True)
    os.write(int(os.environ["INFLIGHT_EVENTS_FD"]), b'{"event": "result", "facts": {"sha256": "ab"}}\\n')
"""


def test_the_next_attempt_goes_on_behind_a_kept_stage(build: Build, builder: ScriptedBuilder) -> None:
    """As llama.cpp's converted file: what its stages said goes into the manifest of the attempt that ends well."""
    builder.keeps = True
    builder.codes = [KEEP, "import os; os.kill(os.getpid(), 9)", PUBLISH]
    assert run(build).state == states.QUEUED
    builder.codes[1] = "pass"
    row = run(build)
    assert (row.state, row.attempt) == (states.SUCCEEDED, 2)
    assert [(stage["state"], stage.get("kept", False)) for stage in row.stages] == [
        ("done", True),
        ("done", False),
        ("done", False),
    ]
    assert "made" not in log_of(row).splitlines()
    plan = json.loads((paths.build_folder(1, 2) / "plan.json").read_text())
    assert set(plan["seconds"]) >= {"s0", "s1"}
    assert not list((Path(settings.INFLIGHT_HOME) / "builds").glob("*/work"))


def test_a_kept_stage_that_a_later_one_condemns_is_made_again(build: Build, builder: ScriptedBuilder) -> None:
    builder.keeps = True
    failing = "def main(): raise StepFailed('engine_generates_nan', 'No numbers.', 'Build again.')\nrun(main)"
    builder.codes = [KEEP, EVENTS + failing, PUBLISH]
    assert run(build).reason == "engine_generates_nan"
    assert stages.kept_stages() == []


def test_a_deadline(build: Build, builder: ScriptedBuilder) -> None:
    builder.codes, builder.fields = ["import time; time.sleep(600)"], {"deadline_seconds": 0.3}
    row = run(build)
    assert (row.state, row.reason) == (states.FAILED, "deadline")


def test_an_output_that_is_missing(build: Build, builder: ScriptedBuilder, tmp_path: Path) -> None:
    builder.codes, builder.fields = ["pass"], {"outputs": (tmp_path / "never",)}
    row = run(build)
    assert (row.state, row.reason, row.retries) == (states.QUEUED, "output_missing", 1)


def test_findings_end_it_before_anything_starts(build: Build, builder: ScriptedBuilder) -> None:
    builder.findings = [
        Finding("note", "info", "By the way."),
        Finding("serving_environment_missing", "error", "It is not there.", "x", "Run make up."),
    ]
    row = run(build)
    assert (row.state, row.reason, row.remedy) == (
        states.FAILED,
        "serving_environment_missing",
        "Run make up.",
    )
    assert row.stages == []


def test_cancel(build: Build, builder: ScriptedBuilder, monkeypatch: pytest.MonkeyPatch) -> None:
    builder.codes = ["import time; print('up', flush=True); time.sleep(600)"]
    real = attempts.record_child

    def record(row: Build, attempt: int, child: ProcessIdentity | None) -> bool:
        done = real(row, attempt, child)
        cancel_build("cli", Build.objects.get(pk=row.pk))
        return done

    monkeypatch.setattr(attempts, "record_child", record)
    row = run(build)
    assert (row.state, row.reason) == (states.CANCELLED, "cancelled")
    assert [stage["state"] for stage in row.stages] == ["skipped"]


def test_a_worker_that_was_replaced_writes_nothing_more(
    build: Build, builder: ScriptedBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While it worked its lease ran out and another attempt began: its result is not its own to write."""
    builder.codes = [PUBLISH]
    real = attempts.finish_build

    def finish(row: Build, attempt: int, artefact: Artefact, worker: str) -> bool:
        Build.objects.filter(pk=row.pk).update(attempt=2)
        return real(row, attempt, artefact, worker)

    monkeypatch.setattr(attempts, "finish_build", finish)
    assert build_run.run_build(build.pk, "gpu0")
    row = Build.objects.get(pk=build.pk)
    assert (row.state, row.attempt, row.engine) == (states.RUNNING, 2, None)
    assert not Engine.objects.exists()


def test_what_the_last_attempt_left_is_ended_first(build: Build, builder: ScriptedBuilder) -> None:
    mark = mark_of(settings.INFLIGHT_NODE_ID, "build", build.pk, 1)
    left = subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(600)"],
        env={**os.environ, MARK: mark},
        start_new_session=True,
    )
    try:
        found = wait_until(lambda: identify(left.pid), 5, "what was left")
        Build.objects.filter(pk=build.pk).update(
            attempt=1, child_pid=found.pid, child_created=found.created, child_group=found.group
        )
        assert run(build).state == states.SUCCEEDED
        assert left.wait(timeout=1) != 0
    finally:
        left.kill()


def test_a_database_that_stutters(
    build: Build, builder: ScriptedBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempt_rows, "DATABASE_PAUSE_SECONDS", 0.01)
    real, calls = attempts.record_stage, []

    def stutter(*args: Any, **more: Any) -> bool:
        calls.append(args)
        if len(calls) % 3:
            raise DatabaseError("database is locked")
        return real(*args, **more)

    def never(*args: Any) -> bool:
        raise DatabaseError("database is locked")

    monkeypatch.setattr(attempts, "record_stage", stutter)
    monkeypatch.setattr(attempts, "record_progress", never)
    assert run(build).state == states.SUCCEEDED
    assert len(calls) == 6


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (RuntimeError("a fault"), "internal_error"),
        (SoftTimeLimitExceeded(), "deadline"),
        (InfrastructureError("engine_missing", "Gone.", remedy="Again."), "engine_missing"),
    ],
)
def test_faults_of_ours_are_said_at_once(
    build: Build, builder: ScriptedBuilder, error: Exception, reason: str
) -> None:
    builder.codes, builder.broken = ["pass"], error
    row = run(build)
    assert (row.state, row.reason) == (states.FAILED, reason)
    assert row.sentence
    assert row.remedy


def test_a_stopping_worker_gives_it_back(
    build: Build, builder: ScriptedBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    builder.codes = ["import time; time.sleep(600)"]
    monkeypatch.setattr(build_run, "stopping", lambda: True)
    row = run(build)
    assert (row.state, row.reason, row.retries) == (states.QUEUED, "worker_stopped", 0)


Truncate = Callable[[Path], None]


@pytest.mark.parametrize(
    ("harm", "reason"),
    [
        (lambda path: os.truncate(path, path.stat().st_size - 64), "gguf_truncated"),
        (lambda path: path.write_bytes(b"something else entirely, and long enough"), "gguf_not_a_gguf"),
        (lambda path: path.unlink(), "checkpoint_missing"),
    ],
)
def test_a_checkpoint_that_was_harmed_after_it_was_registered(
    build: Build, monkeypatch: pytest.MonkeyPatch, harm: Truncate, reason: str
) -> None:
    """The real builder's first stage, under this Python, which has numpy and gguf too."""
    monkeypatch.setattr(build_run, "serving_python", lambda: Path(sys.executable))
    path = Path(build.spec["path"])
    kept = path.read_bytes()
    try:
        harm(path)
        row = run(build)
    finally:
        path.write_bytes(kept)
    assert (row.state, row.reason) == (states.FAILED, reason)
    assert row.sentence
    assert row.remedy
