"""Revisions that follow each other, replicas, and a slot without room."""

from __future__ import annotations

import os
import signal
from datetime import timedelta

from apps.core import clock
from apps.serving import selectors, services, states
from apps.serving.models import Deployment, Instance
from tests import objects
from tests.runtimes.rows import only_instance
from tests.support.standin import StandIn, Ticker


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
