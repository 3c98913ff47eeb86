"""What scales deployments: it reads figures, decides, changes the row, keeps why, and wakes what is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from apps.accounts.roles import OPERATOR, VIEWER
from apps.control import autoscale as scaler
from apps.control import demand
from apps.core.exceptions import NotAllowed, NotPossibleNow
from apps.core.models import AuditEntry
from apps.gateway import running, table
from apps.gateway.models import GatewayRoute
from apps.gateway.running import RunningRequest
from apps.serving import autoscale, services, states
from apps.serving.models import Deployment
from tests import objects
from tests.people import person

pytestmark = pytest.mark.django_db
NOW = 1_900_000_000.0
SCALING = {
    "min_replicas": 0,
    "max_replicas": 4,
    "targets": [{"metric": "in_flight", "value": 4}],
    "up_window_seconds": 10,
    "down_window_seconds": 30,
    "idle_seconds": 60,
}


@pytest.fixture(autouse=True)
def waits(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names that requests wait for at the gateway; nothing of it is kept in Redis."""
    names: list[str] = []

    def snapshot() -> list[RunningRequest]:
        return [
            RunningRequest(f"r{number}", 1, "app", name, "chat", 1, True, NOW)
            for number, name in enumerate(names)
        ]

    monkeypatch.setattr(running, "snapshot", snapshot)
    monkeypatch.setattr(running, "wanted", list)
    monkeypatch.setattr(demand, "record", lambda numbers, now: None)
    monkeypatch.setattr(
        demand, "history", lambda deployment, since: [(NOW - 100.0 + n, 0.0) for n in range(0, 100, 5)]
    )
    return names


def scaled(name: str = "demo", serving: int = 1, **scaling: Any) -> Deployment:
    """A deployment that scales itself, with servers that serve."""
    row = objects.deployment(name, scaling={**SCALING, **scaling})
    revision = objects.revision(row, 1, states.ACTIVE)
    for number in range(serving):
        objects.instance(revision, f"{name}-{number}", replica=number, http_port=number + 1)
    Deployment.objects.filter(pk=row.pk).update(
        active_revision=revision,
        desired="running",
        state=states.READY if serving else states.ASLEEP,
        scaled_to=serving,
        deployed_at=None,
    )
    row.refresh_from_db()
    return row


def telling(**figures: Any) -> scaler.Read:
    """Telemetry that tells the same all the time, in steps of five seconds."""
    known = {"requests_running": 2.0, "requests_waiting": 0.0, "slots": 8.0, "targets": 1.0, **figures}

    def read(deployment: int, since: float, until: float) -> tuple[Sequence[dict[str, Any]], float]:
        count = int((until - since) / 5)
        return [{"at": until - 5.0 * (count - n), **known} for n in range(count)], 5.0

    return read


def servers(row: Deployment) -> int | None:
    row.refresh_from_db()
    return row.scaled_to


def test_more_under_load_and_the_figures_are_kept() -> None:
    row = scaled()
    assert scaler.sweep(telling(requests_running=8.0), NOW) == 1
    assert servers(row) == 2
    kept = autoscale.decisions(row).get()
    assert (kept.before, kept.after, kept.cause, kept.reason, kept.actor) == (
        1,
        2,
        "load",
        "up_in_flight",
        "autoscale",
    )
    assert kept.figures["targets"] == {"in_flight": {"is": 8.0, "wanted": 4.0}}
    audit = AuditEntry.objects.get(verb="deployment.scaled")
    assert audit.detail["changes"] == {"servers": [1, 2]}
    assert row.revisions.count() == 1


def test_the_queue_at_the_gateway_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    row = scaled()
    monkeypatch.setattr(
        demand, "history", lambda deployment, since: [(NOW - 100.0 + n, 6.0) for n in range(100)]
    )
    assert scaler.sweep(telling(), NOW) == 1
    assert servers(row) == 2
    monkeypatch.setattr(demand, "history", lambda deployment, since: [])
    assert scaler.sweep(telling(requests_running=0.0, targets=2.0), NOW) == 0


def test_what_holds_a_change_back_is_kept_once() -> None:
    row = scaled(serving=2, idle_seconds=None, min_replicas=1)
    for _again in range(3):
        assert scaler.sweep(telling(targets=2.0, requests_running=None), NOW) == 0
    assert [each.reason for each in autoscale.decisions(row)] == ["missing"]
    assert scaler.sweep(telling(targets=2.0, requests_running=16.0), NOW) == 1
    assert scaler.sweep(telling(targets=2.0, requests_running=None), NOW) == 0
    assert [each.reason for each in autoscale.decisions(row)] == ["missing", "up_in_flight", "missing"]


