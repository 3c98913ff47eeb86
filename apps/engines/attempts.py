"""What a worker writes about a build. Every write carries the attempt number, so a worker that was replaced
meanwhile changes nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.db import transaction
from django.utils.translation import gettext as _

from apps.core import audit, clock, database_time
from apps.core.transitions import amend, announce, transition
from apps.engines import dispatch, states
from apps.engines.gpu_counts import gpus_of
from apps.engines.models import Build, Engine
from apps.engines.policy import LEASE_SECONDS, MAX_RETRIES
from apps.fleet.leases import release_leases_of, renew_lease, take_lease
from apps.fleet.models import Gpu, GpuLease
from apps.fleet.processes import ProcessIdentity


@dataclass(frozen=True, slots=True)
class Claim:
    """A build that this worker now owns. `previous` is the child that the attempt before may have left behind."""

    build: Build
    attempt: int
    previous: ProcessIdentity | None


@dataclass(frozen=True, slots=True)
class Renewal:
    """Answer to a renewal. Not `held`: another attempt owns the build, or it has ended."""

    held: bool
    cancel_requested: bool


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a build failed: stable reason, sentence and remedy. `retry`: the machine is to blame, try again."""

    reason: str
    sentence: str
    remedy: str = ""
    retry: bool = False
    diagnosis: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Artefact:
    """A published engine: its folder, size in bytes and manifest. `reused`: somebody else had published it first."""

    path: str
    size_bytes: int
    manifest: dict[str, Any]
    reused: bool = False


def claim_build(build_id: int, worker: str) -> Claim | None:
    """Take a queued build for this worker: lease on its slot, attempt + 1, running. None where it is not to be had.

    A build whose slot has no share left stays queued and says so; the sweep sends it again.
    """
    build = Build.objects.select_related("gpu", "node").filter(pk=build_id, state=states.QUEUED).first()
    if build is None or build.gpu is None:
        return None
    previous = child_of(build)
    attempt = build.attempt + 1
    with transaction.atomic():
        queued = Build.objects.filter(pk=build.pk, state=states.QUEUED, attempt=build.attempt)
        if not queued.update(attempt=attempt):
            return None
        if not _take_slots(build, build.gpu, attempt):
            release_leases_of(build, attempt)
            _say_no_room(build, build.gpu)
            return None
        transition(
            build,
            states.RUNNING,
            actor=worker,
            attempt=attempt,
            lease_expires_at=database_time.now() + timedelta(seconds=LEASE_SECONDS),
            started_at=build.started_at or clock.now(),
            stages=[],
            progress=None,
            rate_bytes_per_second=None,
            eta_seconds=None,
            diagnosis=None,
        )
    return Claim(build, attempt, previous)


def _take_slots(build: Build, gpu: Gpu, attempt: int) -> bool:
    """Leases on the build's slot and on as many further GPUs of its node as it can use; False where it lacks some."""

    def take(slot: Gpu) -> bool:
        lease = take_lease(slot, GpuLease.Purpose.BUILD, build, attempt=attempt, seconds=LEASE_SECONDS)
        return lease is not None

    if not take(gpu):
        return False
    needed, useful = gpus_of(build, gpu)
    others = Gpu.objects.filter(
        node=gpu.node,
        device=Gpu.Device.GPU,
        product=gpu.product,
        condition=Gpu.Condition.OK,
        mig_parent__isnull=True,
    ).exclude(pk=gpu.pk)
    taken = 1
    # Those that NVLink joins to it first, then those on its NUMA node.
    for other in sorted(
        others,
        key=lambda row: (
            row.nvlink_group != gpu.nvlink_group,
            row.numa_node != gpu.numa_node,
            row.index,
        ),
    ):
        if taken >= useful:
            break
        taken += take(other)
    return taken >= needed


def child_of(build: Build) -> ProcessIdentity | None:
    """The child process that the row names, or None."""
    if build.child_pid is None or build.child_created is None or build.child_group is None:
        return None
    return ProcessIdentity(build.child_pid, build.child_created, build.child_group)


