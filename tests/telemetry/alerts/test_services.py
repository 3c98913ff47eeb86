"""What people do with alerts: rules, acknowledgement, silences, and the rules that come with Inflight."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.core.management import call_command
from django.utils import timezone

from apps.core.exceptions import InvalidInput, NotAllowed, NotPossibleNow
from apps.core.models import AuditEntry
from apps.telemetry.alerts import selectors, serialize, services, wording
from apps.telemetry.alerts.models import Alert, AlertRule
from apps.telemetry.domain.alerting import conditions
from apps.telemetry.domain.alerting.shipped import RULES
from tests.people import person
from tests.telemetry.alerts.conftest import RULE, rule
from tests.telemetry.alerts.test_notifying import firing

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(
    ("data", "field"),
    [
        ({"name": "Bad Name"}, "name"),
        ({"summary": ""}, "summary"),
        ({"severity": "awful"}, "severity"),
        ({"target": "planet"}, "target"),
        ({"selector": "a b"}, "selector"),
        ({"for_seconds": -1}, "for_seconds"),
        ({"for_seconds": 10**9}, "for_seconds"),
        ({"repeat_seconds": 1}, "repeat_seconds"),
        ({"condition": {}}, "condition.kind"),
        ({"condition": "kv_use > 1"}, "condition"),
        ({"condition": {"kind": "threshold", "key": "kv", "value": 1}}, "condition.key"),
        ({"target": "gpu", "condition": {"kind": "absence"}}, "target"),
        ({"target": "node", "condition": {"kind": "state", "states": ["asleep"]}}, "condition.states"),
        ({"channels": ["nobody"]}, "channels"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_a_rule_that_cannot_be_is_refused_at_its_field(data: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        rule(**data)
    assert caught.value.field == field
    assert not AlertRule.objects.exists()


def test_a_rule_is_changed_and_its_history_kept() -> None:
    made = rule()
    changed = services.save_alert_rule("test", {"severity": "critical"}, made)
    assert changed.severity == "critical"
    assert changed.summary == made.summary
    entry = AuditEntry.objects.filter(verb="alertrule.changed").get()
    assert entry.detail == {"changes": {"severity": ["warning", "critical"]}}
    services.save_alert_rule("test", {"severity": "critical", "condition": RULE["condition"]}, made)
    assert AuditEntry.objects.filter(verb="alertrule.changed").count() == 1
    with pytest.raises(InvalidInput, match="name"):
        services.save_alert_rule("test", {"name": "other"}, made)


def test_deleting_a_rule_ends_its_alerts_and_keeps_them() -> None:
    made = rule()
    alert = firing(made)
    services.delete_alert_rule("test", made)
    alert.refresh_from_db()
    assert (alert.state, alert.reason, alert.rule, alert.rule_name) == (
        "resolved", "rule_deleted", None, "kv-full"
    )  # fmt: skip
    assert serialize.alert_dict(alert)["unit"] is None


def test_shipped_rules_are_installed_once_and_what_a_person_did_stays() -> None:
    assert services.install_shipped_rules("prepare") == [data["name"] for data in RULES]
    assert services.install_shipped_rules("prepare") == []
    off = selectors.rule("queue-grows")
    services.save_alert_rule("test", {"enabled": False}, off)
    services.save_alert_rule("test", {"for_seconds": 5}, selectors.rule("kv-saturated"))
    assert services.install_shipped_rules("prepare") == []
    assert selectors.rule("queue-grows").enabled is False
    assert selectors.rule("kv-saturated").for_seconds == 5
    with pytest.raises(NotPossibleNow, match="comes with Inflight"):
        services.delete_alert_rule("test", off)


def test_an_update_changes_shipped_rules_that_nobody_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    services.install_shipped_rules("prepare")
    services.save_alert_rule("test", {"enabled": False}, selectors.rule("queue-grows"))
    services.save_alert_rule("test", {"for_seconds": 5}, selectors.rule("kv-saturated"))
    newer = tuple({**data, "for_seconds": 33} for data in RULES)
    monkeypatch.setattr(services, "RULES", newer)
    services.install_shipped_rules("prepare")
    grows = selectors.rule("queue-grows")
    assert (grows.for_seconds, grows.enabled) == (33, False)
    assert selectors.rule("kv-saturated").for_seconds == 5


def test_a_rule_of_ones_own_with_a_shipped_name_stays() -> None:
    rule(name="queue-grows")
    services.install_shipped_rules("prepare")
    assert selectors.rule("queue-grows").summary == RULE["summary"]


def test_prepare_installs_them() -> None:
    call_command("ensure_alert_rules", verbosity=0)
    assert AlertRule.objects.count() == len(RULES)


def test_shipped_rules_are_read_in_words() -> None:
    said = {
        data["name"]: wording.describe(conditions.parse(data["condition"], data["target"])) for data in RULES
    }
    assert said["kv-saturated"] == "KV use > 95%"
    assert said["ttft-p99-high"] == "TTFT p99 > 2\u202f000\u202fms"
    assert said["queue-grows"] == "Requests waiting rises by 4"
    assert said["hit-rate-falls"] == "Prompt from cache falls by 50%"
    assert said["instance-restarts"] == "≥ 2 restarts / 10\u202fmin"
    assert said["node-lost"] == "is lost"
    assert said["scrape-lost"] == "no samples for 30\u202fs"
    assert said["error-budget-burns"] == "budget of 99% burns: failed requests"


def test_acknowledging_and_taking_it_back() -> None:
    operator = person("operator")
    alert = firing(rule())
    services.acknowledge(operator, alert, "on it")
    assert (alert.state, alert.acknowledged_by, alert.note) == ("acknowledged", operator, "on it")
    assert selectors.raised().unattended == 0
    services.acknowledge(operator, alert)
    services.unacknowledge(operator, alert)
    assert (alert.state, alert.acknowledged_by, alert.note) == ("firing", None, "")
    Alert.objects.update(state="resolved")
    alert.refresh_from_db()
    for act in (services.acknowledge, services.unacknowledge):
        with pytest.raises(NotPossibleNow):
            act(operator, alert)


def test_viewers_only_look() -> None:
    viewer = person("viewer")
    made = rule()
    alert = firing(made)
    until = timezone.now() + timedelta(hours=1)
    channel = services.save_channel("test", {"name": "c", "url": "https://example.org/"})
    silence = services.create_silence("test", {"reason": "x", "ends_at": until})
    for refused in (
        lambda: services.acknowledge(viewer, alert),
        lambda: services.unacknowledge(viewer, alert),
        lambda: services.save_alert_rule(viewer, RULE),
        lambda: services.delete_alert_rule(viewer, made),
        lambda: services.create_silence(viewer, {"reason": "x", "ends_at": until}),
        lambda: services.end_silence(viewer, silence),
        lambda: services.save_channel(viewer, {"name": "d", "url": "https://example.org/"}),
        lambda: services.delete_channel(viewer, channel),
        lambda: services.test_channel(viewer, channel),
    ):
        with pytest.raises(NotAllowed):
            refused()


@pytest.mark.parametrize(
    ("data", "field"),
    [
        ({"reason": ""}, "reason"),
        ({"ends_at": None}, "ends_at"),
        ({"ends_at": "soon"}, "ends_at"),
        ({"ends_at": datetime(2040, 1, 1)}, "ends_at"),  # noqa: DTZ001 - that is the fault
        ({"ends_at": timezone.now() - timedelta(hours=1)}, "ends_at"),
        ({"ends_at": timezone.now() + timedelta(days=91)}, "ends_at"),
        ({"severity": "awful"}, "severity"),
        ({"rule": "a b"}, "rule"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_a_silence_that_cannot_be_is_refused(data: dict[str, Any], field: str) -> None:
    until = timezone.now() + timedelta(hours=1)
    with pytest.raises(InvalidInput) as caught:
        services.create_silence("test", {"reason": "maintenance", "ends_at": until, **data})
    assert caught.value.field == field


def test_a_silence_ends_once() -> None:
    until = timezone.now() + timedelta(hours=1)
    made = services.create_silence("test", {"reason": "maintenance", "ends_at": until})
    services.end_silence("test", made)
    assert not selectors.silences().exists()
    assert selectors.silences(over=True).count() == 1
    with pytest.raises(NotPossibleNow):
        services.end_silence("test", made)


def test_the_bell_counts_what_nobody_looks_after() -> None:
    assert selectors.raised().count == 0
    made = rule(severity="critical")
    firing(made)
    firing(rule(name="mild"), "other")
    found = selectors.raised()
    assert (found.count, found.unattended, found.worst) == (2, 2, "critical")
    until = timezone.now() + timedelta(hours=1)
    services.create_silence("test", {"reason": "x", "ends_at": until, "rule": "kv-full"})
    found = selectors.raised()
    assert (found.count, found.unattended, found.worst) == (2, 1, "warning")


def test_a_channel_that_a_rule_names_is_not_deleted() -> None:
    made = services.save_channel("test", {"name": "ops", "url": "https://example.org/"})
    rule(channels=["ops"])
    with pytest.raises(NotPossibleNow, match="kv-full"):
        services.delete_channel("test", made)
    services.save_alert_rule("test", {"channels": []}, selectors.rule("kv-full"))
    services.delete_channel("test", made)
