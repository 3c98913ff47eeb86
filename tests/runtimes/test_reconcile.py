"""From placed to gone."""

from __future__ import annotations

import stat
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from django.conf import settings as django_settings

from apps.core import clock
from apps.fleet.models import GpuLease
from apps.serving import reconcile as rows_side
from apps.serving import selectors, services, states, timeline
from apps.serving.models import Deployment, Instance
from apps.serving.serialize import instance_dict
from tests.runtimes.rows import identity_of, only_instance
from tests.support.standin import StandIn, Ticker
from workers import instance_steps
from workers.runtimes import memory_files, processes


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


def test_what_a_server_does_wakes_the_next_tick(
    standin: StandIn, ticker: Ticker, demo: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only a deploy waits for the second's tick: start, load, probe, last request and exit each ask for one."""
    woken = threading.Event()
    ticker.reconciler.wake = ticker.reconciler.stepper.jobs.wake = woken.set
    ticker.reconciler.deaths._wake = woken.set
    ticker.tick()

    def follow(wanted: Callable[[], bool]) -> None:
        while not wanted():
            assert woken.wait(10), only_instance().state
            woken.clear()
            ticker.tick()

    follow(lambda: Instance.objects.filter(state=states.SERVING).exists())
    row = only_instance()
    services.stop("test", demo)
    ticker.tick()
    follow(lambda: Instance.objects.filter(pk=row.pk, state=states.GONE).exists())


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


def test_home_of_the_run_is_not_the_checkout() -> None:
    assert "inflight-test-" in str(django_settings.INFLIGHT_HOME)


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
    told = {entry.to_state for entry in timeline.entries(demo) if first.uid in entry.object_label}
    assert {"spawned", "serving", "gone"} <= told, "its history stays with the deployment's"
    assert Instance.objects.filter(pk=second.pk).exists()
    assert Path(second.log_path).is_file()
