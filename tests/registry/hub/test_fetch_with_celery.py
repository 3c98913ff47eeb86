"""A real load worker: killed in the middle of a file, the next one goes on from the byte where it was."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as django_settings

from apps.core import clock
from apps.fleet.processes import mark_of, ours
from apps.registry import states
from apps.registry.models import Checkpoint
from apps.registry.services import cancel_fetch, register_checkpoint, retry_fetch
from apps.registry.sweep import sweep
from tests.registry.hub.conftest import safetensors_repo
from tests.registry.hub.double import Hub
from tests.support.celery import Worker, celery_broker, start_worker, wait_until
from workers import fetch_sweep

__all__ = ["celery_broker", "start_worker"]
pytestmark = [pytest.mark.integration, pytest.mark.faults]
NAME = "model-00001-of-00002.safetensors"
MEGABYTE = 1024 * 1024
ALLOW = {"INFLIGHT_OUTBOUND_ALLOW": "127.0.0.1,localhost"}


def fresh() -> Checkpoint:
    return Checkpoint.objects.get()


def wait_state(state: str, seconds: float = 60.0) -> Checkpoint:
    found: Checkpoint = wait_until(
        lambda: fresh() if fresh().state == state else None, seconds, f"{state}: {fresh().sentence}"
    )
    return found


def held() -> Checkpoint:
    """The checkpoint once two megabytes lie in the file that the hub holds back, and the row says so."""

    def look() -> bool:
        parts = list((Path(django_settings.INFLIGHT_HOME) / "checkpoints").glob(f".*/{NAME}.part"))
        return (
            bool(parts) and parts[0].stat().st_size >= 2 * MEGABYTE and (fresh().bytes_done or 0) > MEGABYTE
        )

    wait_until(look, 60, "two megabytes here")
    return fresh()


def mark(row: Checkpoint) -> str:
    return mark_of(django_settings.INFLIGHT_NODE_ID, row.kind, row.pk, row.attempt)


def sent_again() -> None:
    """As the sweep does; the first message may have grown too old while the worker started."""
    Checkpoint.objects.update(dispatched_at=None)
    sweep()


def test_kill_resume_cancel_and_go_on(
    start_worker: Callable[..., Worker], mirror: Hub, settings: Any, celery_broker: Any
) -> None:
    settings.INFLIGHT_REDIS_URL = f"unix://{celery_broker.socket}"
    repo = mirror.repos["acme/tiny"] = safetensors_repo(8)
    mirror.hold_after = {NAME: 2 * MEGABYTE + 77}
    register_checkpoint("test", "tiny", {"huggingface": {"repo": "acme/tiny"}})
    worker = start_worker("load", **ALLOW)
    sent_again()
    running = held()
    assert (running.state, running.attempt, running.commit) == (states.DOWNLOADING, 1, repo.revisions["main"])
    assert running.bytes_total == sum(len(repo.files[name]) for name in repo.files) - 17
    assert len(ours(mark(running))) == 1

    worker.kill()
    wait_until(lambda: not ours(mark(running)), 5, "the child gone with its worker")
    assert fetch_sweep.reap() == 0, "the lease has not run out yet"
    Checkpoint.objects.update(lease_expires_at=clock.now() - timedelta(seconds=1))
    assert fetch_sweep.reap() == 1
    waiting = fresh()
    assert (waiting.state, waiting.reason) == (states.REGISTERED, "worker_lost")
    assert not list((Path(django_settings.INFLIGHT_HOME) / "checkpoints").glob("acme--*")), (
        "hidden until whole"
    )

    # The next worker goes on, and is cancelled by a person in the middle of the same file.
    mirror.hold_after = {NAME: 4 * MEGABYTE + 77}
    start_worker("load", **ALLOW)
    sent_again()
    wait_until(lambda: len(mirror.ranges(NAME)) >= 2, 60, "a second request")
    assert mirror.ranges(NAME)[1] == f"bytes={2 * MEGABYTE}-"
    wait_until(lambda: (fresh().bytes_done or 0) > 4 * MEGABYTE, 60, "four megabytes")
    cancel_fetch("test", fresh())
    cancelled = wait_state(states.CANCELLED, 5.0)
    assert ours(mark(cancelled)) == []

    # Tried again, it ends well: the same bytes, each fetched once.
    mirror.hold_after.clear()
    mirror.release.set()
    retry_fetch("test", fresh())
    sent_again()
    done = wait_state(states.READY)
    assert done.attempt == 3
    assert int(mirror.ranges(NAME)[2].removeprefix("bytes=").removesuffix("-")) >= 4 * MEGABYTE
    for name in ("config.json", NAME):
        assert (Path(done.folder) / name).read_bytes() == repo.files[name]
    assert not list((Path(django_settings.INFLIGHT_HOME) / "checkpoints").glob(".*.partial"))
    assert os.listdir(Path(done.folder)).count(".inflight.lock") == 0
