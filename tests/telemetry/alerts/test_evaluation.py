"""Rules over samples and rows: what is raised, what ends, what survives."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from apps.core.models import AuditEntry
from apps.fleet.models import Node
from apps.serving import states as serving_states
from apps.serving.models import Deployment, Instance
from apps.telemetry.alerts import budget, services
from apps.telemetry.alerts.models import Alert, AlertRule
from apps.telemetry.alerts.watching import Watched
from apps.telemetry.domain.alerting.burn import Requests
from apps.telemetry.domain.alerting.conditions import BurnRate
from tests import objects
from tests.telemetry.alerts.conftest import World, rule

pytestmark = pytest.mark.django_db


def states() -> list[str]:
    return list(Alert.objects.order_by("pk").values_list("state", flat=True))


def test_an_alert_is_pending_then_fires_then_ends(world: World) -> None:
    rule()
    world.go(30, kv_use=0.5)
    assert states() == []
    world.go(30, kv_use=0.95)
    assert states() == ["pending"]
    assert AuditEntry.objects.filter(object_type="alert").count() == 0
    world.go(60, kv_use=0.95)
    alert = Alert.objects.get()
    assert alert.state == "firing"
    assert alert.target_name == "demo"
    assert alert.sentence == "KV use is 95%, above 90%."
    assert alert.remedy == "Lower the batch size."
    assert alert.value == pytest.approx(0.95)
    assert alert.threshold == 0.9
    assert alert.fired_at is not None
    world.go(120, kv_use=0.95)
    assert states() == ["firing"]
    world.go(80, kv_use=0.5)
    alert.refresh_from_db()
    assert (alert.state, alert.reason) == ("resolved", "over")
    verbs = AuditEntry.objects.filter(object_type="alert").order_by("pk").values_list("verb", flat=True)
    assert list(verbs) == ["alert.firing", "alert.resolved"]


def test_what_ends_while_pending_leaves_nothing(world: World) -> None:
    rule()
    world.go(40, kv_use=0.95)
    world.go(30, kv_use=0.5)
    assert states() == []


def test_it_fires_again_as_a_new_alert(world: World) -> None:
    rule(for_seconds=0, resolve_seconds=0)
    for _ in range(2):
        world.go(30, kv_use=0.95)
        world.go(30, kv_use=0.5)
    assert states() == ["resolved", "resolved"]
    assert Alert.objects.values("fingerprint").distinct().count() == 1


def test_values_of_a_firing_alert_stay_fresh(world: World) -> None:
    rule(for_seconds=0)
    world.go(30, kv_use=0.95)
    version = Alert.objects.get().version
    world.go(60, kv_use=0.99)
    alert = Alert.objects.get()
    assert alert.value == pytest.approx(0.99)
    assert "99%" in alert.sentence
    # Nobody is told to look for that.
    assert alert.version == version


def test_pending_and_firing_survive_a_restart(world: World) -> None:
    rule()
    world.go(40, kv_use=0.95)
    world.restarted()
    world.go(25, kv_use=0.95)
    assert states() == ["firing"]
    world.restarted()
    world.go(60, kv_use=0.95)
    assert states() == ["firing"]
    world.go(60, kv_use=0.5)
    assert states() == ["resolved"]


def test_a_gap_ends_nothing_and_starts_nothing(world: World) -> None:
    rule()
    rule(name="scrape-lost", target="instance", for_seconds=0, condition={"kind": "absence", "seconds": 30})
    world.go(50, kv_use=0.95)
    # Telemetry is not running for ten minutes, then comes back with everything as it was.
    world.go(600, tick=False, talk=False)
    world.alive = True
    world.restarted()
    world.go(50, kv_use=0.95)
    assert states() == ["pending"]
    world.go(15, kv_use=0.95)
    assert states() == ["firing"]
    world.go(600, talk=False)
    assert Alert.objects.get(rule_name="kv-full").state == "firing"


def test_a_server_that_says_nothing(world: World) -> None:
    rule(name="scrape-lost", target="instance", for_seconds=0, condition={"kind": "absence", "seconds": 30})
    world.go(60, kv_use=0.1)
    world.go(40, talk=False)
    alert = Alert.objects.get()
    assert (alert.state, alert.target_name, alert.deployment) == ("firing", "demo/i-1", "demo")
    assert alert.sentence.startswith("No sample for 3")


def test_silence_of_all_is_one_alert_and_not_one_for_each_server(world: World) -> None:
    """Doubt ourselves first: where telemetry writes nothing, no server is blamed."""
    rule(name="scrape-lost", target="instance", for_seconds=0, condition={"kind": "absence", "seconds": 30})
    rule(name="silent", target="fleet", for_seconds=0, condition={"kind": "absence", "seconds": 60})
    world.go(60, kv_use=0.1)
    world.alive = False
    world.go(90, talk=False)
    assert [alert.rule_name for alert in Alert.objects.all()] == ["silent"]
    # Back again: each server has its whole time to be heard.
    world.alive = True
    world.go(25, talk=False)
    assert not Alert.objects.filter(rule_name="scrape-lost").exists()
    world.go(60, kv_use=0.1)
    assert Alert.objects.get().state == "resolved"


def test_an_installation_that_serves_nothing_is_not_silent(world: World) -> None:
    rule(name="silent", target="fleet", for_seconds=0, condition={"kind": "absence", "seconds": 60})
    Instance.objects.update(state=serving_states.GONE)
    world.go(200, talk=False)
    assert states() == []


def test_alerts_of_what_is_gone_end(world: World) -> None:
    rule(for_seconds=0)
    rule(name="server-kv", target="instance", for_seconds=0)
    world.go(30, kv_use=0.95)
    Instance.objects.update(state=serving_states.GONE)
    world.go(5, talk=False)
    assert Alert.objects.get(rule_name="server-kv").reason == "gone"
    Deployment.objects.update(active_revision=None)
    Instance.objects.all().delete()
    world.deployment.revisions.all().delete()
    world.deployment.delete()
    world.go(5, talk=False)
    assert Alert.objects.get(rule_name="kv-full").reason == "gone"


def test_an_alert_without_a_value_ends_after_a_while(world: World) -> None:
    rule(for_seconds=0, null_seconds=120)
    world.go(30, kv_use=0.95)
    world.go(100, kv_use=None)
    assert states() == ["firing"]
    world.go(60, kv_use=None)
    assert Alert.objects.get().reason == "no_value"


def test_selectors_choose_objects(world: World) -> None:
    rule(for_seconds=0, selector="other*")
    rule(name="mine", for_seconds=0, selector="d?mo", target="instance")
    world.go(30, kv_use=0.95)
    assert [alert.rule_name for alert in Alert.objects.all()] == ["mine"]


def test_restarts_are_counted(world: World) -> None:
    events = {"kind": "events", "event": "instance_restart", "count": 2, "within_seconds": 600}
    rule(name="restarts", for_seconds=0, condition=events)
    world.now += 10
    world.go(5, kv_use=0.1)
    assert states() == []
    Instance.objects.update(state=serving_states.FAILED)
    revision = world.deployment.revisions.get()
    for number in (1, 2):
        objects.instance(revision, f"again-{number}", state=serving_states.GONE, restarts=number)
    world.go(5)
    assert Alert.objects.get().sentence == "2 restarts within 10\u202fmin."
    world.go(700)
    assert states() == ["resolved"]


def test_failures_of_servers_and_deployments_are_counted(world: World) -> None:
    rule(name="servers", for_seconds=0, condition={"kind": "events", "event": "instance_failure"})
    rule(name="deployments", for_seconds=0, condition={"kind": "events", "event": "deployment_failure"})
    Instance.objects.update(failed_at=datetime.fromtimestamp(world.now, tz=UTC))
    AuditEntry.objects.create(
        actor_label="ctl", verb="deployment.failed", object_type="deployment", object_id="1",
        object_label="demo", to_state="failed",
    )  # fmt: skip
    world.now += 10
    world.go(5)
    assert set(Alert.objects.values_list("rule_name", flat=True)) == {"servers", "deployments"}


def test_a_lost_node(world: World) -> None:
    rule(name="lost", target="node", for_seconds=0, condition={"kind": "state", "states": ["lost"]})
    objects.node("n1")
    world.go(5)
    assert states() == []
    Node.objects.update(state="lost")
    world.go(5)
    assert Alert.objects.get().sentence == "It is lost."
    Node.objects.update(state="ready")
    world.go(60)
    assert states() == ["resolved"]


def test_an_error_budget(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    rule(name="budget", for_seconds=0, condition={"kind": "burn_rate", "indicator": "errors"})
    told = {"bad": 0.0}

    def counter(condition: BurnRate, watched: Watched, now: float) -> Any:
        return lambda seconds: Requests(1000.0, told["bad"])

    monkeypatch.setattr(budget, "counter", counter)
    world.go(60)
    assert states() == []
    told["bad"] = 500.0
    world.go(60)
    assert Alert.objects.get().sentence == ("The error budget of 99% burns 50 times too fast (limit 6).")


def test_a_rule_that_cannot_be_read_stops_no_other(world: World) -> None:
    rule(for_seconds=0)
    broken = rule(name="broken")
    AlertRule.objects.filter(pk=broken.pk).update(condition={"kind": "sql"})
    world.go(30, kv_use=0.95)
    assert [alert.rule_name for alert in Alert.objects.all()] == ["kv-full"]


def test_switching_a_rule_off_ends_its_alerts(world: World) -> None:
    made = rule(for_seconds=0)
    world.go(30, kv_use=0.95)
    services.save_alert_rule("test", {"enabled": False}, made)
    assert Alert.objects.get().reason == "rule_changed"
    world.go(60, kv_use=0.95)
    assert states() == ["resolved"]


def test_fifty_servers_are_looked_at_in_few_queries(world: World, django_assert_max_num_queries: Any) -> None:
    services.install_shipped_rules("test")
    revision = world.deployment.revisions.get()
    for number in range(50):
        objects.instance(revision, f"many-{number}", metrics_port=9100 + number, replica=number + 1)
    world.go(5)
    with django_assert_max_num_queries(16):
        world.evaluator.tick()


def test_an_acknowledged_alert_goes_on_and_ends_by_itself(world: World) -> None:
    rule(for_seconds=0)
    world.go(30, kv_use=0.95)
    services.acknowledge("test", Alert.objects.get(), "looking")
    world.go(60, kv_use=0.95)
    assert states() == ["acknowledged"]
    assert Alert.objects.get().sentence.startswith("KV use")
    world.go(60, kv_use=0.5)
    assert states() == ["resolved"]


def test_memory_holds_no_more_than_rules_need(world: World) -> None:
    rule()
    world.go(200, kv_use=0.5, ttft_p99_ms=3.0)
    held = world.evaluator.memory.of(f"samples:deployment:{world.deployment.pk}")
    assert len(held) <= 22
    assert set(held[-1]) == {"at", "kv_use"}
    rule(name="ttft", condition={"kind": "threshold", "key": "ttft_p99_ms", "value": 1, "window_seconds": 60})
    world.go(5, kv_use=0.5, ttft_p99_ms=3.0)
    held = world.evaluator.memory.of(f"samples:deployment:{world.deployment.pk}")
    assert len(held) >= 60
    assert "ttft_p99_ms" in held[0]


def test_a_pending_row_left_for_long_starts_anew(world: World) -> None:
    rule()
    world.go(40, kv_use=0.95)
    Alert.objects.update(last_true=datetime.fromtimestamp(world.now, tz=UTC) - timedelta(minutes=5))
    world.restarted()
    world.go(55, kv_use=0.95)
    assert states() == ["pending"]
