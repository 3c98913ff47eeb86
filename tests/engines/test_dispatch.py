"""Messages are hints: lost, late or doubled, the row still says what to do."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from kombu.exceptions import OperationalError

from apps.core import clock
from apps.engines import dispatch, states
from apps.engines.models import Build, BuildProfile
from apps.engines.policy import MESSAGE_LIFE_SECONDS
from apps.engines.services import start_build
from apps.fleet.models import Gpu, Node
from apps.fleet.services import register_node, set_cordoned
from tests import objects
from tests.fleet.conftest import gpu_facts, host
from tests.support.celery import celery_broker

__all__ = ["celery_broker"]
pytestmark = pytest.mark.django_db


def test_without_a_worker_the_person_is_told(
    profile: BuildProfile, sent: list[Any], django_capture_on_commit_callbacks: Any
) -> None:
    with django_capture_on_commit_callbacks(execute=True):
        build = start_build("cli", profile)
    build.refresh_from_db()
    assert (build.state, build.reason) == (states.QUEUED, "no_worker")
    assert build.remedy
    version = build.version
    assert dispatch.resend() == 0
    build.refresh_from_db()
    assert build.version == version, "said once, not at every sweep"
    register_node("ctl", "n-test", facts=host())
    assert dispatch.resend() == 1
    build.refresh_from_db()
    assert (build.reason, build.sentence) == ("", "")


def test_a_broker_that_is_gone_leaves_the_build_queued(
    queued: Callable[..., Build], monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(*args: object) -> None:
        raise OperationalError("Error 111 connecting")

    build = queued()
    monkeypatch.setattr(dispatch, "_publish", gone)
    assert not dispatch.send(build)
    assert (build.state, build.reason) == (states.QUEUED, "queue_unreachable")
    assert "Redis" in build.sentence


def test_a_queued_build_is_sent_again_after_ten_seconds(
    queued: Callable[..., Build], sent: list[Any]
) -> None:
    build = queued(dispatched_at=clock.now() - timedelta(seconds=5))
    assert dispatch.resend() == 0
    Build.objects.filter(pk=build.pk).update(dispatched_at=clock.now() - timedelta(seconds=11))
    assert dispatch.resend() == 1
    assert dispatch.resend() == 0
    assert sent == [(1, "node.n-test.gpu0")]


def test_why_an_earlier_attempt_ended_stays_until_the_next_begins(
    queued: Callable[..., Build], sent: list[Any]
) -> None:
    build = queued(reason="worker_lost", sentence="It fell silent.")
    assert dispatch.send(build)
    assert (build.reason, build.sentence) == ("worker_lost", "It fell silent.")


def test_a_build_that_no_worker_takes_says_so(queued: Callable[..., Build], sent: list[Any]) -> None:
    build = queued()
    assert dispatch.send(build)
    assert build.reason == ""
    long_ago = clock.now() - timedelta(seconds=31)
    Build.objects.filter(pk=build.pk).update(dispatched_at=long_ago, state_since=long_ago)
    assert dispatch.resend() == 1
    build.refresh_from_db()
    assert (build.state, build.reason) == (states.QUEUED, "not_taken")
    assert build.remedy


def test_behind_a_running_build_nothing_is_piled_up(queued: Callable[..., Build], sent: list[Any]) -> None:
    queued(1, state=states.RUNNING, lease_expires_at=clock.now() + timedelta(seconds=40))
    second = queued(2, "Q8_0")
    assert not dispatch.send(second)
    assert (second.reason, second.sentence) == ("waiting_for_slot", "Waits for build #1.")
    assert sent == []
    Build.objects.filter(number=1).update(lease_expires_at=clock.now())
    assert dispatch.send(second)


def test_builds_spread_over_slots_and_leave_cordoned_nodes(
    profile: BuildProfile, sent: list[Any], node: Node
) -> None:
    other = register_node("ctl", "n-gpus", facts=host(gpu_facts(0), gpu_facts(1)))
    for number, quantization in enumerate(["F16", "Q8_0", "Q4_0"], start=1):
        dispatch.send(
            objects.build(objects.build_profile(f"p{number}", quantization=quantization), number=number)
        )
    assert sorted(queue for _number, queue in sent) == [
        "node.n-gpus.gpu0",
        "node.n-gpus.gpu1",
        "node.n-test.gpu0",
    ]
    set_cordoned("cli", other, True)
    Build.objects.update(dispatched_at=None)
    sent.clear()
    assert dispatch.resend() == 3
    assert {queue for _number, queue in sent} == {"node.n-test.gpu0"}


def test_waking_a_worker_never_fails_the_caller(
    profile: BuildProfile, monkeypatch: pytest.MonkeyPatch, django_capture_on_commit_callbacks: Any
) -> None:
    def broken(build: Build) -> bool:
        raise RuntimeError("a fault of ours")

    monkeypatch.setattr(dispatch, "send", broken)
    with django_capture_on_commit_callbacks(execute=True):
        build = start_build("cli", profile)
    assert Build.objects.get(pk=build.pk).state == states.QUEUED


@pytest.mark.integration
def test_the_message_on_a_real_broker(queued: Callable[..., Build], slot: Gpu, celery_broker: Any) -> None:
    build = queued()
    assert dispatch.send(build)
    with celery_broker.client(0) as client:
        [raw] = client.lrange("node.n-test.gpu0", 0, -1)
    message = json.loads(raw)
    assert message["headers"]["task"] == "workers.run_build"
    assert message["content-type"] == "application/json"
    assert message["headers"]["expires"] is not None
    assert MESSAGE_LIFE_SECONDS > 2 * dispatch.RESEND_AFTER_SECONDS


@pytest.mark.integration
@pytest.mark.faults
def test_redis_goes_and_comes_back(queued: Callable[..., Build], celery_broker: Any) -> None:
    build = queued()
    assert dispatch.send(build)
    celery_broker.stop()
    Build.objects.update(dispatched_at=None)
    began = time.monotonic()
    assert dispatch.resend() == 0
    assert time.monotonic() - began < 3, "a person waits for this"
    build.refresh_from_db()
    assert (build.state, build.reason) == (states.QUEUED, "queue_unreachable")
    celery_broker.start()
    Build.objects.update(dispatched_at=None)
    assert dispatch.resend() == 1
    build.refresh_from_db()
    assert build.reason == ""
