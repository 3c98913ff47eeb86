"""Every way in which a server or its worker fails, and what the row then says."""

from __future__ import annotations

import errno
import os
import signal
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from apps.core import clock
from apps.core.transitions import transition
from apps.fleet.models import GpuLease
from apps.serving import selectors, services, states
from apps.serving.domain import repository
from apps.serving.models import CrashReport, Deployment, Instance
from tests.runtimes.rows import identity_of, only_instance
from tests.support.standin import StandIn, Ticker, with_file
from workers import instance_looks, instance_steps
from workers.runtimes import memory_files, processes
from workers.runtimes.triton import TritonRuntime

# How servers fail does not depend on the database; test_reconcile and test_rollouts write to both.
pytestmark = pytest.mark.one_database


def test_a_worker_that_comes_back_adopts_and_starts_no_second_server(
    standin: StandIn, ticker: Ticker, demo: Deployment
) -> None:
    ticker.until_state(demo, states.READY)
    before = only_instance()
    ticker.restart()
    for _tick in range(3):
        ticker.tick()
    after = only_instance()
    assert (after.pk, after.pid, after.state, after.version) == (
        before.pk,
        before.pid,
        before.state,
        before.version,
    )
    assert standin.starts() == 1


def test_a_worker_that_dies_while_the_model_loads_goes_on_from_what_the_server_says(
    standin: StandIn, ticker: Ticker, demo: Deployment
) -> None:
    standin.behave(load="hang")
    ticker.until(lambda: Instance.objects.filter(state=states.LOADING).exists())
    ticker.tick()
    ticker.restart()
    ticker.tick()
    standin.behave(load="ok")
    ticker.until_state(demo, states.READY)
    assert standin.starts() == 1


def test_a_crash_is_explained_and_the_server_is_started_again(
    standin: StandIn, ticker: Ticker, demo: Deployment
) -> None:
    ticker.until_state(demo, states.READY)
    first = only_instance()
    os.kill(first.pid or 0, signal.SIGKILL)
    ticker.until(lambda: Instance.objects.filter(state=states.SERVING).exclude(pk=first.pk).exists())
    first.refresh_from_db()
    assert (first.state, first.reason, first.exit_code) == (states.FAILED, "crashed", -9)
    assert "signal 9" in first.sentence
    assert "Started HTTPService" in first.diagnosis["log"] or "successfully loaded" in first.diagnosis["log"]
    second = Instance.objects.get(state=states.SERVING)
    assert (second.restarts, second.replica) == (1, 0)
    assert memory_files.regions(f"{first.uid}_") == []
    assert not GpuLease.objects.filter(holder_id=first.pk, released_at=None).exists()


@pytest.mark.parametrize("in_flight", [0, 2])
def test_a_model_that_generates_nothing_is_replaced(
    standin: StandIn,
    ticker: Ticker,
    demo: Deployment,
    monkeypatch: pytest.MonkeyPatch,
    in_flight: int,
) -> None:
    monkeypatch.setattr(instance_steps, "STILL_SECONDS", 0.1)
    monkeypatch.setattr(instance_steps, "IDLE_PROBE_SECONDS", 0.2)
    monkeypatch.setattr(instance_steps, "ALIVE_SECONDS", 0.3)
    ticker.until_state(demo, states.READY)
    first = only_instance()
    # Answered probes prove it: nothing happens however long it is idle.
    ticker.until(lambda: len(standin.probes()) >= 4)
    assert only_instance().pk == first.pk
    standin.behave(probe="hang", in_flight=in_flight)
    ticker.until(lambda: Instance.objects.filter(pk=first.pk, reason="hung").exists())
    standin.behave(probe="ok", in_flight=0)
    ticker.until_state(demo, states.READY)
    assert CrashReport.objects.get().was == states.SERVING


