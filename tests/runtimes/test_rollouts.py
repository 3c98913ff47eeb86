"""Revisions that follow each other, replicas, and a slot without room."""

from __future__ import annotations

import json
import os
import signal
from datetime import timedelta
from typing import Any

import pytest

from apps.core import clock
from apps.core.exceptions import NotPossibleNow
from apps.core.models import AuditEntry
from apps.serving import selectors, services, states
from apps.serving.models import Deployment, Instance
from apps.streaming.selectors import pick_instance
from tests import objects
from tests.runtimes.rows import only_instance
from tests.support.standin import StandIn, Ticker
from workers import address_book


def addresses() -> list[dict[str, Any]]:
    """What clients of this node that call Triton directly read."""
    found: list[dict[str, Any]] = json.loads((address_book.folder() / "demo.json").read_text())["servers"]
    return found


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
    assert [each["uid"] for each in addresses()] == [old.uid]
    standin.behave(load="ok")
    ticker.until(lambda: Instance.objects.filter(pk=old.pk, state=states.GONE).exists())
    new = only_instance()
    demo.refresh_from_db()
    assert (demo.state, demo.active_revision_id) == (states.READY, new.revision_id)
    assert [row.state for row in demo.revisions.order_by("number")] == [states.SUPERSEDED, states.ACTIVE]
    assert [endpoint.uid for endpoint in selectors.endpoints(demo)] == [new.uid]
    assert [(each["uid"], each["weight"]) for each in addresses()] == [(new.uid, 100.0)]
    assert addresses()[0]["http"] == f"http://127.0.0.1:{new.http_port}"


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
    said = AuditEntry.objects.get(verb="rollout.stop_first")
    assert "no room" in said.sentence


def test_another_number_of_servers_restarts_none(standin: StandIn, ticker: Ticker, demo: Deployment) -> None:
    ticker.until_state(demo, states.READY)
    first = only_instance()
    services.save_deployment("test", {"replicas": 2}, demo)
    services.deploy("test", demo)
    ticker.until(lambda: len(selectors.endpoints(demo)) == 2)
    demo.refresh_from_db()
    assert (demo.active_revision.number, demo.active_revision.replicas) == (2, 2)  # type: ignore[union-attr]
    services.save_deployment("test", {"replicas": 1}, demo)
    services.deploy("test", demo)
    ticker.until(lambda: len(selectors.endpoints(demo)) == 1 and selectors.live_instances(demo).count() == 1)
    demo.refresh_from_db()
    kept = only_instance()
    assert (kept.uid, kept.pid, demo.active_revision.number) == (first.uid, first.pid, 1)  # type: ignore[union-attr]
    assert standin.starts() == 2
    made = AuditEntry.objects.get(verb="revision.created", object_label="demo r2")
    assert made.detail == {"changes": {"replicas": [1, 2]}, "from": 1}


def test_a_roll_out_is_paused_goes_on_and_is_called_off(
    standin: StandIn, ticker: Ticker, demo: Deployment
) -> None:
    ticker.until_state(demo, states.READY)
    old = only_instance()
    with pytest.raises(NotPossibleNow):
        services.pause_rollout("test", demo)
    services.save_batching_profile("test", {"max_batch_size": 4}, demo.batching)
    services.deploy("test", demo)
    services.pause_rollout("test", demo)
    for _tick in range(3):
        ticker.tick()
    assert standin.starts() == 1
    services.resume_rollout("test", demo)
    standin.behave(load="hang")
    ticker.until(lambda: Instance.objects.filter(state=states.LOADING).exists())
    assert demo.active_revision is not None
    services.roll_back("test", demo, demo.active_revision)
    ticker.until(lambda: selectors.live_instances(demo).count() == 1)
    demo.refresh_from_db()
    assert (demo.state, only_instance().uid, only_instance().pid) == (states.READY, old.uid, old.pid)
    assert demo.revisions.get(number=2).state == states.SUPERSEDED


def test_a_roll_out_that_hangs_is_given_up_at_its_deadline(
    standin: StandIn, ticker: Ticker, demo: Deployment
) -> None:
    ticker.until_state(demo, states.READY)
    old = only_instance()
    services.save_deployment("test", {"rollout": {"progress_seconds": 10}}, demo)
    services.save_batching_profile("test", {"max_batch_size": 4}, demo.batching)
    services.deploy("test", demo)
    standin.behave(load="hang")
    ticker.until(lambda: Instance.objects.filter(state=states.LOADING).exists())
    demo.revisions.filter(state=states.PENDING).update(moved_at=clock.now() - timedelta(seconds=11))
    ticker.tick()
    assert demo.revisions.get(number=2).reason == "progress_deadline"
    standin.behave(load="ok")
    ticker.until(lambda: selectors.live_instances(demo).count() == 1)
    demo.refresh_from_db()
    assert (demo.state, demo.reason) == (states.READY, "rollout_failed")
    assert (only_instance().uid, only_instance().pid) == (old.uid, old.pid)


def test_a_canary_serves_its_share_beside_the_old_revision_until_it_is_promoted(
    standin: StandIn, ticker: Ticker, demo: Deployment
) -> None:
    ticker.until_state(demo, states.READY)
    canary = [{"weight": 20, "seconds": 60}]
    services.save_deployment("test", {"rollout": {"canary": canary}}, demo)
    services.save_batching_profile("test", {"max_batch_size": 4}, demo.batching)
    services.deploy("test", demo)
    ticker.until(lambda: len(selectors.endpoints(demo)) == 2)
    demo.refresh_from_db()
    assert [(weight, len(rows)) for _revision, weight, rows in selectors.traffic(demo)] == [(80, 1), (20, 1)]
    for _tick in range(3):
        ticker.tick()
    assert len(selectors.endpoints(demo)) == 2
    picked = [pick_instance(demo).revision for _each in range(50)]
    assert 9 <= picked.count(2) <= 11
    services.promote_rollout("test", demo)
    ticker.until(lambda: demo.revisions.filter(number=2, state=states.ACTIVE).exists())
    ticker.until(lambda: selectors.live_instances(demo).count() == 1)
    assert [found.revision for found in selectors.endpoints(demo)] == [2]


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
