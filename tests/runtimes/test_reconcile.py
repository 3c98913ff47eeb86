"""From placed to gone, and every way in which a server fails on its way."""

from __future__ import annotations

import errno
import os
import signal
import stat
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as django_settings

from apps.core import clock
from apps.core.transitions import transition
from apps.fleet.models import GpuLease
from apps.serving import reconcile as rows_side
from apps.serving import selectors, services, states
from apps.serving.domain import repository
from apps.serving.models import Deployment, Instance
from apps.serving.serialize import instance_dict
from tests import objects
from tests.support.standin import StandIn, Ticker, with_file
from workers import instance_looks, instance_steps
from workers.runtimes import memory_files, processes
from workers.runtimes.base import Identity


def identity_of(row: Instance) -> Identity:
    assert row.pid is not None
    assert row.process_created is not None
    return Identity(row.pid, row.process_created, row.uid)


def only_instance() -> Instance:
    return Instance.objects.exclude(state=states.GONE).get()


def test_a_deployment_is_placed_started_loaded_probed_and_serves(
    standin: StandIn, ticker: Ticker, demo: Deployment
) -> None:
    ticker.until_state(demo, states.READY)
    row = only_instance()
    assert row.state == states.SERVING
    assert (row.attempt, row.restarts, row.server_version) == (1, 0, "2.71.0")
    assert row.serving_since is not None
    assert row.revision.state == states.ACTIVE
    assert demo.active_revision_id == row.revision_id
    assert processes.is_alive(identity_of(row))
    assert [endpoint.uid for endpoint in selectors.endpoints(demo)] == [row.uid]
    [probe] = standin.probes()
    assert (probe["max_tokens"], probe["stream"], probe["temperature"]) == (1, True, 1.0)
    assert GpuLease.objects.filter(holder_id=row.pk, released_at=None).count() == 1


def test_a_tick_stays_under_a_second_whatever_the_server_does(
    standin: StandIn, ticker: Ticker, demo: Deployment
) -> None:
    standin.behave(load="slow", load_seconds=1.5)
    ticker.until_state(demo, states.READY)
    standin.behave(silent=True)
    quiet = [ticker.tick() for _tick in range(4)]
    standin.behave(silent=False)
    # A server that hangs costs at most the tick's own allowance, not the 2 s that each of its answers may take.
    assert min(quiet) < 1.0


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


def test_five_crashes_in_ten_minutes_are_enough(standin: StandIn, ticker: Ticker, demo: Deployment) -> None:
    def crash() -> bool:
        row = Instance.objects.filter(state__in=(states.SPAWNED, states.LOADING, states.SERVING)).first()
        if row is not None and row.pid:
            os.kill(row.pid, signal.SIGKILL)
        demo.refresh_from_db()
        return demo.state == states.FAILED

    ticker.until(crash, 40)
    assert Instance.objects.filter(reason="crashed").count() == 5
    assert demo.reason == "crashed"
    assert demo.remedy
    services.deploy("test", demo)
    ticker.until_state(demo, states.READY)


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


def test_stop_waits_for_requests_in_flight_and_leaves_nothing(
    standin: StandIn, ticker: Ticker, demo: Deployment
) -> None:
    ticker.until_state(demo, states.READY)
    row = only_instance()
    standin.behave(in_flight=1)
    services.stop("test", demo)
    ticker.until(lambda: Instance.objects.filter(state=states.DRAINING).exists())
    for _tick in range(4):
        ticker.tick()
    assert processes.is_alive(identity_of(row))
    assert selectors.endpoints(demo) == []
    standin.behave(in_flight=0)
    ticker.until_state(demo, states.STOPPED)
    row.refresh_from_db()
    assert (row.state, row.pid) == (states.GONE, None)
    assert memory_files.regions(f"{row.uid}_") == []
    assert not (Path(row.folder) / "secret").exists()
    assert not (Path(row.folder) / "repository").exists()
    assert Path(row.log_path).is_file()
    assert not GpuLease.objects.filter(released_at=None).exists()