def renew_build(build: Build, attempt: int) -> Renewal:
    """Renew the lease of the row and of the slot by 40 s. A lease that has run out is not renewed."""
    now = database_time.now()
    with transaction.atomic():
        held = Build.objects.filter(
            pk=build.pk, state=states.RUNNING, attempt=attempt, lease_expires_at__gt=now
        ).update(lease_expires_at=now + timedelta(seconds=LEASE_SECONDS))
        if held:
            renew_lease(build, attempt, LEASE_SECONDS)
    return Renewal(bool(held), cancel_requested(build))


def cancel_requested(build: Build) -> bool:
    """Whether somebody pressed cancel; one cheap read, polled twice a second."""
    return Build.objects.filter(pk=build.pk, cancel_requested_at__isnull=False).exists()


def record_child(build: Build, attempt: int, child: ProcessIdentity | None) -> bool:
    """Write the child's identity on the row, before it may run (None: it is gone). False where fenced off."""
    return amend(
        build,
        attempt=attempt,
        states=[states.RUNNING],
        child_pid=child.pid if child else None,
        child_created=child.created if child else None,
        child_group=child.group if child else None,
    )


def record_plan(build: Build, attempt: int, stages: Sequence[Mapping[str, Any]], log_path: str) -> bool:
    """Write the stages that the build will go through, and where its log is. False where fenced off."""
    return amend(
        build,
        attempt=attempt,
        states=[states.RUNNING],
        stages=[{"state": "waiting", "started_at": None, "finished_at": None, **stage} for stage in stages],
        log_path=log_path,
        progress=0.0,
    )


def record_stage(build: Build, attempt: int, name: str, state: str, **more: Any) -> bool:
    """Write that a stage is now running, done, failed or skipped; `more` are further keys of it."""
    now = clock.now().isoformat()
    stages = [
        {**stage, "state": state, **_stamp(stage, state, now), **more} if stage["name"] == name else stage
        for stage in build.stages
    ]
    return amend(build, attempt=attempt, states=[states.RUNNING], stages=stages)


def _stamp(stage: Mapping[str, Any], state: str, now: str) -> dict[str, str]:
    """A stage's times: its beginning is written once, its end only where it began."""
    if state == "running":
        return {} if stage.get("state") == "running" else {"started_at": now}
    return {"finished_at": now} if stage.get("started_at") else {}


def record_progress(
    build: Build, attempt: int, progress: float | None, rate: float | None = None, eta: float | None = None
) -> bool:
    """Write progress (0 to 1), rate (bytes/s) and ETA (s); the caller keeps it to two a second."""
    return amend(
        build,
        attempt=attempt,
        states=[states.RUNNING],
        progress=None if progress is None else min(1.0, max(0.0, progress)),
        rate_bytes_per_second=rate,
        eta_seconds=eta,
    )


def finish_build(build: Build, attempt: int, artefact: Artefact, worker: str) -> bool:
    """Write the engine's row and the build's success in one transaction. Fenced off: False, nothing is written."""
    with transaction.atomic():
        engine = _engine_row(build, artefact, worker)
        done = transition(
            build,
            states.SUCCEEDED,
            actor=worker,
            sources=[states.RUNNING],
            attempt=attempt,
            engine=engine,
            reused=artefact.reused,
            progress=1.0,
            rate_bytes_per_second=None,
            eta_seconds=None,
            finished_at=clock.now(),
            **_NO_CHILD,
        )
        if not done:
            transaction.set_rollback(True)
            return False
        release_leases_of(build, attempt)
        dispatch.next_on_commit(build.gpu)
    return True