def test_a_server_that_was_stopped_by_a_signal_is_replaced(
    standin: StandIn, ticker: Ticker, demo: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(instance_steps, "STOPPED_SECONDS", 0.2)
    ticker.until_state(demo, states.READY)
    first = only_instance()
    os.kill(first.pid or 0, signal.SIGSTOP)
    ticker.until(lambda: Instance.objects.filter(pk=first.pk, reason="stopped").exists())
    ticker.until(lambda: Instance.objects.filter(state=states.SERVING).exclude(pk=first.pk).exists())
    assert processes.group_members(identity_of(first)) == []


@pytest.mark.parametrize("hours", [3, -3])
def test_a_jump_of_the_clock_cuts_no_answer_and_holds_no_server_up(
    standin: StandIn, ticker: Ticker, demo: Deployment, monkeypatch: pytest.MonkeyPatch, hours: int
) -> None:
    ticker.until_state(demo, states.READY)
    row = only_instance()
    standin.behave(in_flight=1)
    services.stop("test", demo)
    ticker.until(lambda: Instance.objects.filter(pk=row.pk, state=states.DRAINING).exists())
    real = clock.now
    monkeypatch.setattr(clock, "now", lambda: real() + timedelta(hours=hours))
    for _tick in range(3):
        ticker.tick()
    row.refresh_from_db()
    assert (row.state, row.signalled_at) == (states.DRAINING, None)
    standin.behave(in_flight=0)
    ticker.until(lambda: Instance.objects.filter(pk=row.pk, state=states.GONE).exists())


@pytest.mark.parametrize("hours", [3, -3])
def test_a_jump_of_the_clock_ends_nothing(
    standin: StandIn, ticker: Ticker, demo: Deployment, monkeypatch: pytest.MonkeyPatch, hours: int
) -> None:
    ticker.until_state(demo, states.READY)
    first = only_instance()
    real = clock.now
    monkeypatch.setattr(clock, "now", lambda: real() + timedelta(hours=hours))
    ticker.restart()
    for _tick in range(3):
        ticker.tick()
    assert (only_instance().pk, only_instance().pid, only_instance().state) == (
        first.pk,
        first.pid,
        states.SERVING,
    )


def test_a_crash_loop_is_shown_and_every_crash_is_kept(
    standin: StandIn, ticker: Ticker, demo: Deployment
) -> None:
    def crash() -> bool:
        row = Instance.objects.filter(state=states.SERVING).first()
        if row is not None and row.pid and CrashReport.objects.count() < 4:
            os.kill(row.pid, signal.SIGKILL)
        demo.refresh_from_db()
        return demo.reason == "crash_loop" and CrashReport.objects.count() == 4

    ticker.until(crash, 40)
    assert "times in a row" in demo.sentence
    assert demo.remedy
    newest = CrashReport.objects.first()
    assert newest is not None
    assert (newest.reason, newest.exit_code, newest.deployment_name) == ("crashed", -9, "demo")
    assert any("successfully loaded" in each.log for each in CrashReport.objects.all())
    ticker.until_state(demo, states.READY)
    # It says so until it has been healthy for a while, or until somebody deploys.
    services.deploy("test", demo)
    ticker.tick()
    demo.refresh_from_db()
    assert demo.reason == ""
    services.stop("test", demo)
    ticker.until_state(demo, states.STOPPED)
    services.delete_deployment("test", demo)
    assert CrashReport.objects.count() == 4


@pytest.mark.parametrize(
    ("how", "reason", "said"),
    [
        ({"load": "refuse"}, "load_failed", "out of tune"),
        ({"load": "unreadable"}, "load_failed", "failed to read text proto"),
        ({"probe": "refuse"}, "probe_refused", "no tokens here"),
        ({"exit_at_start": 1}, "start_failed", "libnothing.so"),
        ({"version": "2.51.0"}, "version_not_allowed", "2.51.0"),
        ({"busy_port_starts": 9}, "ports_taken", "3 tries"),
    ],
)
def test_a_failure_that_would_repeat_is_not_repeated(
    standin: StandIn, ticker: Ticker, demo: Deployment, how: dict[str, Any], reason: str, said: str
) -> None:
    standin.behave(**how)
    ticker.until_state(demo, states.FAILED)
    row = only_instance()
    assert (row.state, row.reason, demo.reason) == (states.FAILED, reason, reason)
    assert said in demo.sentence
    assert demo.remedy
    assert row.diagnosis is not None
    starts = standin.starts()
    ticker.until(lambda: Instance.objects.filter(pk=row.pk, pid=None).exists())
    for _tick in range(3):
        ticker.tick()
    assert standin.starts() == starts
    assert not GpuLease.objects.filter(released_at=None).exists()
    assert row.revision.state == states.FAILED


def test_a_taken_port_is_tried_again_on_others(standin: StandIn, ticker: Ticker, demo: Deployment) -> None:
    standin.behave(busy_port_starts=2)
    ticker.until_state(demo, states.READY)
    row = only_instance()
    assert (row.attempt, standin.starts()) == (3, 3)
    assert (Path(row.folder) / "triton.log.1").is_file()


def test_a_model_that_loads_but_generates_nothing_is_never_served(
    standin: StandIn, ticker: Ticker, demo: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(instance_steps, "PROBE_SECONDS", 0.3)
    standin.behave(probe="hang")
    ticker.until(lambda: Instance.objects.filter(reason="probe_unanswered").exists())
    assert not Instance.objects.filter(serving_since__isnull=False).exists()
    standin.behave(probe="ok")
    ticker.until_state(demo, states.READY)


def test_a_server_that_falls_silent_is_ended_and_replaced(
    standin: StandIn, ticker: Ticker, demo: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticker.until_state(demo, states.READY)
    first = only_instance()
    monkeypatch.setattr(instance_steps, "SILENT_SECONDS", 0.2)
    monkeypatch.setattr(instance_looks, "LOOK_SECONDS", 0.1)
    standin.behave(silent=True)
    ticker.until(lambda: Instance.objects.filter(pk=first.pk, reason="not_answering").exists())
    monkeypatch.setattr(instance_steps, "SILENT_SECONDS", 30.0)
    monkeypatch.setattr(instance_looks, "LOOK_SECONDS", 2.0)
    standin.behave(silent=False)
    ticker.until_state(demo, states.READY)
    assert not processes.is_alive(identity_of(first))


def test_a_missing_tritonserver_is_said_with_its_remedy(
    standin: StandIn, ticker: Ticker, demo: Deployment
) -> None:
    standin.binary.unlink()
    ticker.until_state(demo, states.FAILED)
    assert demo.reason == "binary_missing"
    assert str(standin.binary) in demo.sentence
    assert "INFLIGHT_TRITON_BIN" in demo.remedy


def test_a_missing_engine_file_is_said_with_its_remedy(ticker: Ticker, demo: Deployment) -> None:
    engine = selectors.target_revision(demo).engine  # type: ignore[union-attr]
    (Path(engine.path) / "model.gguf").unlink()
    ticker.until_state(demo, states.FAILED)
    assert demo.reason == "engine_missing"
    with_file(engine)
    services.deploy("test", demo)
    ticker.until_state(demo, states.READY)


def test_a_server_that_no_row_knows_is_ended(standin: StandIn, ticker: Ticker, demo: Deployment) -> None:
    ticker.until_state(demo, states.READY)
    row = only_instance()
    known = identity_of(row)
    Instance.objects.all().delete()
    Deployment.objects.all().delete()
    ticker.restart()
    ticker.until(lambda: not processes.is_alive(known))
    ticker.restart()
    ticker.until(lambda: not Path(row.folder).exists())
    assert memory_files.regions(f"{row.uid}_") == []


def test_a_death_wakes_the_control_worker_at_once(standin: StandIn, ticker: Ticker, demo: Deployment) -> None:
    from tests.support.celery import wait_until

    ticker.until_state(demo, states.READY)
    ticker.tick()
    ticker.wakes.clear()
    os.kill(only_instance().pid or 0, signal.SIGKILL)
    wait_until(lambda: ticker.wakes, 5, "a wake after the death")


def test_servers_of_a_node_that_was_lost_are_adopted_when_it_is_back(
    standin: StandIn, ticker: Ticker, demo: Deployment
) -> None:
    ticker.until_state(demo, states.READY)
    row = only_instance()
    transition(row, states.UNREACHABLE, actor="sweep", reason="node_lost")
    ticker.until_state(demo, states.READY)
    row.refresh_from_db()
    assert (row.state, row.reason) == (states.SERVING, "")
    assert standin.starts() == 1


def test_a_server_that_died_while_its_node_was_lost_is_replaced(
    standin: StandIn, ticker: Ticker, demo: Deployment
) -> None:
    ticker.until_state(demo, states.READY)
    row = only_instance()
    transition(row, states.UNREACHABLE, actor="sweep", reason="node_lost")
    os.kill(row.pid or 0, signal.SIGKILL)
    ticker.until(lambda: Instance.objects.filter(state=states.SERVING).exclude(pk=row.pk).exists())
    row.refresh_from_db()
    assert row.reason == "crashed"


def test_a_server_behind_our_port_that_is_not_ours_is_not_believed(
    standin: StandIn, ticker: Ticker, demo: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another server answers at the port: it must not make the row loading."""
    monkeypatch.setattr(instance_steps, "START_SECONDS", 0.5)
    observe = ticker.reconciler.stepper.runtime.observe

    def foreign(*args: Any) -> Any:
        return replace(observe(*args), server_id="somebody-else")

    monkeypatch.setattr(ticker.reconciler.stepper.runtime, "observe", foreign)
    ticker.until(lambda: Instance.objects.filter(reason="start_timeout").exists())
    assert not Instance.objects.filter(state__in=(states.LOADING, states.SERVING)).exists()


def test_a_fault_of_ours_in_one_instance_keeps_no_other_waiting(
    standin: StandIn, ticker: Ticker, demo: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare = ticker.reconciler.stepper.runtime.prepare
    services.save_deployment("test", {"replicas": 2}, demo)
    monkeypatch.setattr(ticker.reconciler.stepper.runtime, "prepare", faulty_for_first(prepare))
    services.deploy("test", demo)
    ticker.until(lambda: Instance.objects.filter(state=states.SERVING).exists())
    failed = Instance.objects.filter(reason="prepare_failed").first()
    assert failed is not None
    assert "out of order" in failed.sentence


def faulty_for_first(prepare: Any) -> Any:
    """A `prepare` that fails at its first call and works afterwards."""
    calls: list[str] = []

    def call(spec: Any) -> Any:
        calls.append(spec.uid)
        if len(calls) == 1:
            raise ValueError("out of order")
        return prepare(spec)

    return call


def test_a_full_disk_is_said_with_its_remedy(
    standin: StandIn, ticker: Ticker, demo: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(repository, "write", full)
        broken.setattr(TritonRuntime, "cleanup", full)

        def told() -> bool:
            demo.refresh_from_db()
            return demo.reason == "crash_loop"

        ticker.until(told)
    assert "No space left" in demo.sentence
    assert demo.remedy
    assert standin.starts() == 0
    # Nothing of the failed starts holds the slot.
    assert GpuLease.objects.filter(released_at=None).count() <= 1
    # Space was made, and nobody had to press anything.
    ticker.until_state(demo, states.READY)


def test_a_server_that_cannot_be_looked_at_keeps_nobody_waiting(
    standin: StandIn, ticker: Ticker, demo: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticker.until_state(demo, states.READY)

    def broken(*args: Any) -> None:
        raise NotADirectoryError("instances")

    monkeypatch.setattr(TritonRuntime, "observe", broken)
    for _tick in range(3):
        ticker.tick()
    services.stop("test", demo)
    ticker.tick()
    assert only_instance().state == states.DRAINING