def test_requests_in_flight_are_waited_for_no_longer_than_the_deadline(
    standin: StandIn, ticker: Ticker, demo: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticker.until_state(demo, states.READY)
    standin.behave(in_flight=3)
    row = only_instance()
    ticker.reconciler.stepper.ask_to_drain(row, seconds=0.3)
    ticker.until(lambda: Instance.objects.filter(pk=row.pk, state=states.GONE).exists())
    assert not processes.is_alive(identity_of(row))


def test_a_server_that_ignores_sigterm_is_killed_with_its_group(
    standin: StandIn, ticker: Ticker, demo: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(instance_steps, "KILL_AFTER_SECONDS", 0.3)
    standin.behave(deaf_to_term=True)
    ticker.until_state(demo, states.READY)
    row = only_instance()
    services.stop("test", demo)
    ticker.until_state(demo, states.STOPPED)
    row.refresh_from_db()
    assert (row.state, row.exit_code) == (states.GONE, -9)
    assert memory_files.regions(f"{row.uid}_") == []


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


def test_a_restart_drains_the_server_and_starts_another(
    standin: StandIn, ticker: Ticker, demo: Deployment
) -> None:
    ticker.until_state(demo, states.READY)
    first = only_instance()
    services.restart_instance("test", first)
    assert selectors.endpoints(demo) == []
    ticker.until(lambda: Instance.objects.filter(state=states.SERVING).exclude(pk=first.pk).exists())
    first.refresh_from_db()
    assert (first.state, first.failed_at) == (states.GONE, None)
    assert only_instance().restarts == 0


def test_two_ticks_at_once_do_not_meet(standin: StandIn, ticker: Ticker, demo: Deployment) -> None:
    from workers.reconcile import exclusive

    with exclusive(0.0) as mine:
        assert mine
        assert not ticker.reconciler.tick()
    assert ticker.reconciler.tick()


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


def test_all_servers_of_the_node_are_ended_without_changing_what_is_desired(
    standin: StandIn, ticker: Ticker, demo: Deployment
) -> None:
    ticker.until_state(demo, states.READY)
    row = only_instance()
    lines: list[str] = []
    left = ticker.reconciler.stop_all("node_stopped", "Ended by hand.", 1.0, 20.0, lines.append)
    assert left == []
    assert lines == [f"demo: ending {row.uid} (serving)"]
    demo.refresh_from_db()
    assert (demo.desired, demo.state, demo.sentence) == ("running", states.STARTING, "Ended by hand.")
    assert not processes.is_alive(identity_of(row))
    ticker.until_state(demo, states.READY)
    assert demo.sentence == ""


def test_a_death_wakes_the_control_worker_at_once(standin: StandIn, ticker: Ticker, demo: Deployment) -> None:
    from tests.support.celery import wait_until

    ticker.until_state(demo, states.READY)
    ticker.tick()
    assert ticker.wakes == []
    os.kill(only_instance().pid or 0, signal.SIGKILL)
    wait_until(lambda: ticker.wakes, 5, "a wake after the death")


def test_the_newer_revision_is_started_beside_the_old_one_which_then_drains(
    standin: StandIn, ticker: Ticker, demo: Deployment
) -> None:
    ticker.until_state(demo, states.READY)
    old = only_instance()
    services.save_batching_profile("test", {"max_batch_size": 4}, demo.batching)
    services.deploy("test", demo)
    standin.behave(load="hang")
    ticker.until(lambda: Instance.objects.filter(state=states.LOADING).exists())
    demo.refresh_from_db()
    assert demo.state == states.READY
    assert [endpoint.uid for endpoint in selectors.endpoints(demo)] == [old.uid]
    standin.behave(load="ok")
    ticker.until(lambda: Instance.objects.filter(pk=old.pk, state=states.GONE).exists())
    new = only_instance()
    demo.refresh_from_db()
    assert (demo.state, demo.active_revision_id) == (states.READY, new.revision_id)
    assert [row.state for row in demo.revisions.order_by("number")] == [states.SUPERSEDED, states.ACTIVE]
    assert [endpoint.uid for endpoint in selectors.endpoints(demo)] == [new.uid]


def test_where_no_room_is_left_the_old_server_is_stopped_first(
    standin: StandIn, ticker: Ticker, demo: Deployment
) -> None:
    services.save_deployment("test", {"placement": {"device": "any", "share": 80}}, demo)
    services.deploy("test", demo)
    ticker.until_state(demo, states.READY)
    old = only_instance()
    services.save_batching_profile("test", {"max_batch_size": 4}, demo.batching)
    services.deploy("test", demo)
    ticker.until(lambda: Instance.objects.filter(pk=old.pk, state=states.GONE).exists())
    ticker.until_state(demo, states.READY)
    new = only_instance()
    assert new.revision.batching["max_batch_size"] == 4


def test_a_roll_out_that_fails_leaves_the_old_revision_serving(
    standin: StandIn, ticker: Ticker, demo: Deployment
) -> None:
    ticker.until_state(demo, states.READY)
    old = only_instance()
    services.save_batching_profile("test", {"max_batch_size": 4}, demo.batching)
    services.deploy("test", demo)
    standin.behave(load="refuse")
    ticker.until(lambda: demo.revisions.filter(state=states.FAILED).exists())
    for _tick in range(3):
        ticker.tick()
    demo.refresh_from_db()
    assert (demo.state, demo.reason) == (states.READY, "rollout_failed")
    assert "out of tune" in demo.sentence
    assert [endpoint.uid for endpoint in selectors.endpoints(demo)] == [old.uid]
    standin.behave(load="ok")
    services.deploy("test", demo)
    ticker.until(lambda: Instance.objects.filter(pk=old.pk, state=states.GONE).exists())
    demo.refresh_from_db()
    assert demo.reason == ""


def test_rolling_back_runs_the_earlier_revision_again(
    standin: StandIn, ticker: Ticker, demo: Deployment
) -> None:
    ticker.until_state(demo, states.READY)
    first = demo.active_revision
    services.save_batching_profile("test", {"max_batch_size": 4}, demo.batching)
    services.deploy("test", demo)
    ticker.until(lambda: demo.revisions.filter(number=2, state=states.ACTIVE).exists())
    assert first is not None
    services.roll_back("test", demo, first)
    ticker.until(lambda: demo.revisions.filter(number=1, state=states.ACTIVE).exists())
    ticker.until(lambda: selectors.live_instances(demo).count() == 1)
    assert only_instance().revision_id == first.pk


def test_a_deployment_without_a_free_slot_says_so_and_starts_when_there_is_one(
    standin: StandIn, ticker: Ticker, demo: Deployment
) -> None:
    services.save_deployment("test", {"placement": {"device": "any", "share": 90}}, demo)
    services.deploy("test", demo)
    ticker.until_state(demo, states.READY)
    other = objects.deployment("other")
    services.deploy("test", other)
    ticker.tick()
    other.refresh_from_db()
    assert (other.state, other.reason) == (states.STARTING, "no_free_share")
    services.stop("test", demo)
    ticker.until_state(other, states.READY)
    assert other.reason == ""


def test_a_gpu_placement_without_a_gpu_says_so(standin: StandIn, ticker: Ticker, demo: Deployment) -> None:
    services.save_deployment("test", {"placement": {"device": "gpu"}}, demo)
    services.deploy("test", demo)
    ticker.tick()
    demo.refresh_from_db()
    assert demo.reason == "no_slot"
    assert "GPU" in demo.sentence


def test_replicas_serve_side_by_side(standin: StandIn, ticker: Ticker, demo: Deployment) -> None:
    services.save_deployment("test", {"replicas": 3}, demo)
    services.deploy("test", demo)
    ticker.until(lambda: len(selectors.endpoints(demo)) == 3)
    ticker.until_state(demo, states.READY)
    os.kill(selectors.serving_instances(demo)[0].pid or 0, signal.SIGKILL)
    ticker.tick()
    demo.refresh_from_db()
    assert demo.state == states.DEGRADED
    ticker.until_state(demo, states.READY)


def test_home_of_the_run_is_not_the_checkout() -> None:
    assert "inflight-test-" in str(django_settings.INFLIGHT_HOME)


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


def test_the_secret_is_in_its_file_alone(standin: StandIn, ticker: Ticker, demo: Deployment) -> None:
    ticker.until_state(demo, states.READY)
    row = only_instance()
    path = Path(row.folder) / "secret"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    secret = path.read_text()
    assert len(secret) >= 32
    assert secret not in str(instance_dict(row))
    assert secret not in Path(row.log_path).read_text()


def test_history_is_kept_for_a_while_and_then_forgotten(
    standin: StandIn, ticker: Ticker, demo: Deployment
) -> None:
    standin.behave(load="refuse")
    ticker.until_state(demo, states.FAILED)
    row = only_instance()
    standin.behave(load="ok")
    services.deploy("test", demo)
    ticker.until_state(demo, states.READY)
    row.refresh_from_db()
    assert row.state == states.FAILED
    Instance.objects.filter(pk=row.pk).update(failed_at=clock.now() - timedelta(hours=2))
    ticker.until(lambda: Instance.objects.filter(pk=row.pk, state=states.GONE).exists())
    row.refresh_from_db()
    assert (row.reason, row.diagnosis is not None) == ("load_failed", True)


def test_old_rows_and_their_folders_go_the_newest_stay(
    standin: StandIn, ticker: Ticker, demo: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticker.until_state(demo, states.READY)
    first = only_instance()
    services.restart_instance("test", first)
    ticker.until(lambda: Instance.objects.filter(state=states.GONE).count() == 1)
    second = ticker.until(lambda: Instance.objects.filter(state=states.SERVING).first())
    services.restart_instance("test", second)
    ticker.until(lambda: Instance.objects.filter(state=states.GONE).count() == 2)
    monkeypatch.setattr(rows_side, "KEPT_ROWS", 1)
    ticker.restart()
    ticker.tick()
    assert not Instance.objects.filter(pk=first.pk).exists()
    assert not Path(first.folder).exists()
    assert Instance.objects.filter(pk=second.pk).exists()
    assert Path(second.log_path).is_file()


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


def test_a_deployment_that_was_given_up_stays_so_until_somebody_presses_a_button(
    standin: StandIn, ticker: Ticker, demo: Deployment
) -> None:
    ticker.until_state(demo, states.READY)
    standin.behave(load="refuse")
    os.kill(only_instance().pid or 0, signal.SIGKILL)
    ticker.until_state(demo, states.FAILED)
    Instance.objects.update(failed_at=clock.now() - timedelta(minutes=30))
    starts = standin.starts()
    for _tick in range(3):
        ticker.tick()
    assert standin.starts() == starts
    demo.refresh_from_db()
    assert (demo.state, demo.reason) == (states.FAILED, "load_failed")
    standin.behave(load="ok")
    services.deploy("test", demo)
    ticker.until_state(demo, states.READY)


def test_an_earlier_revision_is_not_started_while_the_new_engine_is_built(
    standin: StandIn, ticker: Ticker, demo: Deployment
) -> None:
    ticker.until_state(demo, states.READY)
    services.stop("test", demo)
    ticker.until_state(demo, states.STOPPED)
    other = objects.build_profile("q8", quantization="Q8_0")
    services.save_deployment("test", {"build_profile": other}, demo)
    services.deploy("test", demo)
    for _tick in range(3):
        ticker.tick()
    demo.refresh_from_db()
    assert demo.state == states.WAITING
    assert not selectors.live_instances(demo).exists()


def test_a_full_disk_is_said_with_its_remedy(
    standin: StandIn, ticker: Ticker, demo: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(repository, "write", full)
    ticker.until_state(demo, states.FAILED)
    assert demo.reason == "folder_not_writable"
    assert "No space left" in demo.sentence
    assert demo.remedy
    assert Instance.objects.filter(reason="folder_not_writable").count() == 5
    assert standin.starts() == 0