def test_a_stale_engine_runs_nothing_and_a_gap_is_no_idleness() -> None:
    row = scaled()
    assert scaler.sweep(telling(requests_running=None, requests_waiting=None), NOW) == 0
    stale = telling(requests_running=None, requests_waiting=None, engine_stale=1.0)
    # It may just have been deployed: nobody knows since when it has been idle.
    assert scaler.sweep(stale, NOW) == 0
    Deployment.objects.update(deployed_at="2020-01-01T00:00:00Z")
    assert scaler.sweep(stale, NOW) == 1
    assert servers(row) == 0
    assert autoscale.decisions(row)[0].cause == "idle"


def test_a_request_that_waits_wakes_it(waits: list[str]) -> None:
    row = scaled(serving=0)
    assert scaler.wake_asked() == 0
    waits += ["demo", "demo"]
    assert scaler.wake_asked() == 1
    assert servers(row) == 1
    assert scaler.wake_asked() == 0
    kept = autoscale.decisions(row).get()
    assert (kept.before, kept.after, kept.cause, kept.figures) == (0, 1, "wake", {"asked": 2})


def test_what_another_route_stood_in_for_wakes(monkeypatch: pytest.MonkeyPatch) -> None:
    row = scaled(serving=0)
    monkeypatch.setattr(running, "wanted", lambda: ["demo", "unknown"])
    assert scaler.wake_asked() == 1
    assert servers(row) == 1
    assert "stands in" in autoscale.decisions(row).get().sentence
    assert demand.waiting() == [], "load figures know nothing of it"


def test_only_what_nobody_else_can_answer_wakes(waits: list[str]) -> None:
    asleep, awake = scaled("asleep", serving=0), scaled("awake")
    GatewayRoute.objects.create(name="both", targets=[{"deployment": "awake"}, {"deployment": "asleep"}])
    waits += ["both", "unknown"]
    assert scaler.wake_asked() == 0
    assert demand.shared(demand.waiting()) == {awake.pk: 0.5, asleep.pk: 0.5}
    awake.instances.update(state=states.FAILED)
    assert scaler.wake_asked() == 1
    assert servers(asleep) == 1


def test_waking_by_hand() -> None:
    row = scaled(serving=0)
    with pytest.raises(NotAllowed):
        services.wake_deployment(person(VIEWER), row)
    operator = person(OPERATOR)
    for _again in range(2):
        services.wake_deployment(operator, row)
    assert (servers(row), autoscale.decisions(row).count()) == (1, 1)
    Deployment.objects.update(desired="stopped")
    with pytest.raises(NotPossibleNow):
        services.wake_deployment(operator, row)


def test_deploying_wakes_and_keeps_what_the_load_asked_for() -> None:
    row = scaled(serving=0)
    services.deploy("test", row)
    assert servers(row) == 1
    Deployment.objects.update(scaled_to=3)
    services.deploy("test", row)
    assert servers(row) == 3
    services.save_deployment("test", {"scaling": {}}, row)
    assert servers(row) is None
    assert autoscale.decisions(row)[0].reason == "settings"


def test_one_that_may_sleep_no_more_wakes() -> None:
    row = scaled(serving=0)
    services.save_deployment("test", {"scaling": {**SCALING, "min_replicas": 2, "idle_seconds": None}}, row)
    assert servers(row) == 2


def test_what_failed_or_is_stopped_is_left_alone(waits: list[str]) -> None:
    row = scaled(serving=0)
    waits.append("demo")
    for columns in ({"state": states.FAILED}, {"state": states.STOPPED, "desired": "stopped"}):
        Deployment.objects.update(**columns)
        assert (scaler.wake_asked(), scaler.sweep(telling(), NOW)) == (0, 0)
    assert servers(row) == 0


def test_requests_wait_for_what_sleeps_and_for_nothing_else() -> None:
    row = scaled(serving=0, wake_seconds=200)
    route = table.load_table().routes["demo"]
    assert (route.wakes, route.queue_seconds, route.upstreams) == (True, 200.0, ())
    GatewayRoute.objects.create(name="demo", queue_seconds=400)
    assert table.load_table().routes["demo"].queue_seconds == 400.0
    for columns in (
        {"state": states.FAILED},
        {"state": states.ASLEEP, "scaling": {}},
        {"desired": "stopped"},
    ):
        Deployment.objects.filter(pk=row.pk).update(**columns)
        assert not table.load_table().routes["demo"].wakes


def test_how_many_waited_in_a_time() -> None:
    entries = [(100.0, 2.0), (105.0, 4.0), (110.0, 6.0)]
    assert demand.during(entries, 104.0, 111.0) == 5.0
    assert demand.during(entries, 111.0, 116.0) == 6.0
    assert demand.during(entries, 123.0, 128.0) is None
    assert demand.during([], 100.0, 105.0) is None
