"""The control worker beside its tasks: joined, beating, ticking, whatever Redis and database do."""

from __future__ import annotations

import json
import logging
import mmap
import os
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from django.conf import settings
from django.db import OperationalError

from apps.fleet import beats, states
from apps.fleet import sweep as fleet_sweep
from apps.fleet.models import Node
from apps.fleet.processes import identify
from controlplane.celery import app
from tests.support.celery import Worker, wait_until
from workers import node, reconcile, stopping, tasks

StartWorker = Callable[..., Worker]


class Ticker(node.Loop):
    """A loop that counts and fails when told to."""

    def __init__(self) -> None:
        self.count, self.fails = 0, False
        super().__init__("test loop", 0.01, self.tick, threading.Event())

    def tick(self) -> None:
        self.count += 1
        if self.fails:
            raise ConnectionError("Redis is gone")

    def end(self) -> None:
        self._ended.set()
        self.join(5)


def test_a_loop_outlives_its_errors_and_logs_them_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="workers.node")
    loop = Ticker()
    loop.fails = True
    loop.start()
    wait_until(lambda: loop.count > 20, 5, "many failures")
    loop.fails = False
    before = loop.count
    wait_until(lambda: loop.count > before + 5, 5, "it goes on")
    loop.end()
    assert not loop.is_alive()
    assert [record.message.split(",")[0] for record in caplog.records] == [
        "test loop fails",
        "test loop works again.",
    ]


def test_the_heart_beats_while_the_database_is_late(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    late = True

    def register(actor: str, node_id: str) -> None:
        if late:
            raise OperationalError("database is locked")
        done.append("registered")

    monkeypatch.setattr(node.fleet, "beat", lambda node_id: done.append("beat"))
    monkeypatch.setattr(node.fleet, "register_node", register)
    monkeypatch.setattr(node.fleet, "saw_node", lambda node_id: done.append("row") or False)
    monkeypatch.setattr(node.leads, "control_protocol", lambda: None)
    clock = SimpleNamespace(now=0.0, monotonic=lambda: clock.now)
    monkeypatch.setattr(node, "clock", clock)
    heart = node.Heart("n-x")
    with pytest.raises(OperationalError):
        heart.beat()
    late = False
    heart.beat()
    clock.now = 3.0
    heart.beat()
    assert done == ["beat", "beat", "registered", "beat"]
    clock.now = 16.0
    heart.beat()
    assert done[-1] == "row"
    heart.beat()
    assert done[-1] == "registered", "a row that somebody removed is made again"


def test_another_protocol_is_said_once_and_fails_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    heart = node.Heart("n-x")
    for spoken in (None, node.PROTOCOL_VERSION, 99, 99, node.PROTOCOL_VERSION, 99):
        monkeypatch.setattr(node.leads, "control_protocol", lambda spoken=spoken: spoken)
        heart._compare_protocols()
    assert [record.message.count("protocol 99") for record in caplog.records] == [1, 1]


def test_a_worker_of_another_protocol_never_leads(monkeypatch: pytest.MonkeyPatch) -> None:
    made = reconcile.Reconciler(SimpleNamespace(jobs=SimpleNamespace()), lambda: None)  # type: ignore[arg-type]
    monkeypatch.setattr(
        reconcile.leads, "Leadership", lambda duty, node_id: SimpleNamespace(mine=lambda: True)
    )
    row = SimpleNamespace(node_id="n-x")
    monkeypatch.setattr(reconcile.leads, "control_protocol", lambda: 99)
    assert not made._leads(row)  # type: ignore[arg-type]
    monkeypatch.setattr(reconcile.leads, "control_protocol", lambda: node.PROTOCOL_VERSION)
    assert made._leads(row)  # type: ignore[arg-type]


@pytest.mark.parametrize(("queue", "started"), [("ctl", 5), ("gpu0", 0)])
def test_only_the_control_worker_beats(monkeypatch: pytest.MonkeyPatch, queue: str, started: int) -> None:
    loops: list[str] = []
    made = SimpleNamespace(start=lambda: None)
    monkeypatch.setattr(node, "Loop", lambda name, *rest: loops.append(name) or made)
    name = f"node.{settings.INFLIGHT_NODE_ID}.{queue}"
    node.begin(SimpleNamespace(task_consumer=SimpleNamespace(queues=[SimpleNamespace(name=name)])))
    assert len(loops) == started
    node.begin(SimpleNamespace(task_consumer=None))
    assert len(loops) == started


def test_the_pool_process_learns_that_its_worker_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stopping, "_page", bytearray(1))
    assert not stopping.stopping()
    stopping.announce_stop()
    assert stopping.stopping()
    page = mmap.mmap(-1, 1)
    pid = os.fork()
    if pid == 0:
        page[0] = 1
        os._exit(0)
    os.waitpid(pid, 0)
    assert page[0] == 1, "memory that a fork shares"


