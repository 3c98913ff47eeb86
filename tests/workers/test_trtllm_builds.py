"""Builds of TensorRT-LLM from the start to the published engine, over programs that take the real command lines."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings

from apps.core.exceptions import InvalidInput
from apps.engines import attempts, dispatch, paths, stages, states
from apps.engines.models import Build, BuildProfile, Engine
from apps.engines.services import cancel_build, retry_build, start_build
from apps.fleet.models import GpuLease
from apps.fleet.processes import ProcessIdentity, mark_of, ours
from tests.support.trtllm import rows
from tests.support.trtllm.installed import IMAGE, Installed, install
from workers import build_run, supervisor, usage

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.one_database]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    return install(tmp_path_factory.mktemp("trtllm") / "installed")


@pytest.fixture
def installed(
    made: Installed, transactional_db: None, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Installed]:
    """An installation whose programs work at once, offered by this node."""
    monkeypatch.setattr(dispatch, "_publish", lambda build, slot: None)
    (made.root / "double.calls").unlink(missing_ok=True)
    (made.root / "double.json").write_text('{"seconds": 0.02}')
    shutil.rmtree(made.containers, ignore_errors=True)
    _clean()
    rows.toolchain(made)
    yield made
    for row in Build.objects.all():
        for attempt in range(row.attempt + 1):
            assert ours(mark_of(settings.INFLIGHT_NODE_ID, "build", row.pk, attempt)) == []
            assert not (paths.build_folder(row.number, attempt) / "work").exists()
    _clean()


def _clean() -> None:
    for folder in ("builds", "engines", "stages"):
        shutil.rmtree(Path(settings.INFLIGHT_HOME) / folder, ignore_errors=True)


def run(build: Build) -> Build:
    """One claim and attempt; nothing half-made is to be seen after it."""
    assert build_run.run_build(build.pk, "gpu0")
    row = Build.objects.get(pk=build.pk)
    if row.state != states.SUCCEEDED:
        assert not Engine.objects.exists()
        assert not paths.engines_folder().exists() or list(paths.engines_folder().iterdir()) == []
    if row.state != states.RUNNING:
        assert not GpuLease.objects.filter(released_at__isnull=True).exists()
    return row


def log_of(build: Build) -> str:
    return Path(build.log_path).read_text()


def stage_states(build: Build) -> dict[str, str]:
    return {stage["name"]: stage["state"] for stage in build.stages}


def test_an_engine_of_two_ranks_with_all_that_its_manifest_must_say(installed: Installed) -> None:
    row = run(rows.queued(quantization="fp8", tp=2))
    assert (row.state, row.sentence) == (states.SUCCEEDED, ""), log_of(row)
    assert installed.calls() == ["quantize.py", "trtllm-build"]
    assert stage_states(row) == {"quantize": "done", "build": "done", "publish": "done"}
    assert row.stages[1]["peak_bytes"] > 0
    assert row.stages[1]["doing"] == "All ranks built"

    engine = row.engine
    assert engine is not None
    folder = Path(engine.path)
    names = ["config.json", "rank0.engine", "rank1.engine"]
    tokenizer = [f"tokenizer/{name}" for name in ("config.json", "tokenizer.json", "tokenizer_config.json")]
    assert sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()) == sorted(
        [*names, "manifest.json", *tokenizer]
    )
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest == engine.manifest
    digests = {file["name"]: file["sha256"] for file in manifest["files"]}
    assert digests["rank1.engine"] == hashlib.sha256((folder / "rank1.engine").read_bytes()).hexdigest()
    assert set(digests) == {*names, *tokenizer}
    assert manifest["versions"] == rows.VERSIONS
    assert manifest["gpu"] == {"name": "NVIDIA H100", "sm": 90, "memory_bytes": 80 * 2**30}
    assert (manifest["sm"], manifest["image"], manifest["seed"], manifest["world_size"]) == (
        90,
        None,
        1234,
        2,
    )
    assert manifest["toolchain"] == {"name": "doubles", "kind": "native", "location": str(installed.python)}
    assert manifest["engine"]["limits"]["max_batch_size"] == 8
    assert manifest["engine"]["quant_algo"] == "FP8"
    argv = manifest["argv"]["build"]
    assert argv[0] == str(installed.bin / "trtllm-build")
    # Two GPUs were leased, so both ranks are compiled at once; the timing cache is the job's own.
    assert argv[argv.index("--workers") + 1] == "2"
    assert argv[argv.index("--output_timing_cache") + 1].startswith(str(paths.build_folder(row.number, 1)))
    assert argv[argv.index("--checkpoint_dir") + 1].startswith(str(stages.stages_folder()))
    assert "Calibrating batch 3" in log_of(row)

    again = start_build("test", row.profile)
    assert (again.state, again.reused, again.engine) == (states.SUCCEEDED, True, engine)


def test_workers_are_no_more_than_the_gpus_that_were_leased(installed: Installed) -> None:
    options = {"build": {"workers": 8, "max_batch_size": 8}}
    row = run(rows.queued(tp=2, options=options))
    assert row.state == states.SUCCEEDED, row.sentence
    argv = row.engine.manifest["argv"]["build"]
    assert argv[argv.index("--workers") + 1] == "2"


def test_a_checkpoint_for_the_pytorch_backend_is_validated_and_warmed_up(installed: Installed) -> None:
    row = run(rows.queued(recipe="checkpoint", tp=2, options={}))
    assert row.state == states.SUCCEEDED, log_of(row)
    assert stage_states(row) == {"validate": "done", "warm_up": "done", "publish": "done"}
    assert installed.calls() == ["mpirun"]
    manifest = row.engine.manifest
    assert manifest["recipe"] == "checkpoint"
    assert manifest["source"]["path"] == row.checkpoint.path
    report = json.loads((Path(row.engine.path) / "report_warm_up.json").read_text())
    assert (report["version"], report["text"]) == ("1.2.1", "!")
    assert (Path(row.engine.path) / "tokenizer/tokenizer.json").is_file()


@pytest.mark.parametrize("kind", ["docker", pytest.param("podman", marks=pytest.mark.slow)])
def test_an_image_by_digest(installed: Installed, kind: str) -> None:
    rows.toolchain(installed, kind)
    row = run(rows.queued())
    assert row.state == states.SUCCEEDED, log_of(row)
    assert row.engine.manifest["image"] == IMAGE
    assert row.stages[0]["argv"][:3] == [str(installed.bin / kind), "run", "--rm"]
    assert list(installed.containers.iterdir()) == []


@pytest.mark.parametrize(
    ("fail", "reason"),
    [
        ({"trtllm-build": "oom"}, "gpu_out_of_memory"),
        ({"trtllm-build": "disk_full"}, "disk_full"),
        ({"trtllm-build": "exit_0_without_output"}, "engine_config_json_unreadable"),
        ({"trtllm-build": "missing_rank"}, "rank_missing"),
        ({"convert_checkpoint.py": "missing_rank"}, "rank_missing"),
    ],
)
def test_what_goes_wrong_has_its_reason_and_is_not_tried_again(
    installed: Installed, fail: dict[str, str], reason: str
) -> None:
    installed.set(fail=fail)
    row = run(rows.queued(tp=2, dtype="bfloat16"))
    assert (row.state, row.reason, row.retries) == (states.FAILED, reason, 0), row.sentence
    assert row.sentence
    assert row.remedy
    first = "convert_checkpoint.py" in fail
    assert stage_states(row) == {
        "convert": "failed" if first else "done",
        "build": "skipped" if first else "failed",
        "publish": "skipped",
    }
    assert [stage.name for stage in stages.kept_stages()] == ([] if first else ["convert"])


@pytest.mark.parametrize(
    ("fail", "reason"),
    [
        ({"quantize.py": "dataset"}, "calibration_dataset_unreachable"),
        ({"quantize.py": "exit_0_without_output"}, "engine_config_json_unreadable"),
    ],
)
def test_a_calibration_that_goes_wrong(installed: Installed, fail: dict[str, str], reason: str) -> None:
    installed.set(fail=fail)
    row = run(rows.queued(quantization="fp8"))
    assert (row.state, row.reason) == (states.FAILED, reason), row.sentence


def test_a_soft_out_of_memory_is_no_failure(installed: Installed) -> None:
    installed.set(fail={"quantize.py": "soft_oom"})
    assert run(rows.queued(quantization="fp8")).state == states.SUCCEEDED


def test_a_build_that_failed_goes_on_behind_its_last_whole_stage(installed: Installed) -> None:
    installed.set(fail={"trtllm-build": "oom"})
    failed = run(rows.queued(quantization="fp8"))
    assert failed.state == states.FAILED
    installed.set(fail={})
    again = retry_build("test", failed)
    Build.objects.filter(pk=again.pk).update(node=failed.node, gpu=failed.gpu)
    row = run(again)
    assert row.state == states.SUCCEEDED, log_of(row)
    assert installed.calls() == ["quantize.py", "trtllm-build", "trtllm-build"]
    first = row.stages[0]
    assert (first["state"], first["kept"], first["note"]) == (
        "done",
        True,
        f"Kept from build #{failed.number}.",
    )
    # Other limits of the same checkpoint need no second calibration either.
    other = rows.profile("other", quantization="fp8", options={"build": {"max_batch_size": 4}})
    build = start_build("test", other)
    Build.objects.filter(pk=build.pk).update(node=failed.node, gpu=failed.gpu)
    assert run(build).state == states.SUCCEEDED
    assert installed.calls()[3:] == ["trtllm-build"]


def test_an_attempt_that_died_after_its_rename_is_finished_by_the_next(installed: Installed) -> None:
    row = rows.queued()
    assert run(row).state == states.SUCCEEDED
    Engine.objects.all().delete()
    Build.objects.filter(pk=row.pk).update(state=states.QUEUED, attempt=1, engine=None)
    calls = installed.calls()
    again = run(row)
    assert (again.state, again.attempt) == (states.SUCCEEDED, 2)
    assert installed.calls() == calls
    manifest = (Path(again.engine.path) / "manifest.json").read_text()
    assert again.engine.manifest == json.loads(manifest)


def test_a_stage_that_is_not_whole_is_made_again(installed: Installed) -> None:
    installed.set(fail={"trtllm-build": "oom"})
    failed = run(rows.queued())
    [stage] = stages.kept_stages()
    (stage.path / "rank0.safetensors").unlink()
    installed.set(fail={})
    again = retry_build("test", failed)
    Build.objects.filter(pk=again.pk).update(node=failed.node, gpu=failed.gpu)
    assert run(again).state == states.SUCCEEDED
    assert installed.calls().count("convert_checkpoint.py") == 2


def test_killed_for_want_of_memory_is_not_tried_again(
    installed: Installed, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed.set(fail={"trtllm-build": "killed"})
    row = run(rows.queued())
    assert (row.state, row.reason, row.retries) == (states.QUEUED, "killed", 1)
    monkeypatch.setattr(usage, "MEMORY_FLOOR_SHARE", 2.0)
    row = run(row)
    assert (row.state, row.reason) == (states.FAILED, "host_out_of_memory"), row.sentence


def test_a_disk_that_runs_full_ends_the_step_before_it_is_full(
    installed: Installed, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed.set(fail={"trtllm-build": "hang"})
    real = usage.shutil.disk_usage(settings.INFLIGHT_HOME)

    class Full(usage.Meter):
        def look(self) -> bool:
            if any("hangs" in line for line in log_lines()):
                monkeypatch.setattr(usage, "DISK_FLOOR_BYTES", real.total * 2)
                self._at = float("-inf")
            return super().look()

    def log_lines() -> list[str]:
        return (paths.build_folder(1, 1) / "log.txt").read_text().splitlines()

    monkeypatch.setattr(supervisor, "Meter", Full)
    row = run(rows.queued())
    assert (row.state, row.reason) == (states.FAILED, "disk_full")
    assert "MB are left" in row.sentence


@pytest.mark.parametrize(
    ("columns", "change", "reason"),
    [
        ({"recipes": []}, {}, "toolchain_cannot"),
        ({"versions": rows.VERSIONS | {"tensorrt_llm": "1.2.0"}}, {}, "toolchain_changed"),
        ({"gpus": [{"index": 0, "name": "A100", "uuid": "GPU-0", "sm": 80}]}, {}, "gpu_differs"),
        ({}, {"toolchain": "gone"}, "toolchain_missing"),
        ({}, {"path": "/none/such"}, "checkpoint_missing"),
    ],
)
def test_what_changed_since_it_was_started_ends_it_before_anything_runs(
    installed: Installed, columns: dict[str, Any], change: dict[str, Any], reason: str
) -> None:
    row = rows.queued()
    rows.toolchain(installed, **columns)
    Build.objects.filter(pk=row.pk).update(spec={**row.spec, **change})
    row = run(row)
    assert (row.state, row.reason, row.stages) == (states.FAILED, reason, [])
    assert row.sentence
    assert row.remedy
    assert installed.calls() == []


def test_a_host_without_room_is_refused_with_figures(
    installed: Installed, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = rows.queued()
    row.checkpoint.facts = {**row.checkpoint.facts, "params": 10**13}
    row.checkpoint.save()
    row = run(row)
    assert (row.state, row.reason) == (states.FAILED, "disk_full")
    assert "GB free" in row.sentence


@pytest.mark.parametrize(
    ("columns", "profile", "said"),
    [
        (
            {"recipes": ["checkpoint"], "problem": "It has no trtllm-build."},
            {"recipe": "engine"},
            "no trtllm-build",
        ),
        ({}, {"gpu": "a100-80"}, "SM 90"),
        ({}, {"tensorrt_llm": "1.1.0"}, "asked is 1.1.0"),
        ({}, {"toolchain": "other"}, "names other"),
    ],
)
def test_a_profile_that_no_toolchain_fits_is_refused_with_each_ones_reason(
    installed: Installed, columns: dict[str, Any], profile: dict[str, Any], said: str
) -> None:
    rows.toolchain(installed, **columns)
    with pytest.raises(InvalidInput) as caught:
        start_build("test", rows.profile(**profile))
    assert caught.value.code == "no_toolchain_fits"
    assert said in caught.value.sentence


def test_the_fingerprint_counts_versions_and_architecture_and_no_names(installed: Installed) -> None:
    first = start_build("test", rows.profile())
    same = start_build("test", rows.profile("same"))
    assert same.pk == first.pk, "the same input is being built already"
    cancel_build("test", first)
    for columns in (
        {"versions": rows.VERSIONS | {"tensorrt": "10.13.0"}},
        {"gpus": [{"index": 0, "name": "L40S", "uuid": "GPU-0", "sm": 89}]},
        {"how": "docker", "location": IMAGE},
    ):
        rows.toolchain(installed, **columns)
        other = start_build("test", BuildProfile.objects.get(name="small"))
        assert other.fingerprint != first.fingerprint
        cancel_build("test", other)


def test_it_waits_for_a_node_that_has_its_toolchain(installed: Installed) -> None:
    row = rows.queued()
    assert dispatch.send(row)
    rows.toolchain(installed, recipes=["checkpoint"])
    assert not dispatch.send(row)
    row.refresh_from_db()
    assert row.reason == "no_toolchain"
    assert "doubles" in row.sentence
    rows.toolchain(installed)
    assert dispatch.send(row)
    row.refresh_from_db()
    assert row.reason == ""


def test_gpus_are_leased_for_ranks_and_fewer_are_enough_to_compile(installed: Installed) -> None:
    row = rows.queued(tp=2)
    claimed = attempts.claim_build(row.pk, "gpu0")
    assert claimed is not None
    assert GpuLease.objects.filter(released_at__isnull=True).count() == 2
    attempts.end_cancelled(claimed.build, claimed.attempt, "gpu0")
    assert not GpuLease.objects.filter(released_at__isnull=True).exists()

    warm = rows.queued(name="warm", recipe="checkpoint", tp=2, options={})
    other = rows.queued(name="other", options={"build": {"max_batch_size": 4}})
    second = other.node.gpus.get(index=1)
    Build.objects.filter(pk=other.pk).update(gpu=second)
    held = attempts.claim_build(other.pk, "gpu1")
    assert held is not None
    assert attempts.claim_build(warm.pk, "gpu0") is None
    warm.refresh_from_db()
    assert (warm.state, warm.reason) == (states.QUEUED, "waiting_for_share")
    assert GpuLease.objects.filter(released_at__isnull=True).count() == 1
    compiled = rows.queued(name="third", tp=2, options={"build": {"max_batch_size": 2}})
    assert attempts.claim_build(compiled.pk, "gpu0") is not None
    for build in (other, compiled):
        attempts.end_cancelled(Build.objects.get(pk=build.pk), 1, "gpu0")


@pytest.mark.parametrize(
    ("kind", "how"),
    [
        ("native", "hang_deaf"),
        ("docker", "hang_deaf"),
        pytest.param("native", "hang", marks=pytest.mark.slow),
        pytest.param("docker", "hang", marks=pytest.mark.slow),
    ],
)
def test_cancel_while_it_hangs_leaves_no_process(
    installed: Installed, monkeypatch: pytest.MonkeyPatch, how: str, kind: str
) -> None:
    rows.toolchain(installed, kind)
    installed.set(fail={"trtllm-build": how})
    monkeypatch.setattr(supervisor, "GRACE_SECONDS", 0.3)
    row = rows.queued(tp=2)
    real = attempts.record_stage

    def record(build: Build, attempt: int, name: str, state: str, **more: Any) -> bool:
        if name == "build" and state == "running" and "doing" in more:
            cancel_build("cli", Build.objects.get(pk=build.pk))
        return real(build, attempt, name, state, **more)

    monkeypatch.setattr(attempts, "record_stage", record)
    row = run(row)
    assert (row.state, row.reason) == (states.CANCELLED, "cancelled"), row.sentence
    assert not list(installed.containers.glob("*.json"))


def test_a_new_attempt_first_ends_the_container_that_the_last_one_left(
    installed: Installed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker died: its client of the container program with it, the container not."""
    rows.toolchain(installed, "docker")
    row = rows.queued()
    installed.set(fail={"convert_checkpoint.py": "hang"})
    real_record, ended = attempts.record_stage, supervisor.Supervisor._end

    def die(self: Any, child: Any, identity: ProcessIdentity | None, *rest: Any) -> None:
        child.kill()
        child.wait()

    def stop(build: Build, attempt: int, name: str, state: str, **more: Any) -> bool:
        if "doing" in more:
            raise KeyboardInterrupt
        return real_record(build, attempt, name, state, **more)

    monkeypatch.setattr(supervisor.Supervisor, "_end", die)
    monkeypatch.setattr(attempts, "record_stage", stop)
    with pytest.raises(KeyboardInterrupt):
        build_run.run_build(row.pk, "gpu0")
    monkeypatch.setattr(supervisor.Supervisor, "_end", ended)
    monkeypatch.setattr(attempts, "record_stage", real_record)
    mark = mark_of(settings.INFLIGHT_NODE_ID, "build", row.pk, 1)
    assert ours(mark), "the container runs on"
    installed.set(fail={})
    attempts.requeue_build(row, 1, attempts.Failure("worker_lost", "gone"), "sweep")
    assert run(Build.objects.get(pk=row.pk)).state == states.SUCCEEDED
    assert ours(mark) == []
