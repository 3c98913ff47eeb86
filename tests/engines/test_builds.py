"""Starting, cancelling and retrying builds."""

from __future__ import annotations

import shutil
from collections import namedtuple
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.db import IntegrityError

from apps.core.exceptions import InfrastructureError, InvalidInput, NotAllowed, NotFound, NotPossibleNow
from apps.core.models import AuditEntry
from apps.engines import builds, selectors, states
from apps.engines.models import Build, BuildProfile
from apps.engines.serialize import build_dict, engine_dict
from apps.engines.services import cancel_build, retry_build, start_build
from apps.fleet.models import Node
from apps.registry.models import Checkpoint
from apps.registry.sweep import sweep as registry_sweep
from tests import objects
from tests.people import person

pytestmark = pytest.mark.django_db
Commit = Callable[..., Any]


def test_a_build_is_queued_and_sent_after_commit(
    profile: BuildProfile, node: Node, sent: list[Any], django_capture_on_commit_callbacks: Commit
) -> None:
    with django_capture_on_commit_callbacks(execute=True):
        operator = person("operator")
        build = start_build(operator, profile)
        assert sent == [], "nothing is sent before the row is there for the worker to see"
    assert sent == [(1, "node.n-test.gpu0")]
    build.refresh_from_db()
    assert (build.state, build.number, build.requested_by) == (states.QUEUED, 1, operator)
    assert build.dispatched_at is not None
    assert build.gpu == node.gpus.get()
    assert build.spec["quantization"] == "F16"
    assert "options" not in build.spec["source"]
    assert AuditEntry.objects.filter(verb="build.queued", actor=operator).count() == 1


def test_two_presses_make_one_build(profile: BuildProfile) -> None:
    first = start_build("cli", profile)
    assert start_build("cli", profile).pk == first.pk
    assert selectors.active_build(profile) == first
    assert Build.objects.count() == 1


