"""Servers that follow `scaled_to`: none is restarted, a sleeping deployment has none, a woken one has one again."""

from __future__ import annotations

from apps.core.models import AuditEntry
from apps.serving import autoscale, selectors, services, states
from apps.serving.domain.autoscale import Decision
from apps.serving.models import Deployment
from tests.runtimes.rows import only_instance
from tests.support.standin import StandIn, Ticker

SCALING = {
    "min_replicas": 0,
    "max_replicas": 2,
    "targets": [{"metric": "in_flight", "value": 4}],
    "idle_seconds": 60,
}


def to(row: Deployment, count: int) -> None:
    row.refresh_from_db()
    assert autoscale.change("autoscale", row, Decision(count, "load", "test", f"{count} servers."))


def test_one_two_one_none_and_one_again(standin: StandIn, ticker: Ticker, demo: Deployment) -> None:
    ticker.until_state(demo, states.READY)
    first = only_instance()
    services.save_deployment("test", {"scaling": SCALING}, demo)
    to(demo, 2)
    ticker.until(lambda: len(selectors.endpoints(demo)) == 2)
    to(demo, 1)
    ticker.until(lambda: len(selectors.endpoints(demo)) == 1 and selectors.live_instances(demo).count() == 1)
    kept = only_instance()
    assert (kept.uid, kept.pid) == (first.uid, first.pid)
    to(demo, 0)
    ticker.until_state(demo, states.ASLEEP)
    ticker.until(lambda: not selectors.live_instances(demo).exists())
    assert "next request wakes it" in demo.sentence
    assert (standin.starts(), demo.revisions.count()) == (2, 1)
    services.wake_deployment("test", demo)
    ticker.until_state(demo, states.READY)
    assert standin.starts() == 3
    assert only_instance().uid != first.uid
    assert AuditEntry.objects.filter(verb="deployment.scaled").count() == 4
    to(demo, 0)
    ticker.until_state(demo, states.ASLEEP)
    services.stop("test", demo)
    ticker.until_state(demo, states.STOPPED)


def test_a_change_to_one_that_sleeps_is_proven_by_a_server(
    standin: StandIn, ticker: Ticker, demo: Deployment
) -> None:
    ticker.until_state(demo, states.READY)
    services.save_deployment("test", {"scaling": SCALING}, demo)
    to(demo, 0)
    ticker.until_state(demo, states.ASLEEP)
    services.save_batching_profile("test", {"max_batch_size": 4}, demo.batching)
    services.deploy("test", demo)
    ticker.until_state(demo, states.READY)
    demo.refresh_from_db()
    assert (demo.active_revision.number, demo.scaled_to) == (2, 1)  # type: ignore[union-attr]
    assert only_instance().revision_id == demo.active_revision_id