def test_tasks_have_their_names_and_are_acknowledged_early() -> None:
    """Late ack and a task longer than the visibility timeout run it twice; prefetch holds it behind another."""
    for name in ("workers.run_build", "workers.sweep", "workers.reconcile"):
        assert app.tasks[name].acks_late is False
        assert app.tasks[name].ignore_result
    assert app.conf.worker_prefetch_multiplier == 1
    assert app.conf.worker_disable_prefetch is True
    assert app.conf.task_acks_late is False
    assert app.conf.task_create_missing_queues is False
    assert app.conf.accept_content == ["json"]
    assert app.tasks["workers.run_build"].soft_time_limit < app.tasks["workers.run_build"].time_limit
    entry = app.conf.beat_schedule["sweep"]
    assert entry["options"]["expires"] < entry["schedule"].total_seconds()


def test_the_tick_is_not_logged_each_second(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    strategy = logging.getLogger("celery.worker.strategy")
    strategy.info("Task %(name)s[%(id)s] received", {"name": "workers.reconcile", "id": "1"})
    strategy.info("Task %(name)s[%(id)s] received", {"name": "workers.run_build", "id": "2"})
    logging.getLogger("celery.app.trace").error("Task workers.sweep[3] raised")
    assert [record.getMessage() for record in caplog.records] == [
        "Task workers.run_build[2] received",
        "Task workers.sweep[3] raised",
    ]


@pytest.mark.django_db
def test_a_sweep_that_fails_keeps_the_others_going(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    done: list[str] = []

    def broken() -> None:
        raise RuntimeError("a fault")

    monkeypatch.setattr(tasks.registry_sweep, "sweep", broken)
    monkeypatch.setattr(tasks.fleet_sweep, "sweep", lambda: done.append("fleet"))
    monkeypatch.setattr(tasks.engines_sweep, "sweep", lambda: done.append("engines"))
    monkeypatch.setattr(tasks.serving_sweep, "sweep", lambda: done.append("serving"))
    monkeypatch.setattr(tasks.fleet, "echo", lambda node_id: done.append("echo"))
    tasks.sweep()
    assert done == ["echo", "fleet", "engines", "serving"]
    assert "The sweep of registry failed" in caplog.text


@pytest.mark.django_db
def test_reconcile_echoes_first_and_survives_a_redis_that_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []

    def gone(node_id: str) -> None:
        done.append("echo")
        raise tasks.RedisError("gone")

    monkeypatch.setattr(tasks.fleet, "echo", gone)
    monkeypatch.setattr(tasks, "reconcile_node", lambda: done.append("tick"))
    tasks.reconcile()
    assert done == ["echo", "tick"]


@pytest.mark.integration
def test_the_tick_on_a_real_broker(celery_broker: Any) -> None:
    node.tick()
    with celery_broker.client(0) as client:
        [raw] = client.lrange(node.control_queue(), 0, -1)
    message = json.loads(raw)
    assert message["headers"]["task"] == "workers.reconcile"
    assert message["headers"]["expires"] is not None


def ages() -> beats.Ages:
    return beats.ages([settings.INFLIGHT_NODE_ID])[settings.INFLIGHT_NODE_ID]


def consumes() -> bool:
    found = ages()
    return found.beat is not None and found.echo is not None and found.beat < 5 and found.echo < 5


@pytest.mark.integration
@pytest.mark.faults
def test_a_real_control_worker_joins_and_beats(start_worker: StartWorker) -> None:
    start_worker("ctl")
    wait_until(consumes, 30, "beat and echo")
    row = wait_until(lambda: Node.objects.filter(state=states.READY).first(), 30, "the node's row")
    assert row.node_id == settings.INFLIGHT_NODE_ID
    assert row.gpus.count() >= 1
    assert fleet_sweep.sweep() == []


@pytest.mark.integration
@pytest.mark.faults
def test_redis_goes_and_the_control_worker_goes_on(start_worker: StartWorker, redis_server: Any) -> None:
    worker = start_worker("ctl")
    wait_until(consumes, 30, "beat and echo")
    redis_server.stop()
    assert fleet_sweep.sweep() == [], "nobody is judged without Redis"
    redis_server.start()
    wait_until(consumes, 60, "beat and echo after Redis came back")
    assert identify(worker.pid) is not None
    worker.kill()
    with redis_server.client(3) as client:
        for what in ("beat", "echo"):
            client.pexpire(f"{what}:{settings.INFLIGHT_NODE_ID}", int((beats.BEAT_KEPT_SECONDS - 20) * 1000))
    assert [verdict.target for verdict in fleet_sweep.sweep()] == [states.SUSPECT]
    assert [verdict.target for verdict in fleet_sweep.sweep()] == [states.LOST]
