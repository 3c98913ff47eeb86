"""What workers write: fenced by attempt, in one transaction, retried where the machine is to blame."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from apps.core import clock
from apps.core.models import AuditEntry
from apps.engines import attempts, states
from apps.engines.attempts import Artefact, Claim, Failure, claim_build, renew_build
from apps.engines.models import Build, Engine
from apps.engines.services import cancel_build
from apps.fleet.leases import take_lease
from apps.fleet.models import Gpu, GpuLease
from apps.fleet.processes import ProcessIdentity
from apps.fleet.selectors import free_share

pytestmark = pytest.mark.django_db
CHILD = ProcessIdentity(4242, 17.5, 4242)
MACHINE = Failure("worker_lost", "It fell silent.", "Look.", retry=True)
SETTINGS = Failure("gguf_truncated", "It ends too early.", "Fetch it again.")
ARTEFACT = Artefact("/engines/x", 123, {"files": []})


@pytest.fixture
def claim(queued: Callable[..., Build]) -> Claim:
    found = claim_build(queued().pk, "gpu0")
    assert found is not None
    return found


def fresh(build: Build) -> Build:
    return Build.objects.get(pk=build.pk)


def test_a_claim_takes_lease_and_attempt(claim: Claim, slot: Gpu) -> None:
    build = fresh(claim.build)
    assert (build.state, build.attempt, claim.attempt) == (states.RUNNING, 1, 1)
    assert build.started_at is not None
    assert 39 < (build.lease_expires_at - clock.now()).total_seconds() <= 40
    lease = GpuLease.objects.get(released_at__isnull=True)
    assert (lease.purpose, lease.holder_kind, lease.holder_id, lease.attempt) == (
        "build",
        "build",
        build.pk,
        1,
    )
    assert free_share(slot) == 75


def test_the_same_message_twice_is_claimed_once(claim: Claim) -> None:
    assert claim_build(claim.build.pk, "gpu0") is None
    assert fresh(claim.build).attempt == 1
    assert claim_build(999, "gpu0") is None


def test_a_slot_without_room_leaves_it_queued_with_a_reason(queued: Callable[..., Build], slot: Gpu) -> None:
    build = queued()
    lease = take_lease(slot, GpuLease.Purpose.SERVE, slot.node, share=90)
    assert lease is not None
    assert claim_build(build.pk, "gpu0") is None
    build.refresh_from_db()
    assert (build.state, build.reason) == (states.QUEUED, "waiting_for_share")
    assert build.sentence
    GpuLease.objects.update(released_at=clock.now())
    claim = claim_build(build.pk, "gpu0")
    assert claim is not None
    assert (claim.build.reason, claim.build.sentence) == ("", "")


def test_renewal(claim: Claim) -> None:
    build = claim.build
    soon = clock.now() + timedelta(seconds=3)
    Build.objects.filter(pk=build.pk).update(lease_expires_at=soon)
    version = fresh(build).version
    renewal = renew_build(build, 1)
    assert (renewal.held, renewal.cancel_requested) == (True, False)
    assert fresh(build).lease_expires_at > soon
    assert fresh(build).version == version, "a renewal is no news for browsers"
    cancel_build("cli", fresh(build))
    assert renew_build(build, 1).cancel_requested
    assert not renew_build(build, 2).held
    Build.objects.filter(pk=build.pk).update(lease_expires_at=clock.now())
    assert not renew_build(build, 1).held, "somebody else may own it by now"


def test_progress_stages_and_child(claim: Claim) -> None:
    build = claim.build
    assert attempts.record_plan(build, 1, [{"name": "a", "title": "A"}, {"name": "b", "title": "B"}], "/l")
    assert attempts.record_stage(build, 1, "a", "running")
    assert attempts.record_child(build, 1, CHILD)
    assert attempts.record_progress(build, 1, 1.7, 5e6, 3.0)
    row = fresh(build)
    assert (row.progress, row.rate_bytes_per_second, row.eta_seconds) == (1.0, 5e6, 3.0)
    assert (row.child_pid, row.child_created, row.child_group) == (4242, 17.5, 4242)
    assert [stage["state"] for stage in row.stages] == ["running", "waiting"]
    assert attempts.record_stage(build, 1, "a", "done", note="kept")
    done = fresh(build).stages[0]
    assert done["note"] == "kept"
    assert done["started_at"] <= done["finished_at"]


def test_nothing_of_an_older_attempt_is_written(claim: Claim) -> None:
    """Fencing: the build was given to another worker, and the first one comes back from a long pause."""
    build = claim.build
    assert attempts.requeue_build(build, 1, MACHINE, "sweep")
    second = claim_build(build.pk, "gpu1")
    assert second is not None
    assert second.attempt == 2
    before = fresh(build)
    old = fresh(build)
    assert not attempts.record_plan(old, 1, [], "/old")
    assert not attempts.record_stage(old, 1, "a", "running")
    assert not attempts.record_child(old, 1, CHILD)
    assert not attempts.record_progress(old, 1, 0.5)
    assert not attempts.finish_build(old, 1, ARTEFACT, "gpu0")
    assert not attempts.fail_build(old, 1, SETTINGS, "gpu0")
    assert not attempts.end_cancelled(old, 1, "gpu0")
    assert not attempts.requeue_build(old, 1, MACHINE, "gpu0")
    assert not renew_build(old, 1).held
    assert not Engine.objects.exists(), "the engine's row went with the refused finish"
    after = fresh(build)
    assert (after.version, after.state) == (before.version, states.RUNNING)
    assert GpuLease.objects.get(released_at__isnull=True).attempt == 2


def test_success_writes_engine_and_build_together(
    claim: Claim, slot: Gpu, sent: list[Any], django_capture_on_commit_callbacks: Any
) -> None:
    with django_capture_on_commit_callbacks(execute=True):
        assert attempts.finish_build(claim.build, 1, ARTEFACT, "gpu0")
    row = fresh(claim.build)
    engine = Engine.objects.get()
    assert (row.state, row.engine, row.progress, row.child_pid) == (states.SUCCEEDED, engine, 1.0, None)
    assert (engine.fingerprint, engine.path, engine.size_bytes) == (row.fingerprint, "/engines/x", 123)
    assert (engine.state, engine.node) == (states.READY, slot.node)
    assert free_share(slot) == 100
    assert list(AuditEntry.objects.order_by("id").values_list("verb", flat=True))[-2:] == [
        "engine.published",
        "build.succeeded",
    ]


def test_an_engine_that_was_missing_is_ready_again(claim: Claim) -> None:
    engine = Engine.objects.create(
        state=states.MISSING,
        fingerprint=claim.build.fingerprint,
        checkpoint=claim.build.checkpoint,
        builder="llamacpp",
        quantization="F16",
        path="/old",
        size_bytes=1,
    )
    assert attempts.finish_build(claim.build, 1, ARTEFACT, "gpu0")
    engine.refresh_from_db()
    assert (engine.state, engine.path) == (states.READY, "/engines/x")


def test_a_deleted_engine_stays_as_history(claim: Claim) -> None:
    Engine.objects.create(
        state=states.DELETED,
        fingerprint=claim.build.fingerprint,
        checkpoint=claim.build.checkpoint,
        builder="llamacpp",
        quantization="F16",
        path="/old",
        size_bytes=1,
    )
    assert attempts.finish_build(claim.build, 1, ARTEFACT, "gpu0")
    assert set(Engine.objects.values_list("state", flat=True)) == {states.DELETED, states.READY}


def test_a_configuration_failure_is_final(claim: Claim, slot: Gpu) -> None:
    build = claim.build
    attempts.record_plan(build, 1, [{"name": "a", "title": "A"}, {"name": "b", "title": "B"}], "/l")
    attempts.record_stage(build, 1, "a", "running")
    assert attempts.fail_build(build, 1, SETTINGS, "gpu0")
    row = fresh(build)
    assert (row.state, row.reason, row.sentence, row.remedy) == (
        states.FAILED,
        "gguf_truncated",
        "It ends too early.",
        "Fetch it again.",
    )
    assert [stage["state"] for stage in row.stages] == ["failed", "skipped"]
    assert row.finished_at is not None
    assert free_share(slot) == 100


def test_the_machine_is_given_two_more_chances(queued: Callable[..., Build]) -> None:
    build = queued()
    for attempt in (1, 2, 3):
        assert claim_build(build.pk, "gpu0")
        build.refresh_from_db()
        assert attempts.fail_build(build, attempt, MACHINE, "sweep")
        assert build.state == (states.QUEUED if attempt < 3 else states.FAILED)
    assert (build.retries, build.attempt, build.reason) == (2, 3, "worker_lost")


def test_a_stop_uses_up_no_chance(claim: Claim) -> None:
    assert attempts.requeue_build(claim.build, 1, MACHINE, "gpu0", counted=False)
    row = fresh(claim.build)
    assert (row.state, row.retries, row.dispatched_at, row.lease_expires_at) == (states.QUEUED, 0, None, None)


def test_a_cancelled_build_is_not_queued_again(claim: Claim) -> None:
    cancel_build("cli", claim.build)
    assert attempts.fail_build(claim.build, 1, MACHINE, "sweep")
    assert fresh(claim.build).state == states.CANCELLED


def test_the_next_attempt_knows_the_child_of_the_last(claim: Claim) -> None:
    attempts.record_child(claim.build, 1, CHILD)
    attempts.requeue_build(claim.build, 1, MACHINE, "sweep")
    second = claim_build(claim.build.pk, "gpu0")
    assert second is not None
    assert second.previous == CHILD


def test_the_slot_wakes_the_next_build(
    claim: Claim,
    queued: Callable[..., Build],
    sent: list[Any],
    django_capture_on_commit_callbacks: Any,
) -> None:
    queued(2, "Q8_0")
    queued(3, "Q4_0")
    with django_capture_on_commit_callbacks(execute=True):
        attempts.fail_build(claim.build, 1, SETTINGS, "gpu0")
    assert sent == [(2, "node.n-test.gpu0")]


def test_paths_are_the_documented_ones(settings: Any) -> None:
    from apps.engines import paths

    settings.INFLIGHT_HOME = Path("/home-of-it")
    assert paths.build_folder(12, 3) == Path("/home-of-it/builds/12-3")
    assert paths.engine_folder("ab") == Path("/home-of-it/engines/ab")