def fail_build(build: Build, attempt: int, failure: Failure, worker: str) -> bool:
    """Write a failure, or queue the build again where the machine is to blame and tries are left."""
    if failure.retry and build.retries < MAX_RETRIES:
        return requeue_build(build, attempt, failure, worker)
    with transaction.atomic():
        done = transition(
            build,
            states.FAILED,
            actor=worker,
            sources=[states.RUNNING],
            attempt=attempt,
            reason=failure.reason,
            sentence=failure.sentence,
            remedy=failure.remedy,
            diagnosis=failure.diagnosis,
            stages=_closed(build.stages, "failed"),
            rate_bytes_per_second=None,
            eta_seconds=None,
            finished_at=clock.now(),
            **_NO_CHILD,
        )
        if done:
            release_leases_of(build, attempt)
            dispatch.next_on_commit(build.gpu)
    return done


def requeue_build(build: Build, attempt: int, failure: Failure, worker: str, counted: bool = True) -> bool:
    """Queue a running build again; `counted` uses up one of its two retries. A cancelled one ends instead."""
    if cancel_requested(build):
        return end_cancelled(build, attempt, worker)
    with transaction.atomic():
        done = transition(
            build,
            states.QUEUED,
            actor=worker,
            sources=[states.RUNNING],
            attempt=attempt,
            reason=failure.reason,
            sentence=failure.sentence,
            remedy=failure.remedy,
            verb="build.requeued",
            retries=build.retries + (1 if counted else 0),
            lease_expires_at=None,
            dispatched_at=None,
            stages=_closed(build.stages, "failed"),
            progress=None,
            rate_bytes_per_second=None,
            eta_seconds=None,
        )
        if done:
            release_leases_of(build, attempt)
            dispatch.next_on_commit(build.gpu)
    return done


def end_cancelled(build: Build, attempt: int, worker: str) -> bool:
    """Write that a running build was cancelled and its processes are gone."""
    with transaction.atomic():
        done = transition(
            build,
            states.CANCELLED,
            actor=worker,
            sources=[states.RUNNING],
            attempt=attempt,
            reason="cancelled",
            sentence=_("Cancelled while it ran; the log and finished stages are kept."),
            stages=_closed(build.stages, "skipped"),
            progress=None,
            rate_bytes_per_second=None,
            eta_seconds=None,
            finished_at=clock.now(),
            **_NO_CHILD,
        )
        if done:
            release_leases_of(build, attempt)
            dispatch.next_on_commit(build.gpu)
    return done


_NO_CHILD: dict[str, Any] = {
    "child_pid": None,
    "child_created": None,
    "child_group": None,
    "lease_expires_at": None,
}


def _closed(stages: Sequence[Mapping[str, Any]], state: str) -> list[dict[str, Any]]:
    """Stages of a build that ends early: the running one ends as `state`, those that wait are skipped."""
    now = clock.now().isoformat()
    ends = {"running": {"state": state, "finished_at": now}, "waiting": {"state": "skipped"}}
    return [{**stage, **ends.get(str(stage["state"]), {})} for stage in stages]


def _engine_row(build: Build, artefact: Artefact, worker: str) -> Engine:
    columns: dict[str, Any] = {
        "path": artefact.path,
        "size_bytes": artefact.size_bytes,
        "manifest": artefact.manifest,
        "node": build.node,
    }
    found = Engine.objects.exclude(state=states.DELETED).filter(fingerprint=build.fingerprint).first()
    if found is not None:
        if found.state == states.MISSING:
            transition(found, states.READY, actor=worker, **columns)
        return found
    engine = Engine.objects.create(
        state=states.ENGINE.initial,
        fingerprint=build.fingerprint,
        checkpoint=build.checkpoint,
        builder=str(build.spec["builder"]),
        quantization=str(build.spec["quantization"]),
        **columns,
    )
    audit.record(worker, "engine.published", engine, to_state=engine.state)
    announce(engine)
    return engine


def _say_no_room(build: Build, gpu: Gpu) -> None:
    amend(
        build,
        states=[states.QUEUED],
        reason="waiting_for_share",
        sentence=_("Waits until %(slot)s has room; others hold it.") % {"slot": gpu},
        remedy=_("Stop a deployment on that node to build sooner."),
    )