def test_losing_the_race_for_the_fingerprint_or_the_number(
    profile: BuildProfile, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, calls = builds._create, []

    def racing(*args: Any) -> Build:
        calls.append(args)
        if len(calls) == 1:
            raise IntegrityError("somebody else was first")
        return real(*args)

    monkeypatch.setattr(builds, "_create", racing)
    assert start_build("cli", profile).number == 1
    assert len(calls) == 2

    def always(*args: Any) -> Build:
        raise IntegrityError("again")

    monkeypatch.setattr(builds, "_create", always)
    with pytest.raises(InfrastructureError):
        start_build("cli", objects.build_profile("q8", quantization="Q8_0"))


def test_numbers_grow_and_an_edited_profile_is_another_build(profile: BuildProfile) -> None:
    first = start_build("cli", profile)
    profile.quantization = "Q8_0"
    profile.save()
    second = start_build("cli", profile)
    assert (first.number, second.number) == (1, 2)
    assert first.spec["quantization"] == "F16"
    assert first.fingerprint != second.fingerprint


def test_a_ready_engine_is_used_again(
    profile: BuildProfile, sent: list[Any], django_capture_on_commit_callbacks: Commit
) -> None:
    engine = objects.engine(profile)
    with django_capture_on_commit_callbacks(execute=True):
        build = start_build("cli", profile)
    assert (build.state, build.reused, build.engine, build.progress) == (states.SUCCEEDED, True, engine, 1.0)
    assert build.finished_at is not None
    assert sent == []
    assert selectors.newest_engine(profile) == engine
    shutil.rmtree(engine.path)
    assert start_build("cli", profile).state == states.QUEUED, "its files are gone"


def test_the_checkpoint_must_be_ready(profile: BuildProfile) -> None:
    path = Path(profile.checkpoint.path)
    kept = path.read_bytes()
    path.unlink()
    try:
        registry_sweep()
        profile.refresh_from_db()
        with pytest.raises(NotPossibleNow) as caught:
            start_build("cli", profile)
    finally:
        path.write_bytes(kept)
    assert (caught.value.code, caught.value.field) == ("checkpoint_not_ready", "checkpoint")
    assert "missing" in caught.value.sentence
    assert caught.value.remedy


@pytest.mark.parametrize(
    ("columns", "code"),
    [
        ({"format": "hf"}, "needs_tensorrt_llm_builder"),
        ({"facts": {"tensor_types": {"Q8_K": 1}}}, "weights_not_readable"),
    ],
)
def test_checkpoints_that_this_builder_does_not_read(
    profile: BuildProfile, columns: dict[str, Any], code: str
) -> None:
    Checkpoint.objects.update(**columns)
    profile.refresh_from_db()
    with pytest.raises(InvalidInput) as caught:
        start_build("cli", profile)
    assert (caught.value.code, caught.value.field) == (code, "checkpoint")


def test_a_disk_without_room_is_said_before_anything_starts(
    profile: BuildProfile, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(10**12, 10**12, 10**6))
    with pytest.raises(InfrastructureError) as caught:
        start_build("cli", profile)
    assert caught.value.code == "disk_full"
    assert "0.0 GB free" in caught.value.sentence
    assert caught.value.facts["free_bytes"] == 10**6
    assert not Build.objects.exists()


def test_roles(profile: BuildProfile) -> None:
    build = start_build("cli", profile)
    viewer = person("viewer")
    for act, target in ((start_build, profile), (cancel_build, build), (retry_build, build)):
        with pytest.raises(NotAllowed):
            act(viewer, target)


def test_a_queued_build_is_cancelled_at_once(profile: BuildProfile) -> None:
    build = cancel_build("cli", start_build("cli", profile))
    assert (build.state, build.reason) == (states.CANCELLED, "cancelled")
    assert build.finished_at is not None
    with pytest.raises(NotPossibleNow):
        cancel_build("cli", build)


def test_a_running_build_is_asked_to_end(queued: Callable[..., Build]) -> None:
    build = queued(state=states.RUNNING)
    cancel_build("cli", build)
    asked = build.cancel_requested_at
    assert build.state == states.RUNNING
    assert asked is not None
    assert build_dict(build)["actions"] == []
    cancel_build("cli", build)
    assert build.cancel_requested_at == asked


def test_cancel_while_a_worker_claims(queued: Callable[..., Build]) -> None:
    build = queued()
    Build.objects.filter(pk=build.pk).update(state=states.RUNNING)
    cancel_build("cli", build)
    assert (build.state, build.cancel_requested_at is not None) == (states.RUNNING, True)


@pytest.mark.parametrize("state", [states.FAILED, states.CANCELLED])
def test_retry_is_a_new_build_of_the_same_settings(profile: BuildProfile, state: str) -> None:
    build = objects.build(profile, state)
    profile.quantization = "Q8_0"
    profile.save()
    again = retry_build("cli", build)
    assert again.number == 2
    assert again.spec["quantization"] == "F16"
    assert build_dict(build)["actions"] == ["retry"]


def test_what_cannot_be_retried(queued: Callable[..., Build]) -> None:
    with pytest.raises(NotPossibleNow):
        retry_build("cli", queued())


def test_selectors(profile: BuildProfile) -> None:
    engine = objects.engine(profile)
    build = start_build("cli", profile)
    assert selectors.build(1) == build
    assert list(selectors.builds()) == [build]
    assert selectors.engine(engine.fingerprint[:10]) == engine
    for missing in (lambda: selectors.build(9), lambda: selectors.engine("zz"), lambda: selectors.engine("")):
        with pytest.raises(NotFound):
            missing()
    profile.options = {"changed": True}
    assert selectors.newest_engine(profile) == engine, "the newest of the same kind still serves"
    profile.quantization = "Q4_0"
    assert selectors.newest_engine(profile) is None


def test_shapes_that_pages_and_api_show(profile: BuildProfile) -> None:
    engine = objects.engine(profile)
    shown = build_dict(start_build("cli", profile))
    assert shown["engine"] == engine.fingerprint
    assert shown["progress"] == 1.0
    assert shown["eta_seconds"] is None
    assert shown["checkpoint"] == "tiny"
    assert engine_dict(engine)["state"] == "ready"
