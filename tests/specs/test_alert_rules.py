"""Alert rules as documents: planned, applied, exported, refused."""

from __future__ import annotations

import pytest
import yaml

from apps.core.exceptions import InvalidInput
from apps.specs import services
from apps.telemetry.alerts.models import AlertRule
from apps.telemetry.alerts.services import install_shipped_rules, save_channel

pytestmark = pytest.mark.django_db
RULE = """
apiVersion: inflight/v1
kind: AlertRule
metadata: {name: slow}
spec:
  summary: Slow first tokens
  severity: critical
  selector: demo*
  forSeconds: 30
  condition: {kind: threshold, key: ttft_p99_ms, value: 500, windowSeconds: 60}
"""


def test_a_rule_is_created_then_unchanged_then_updated() -> None:
    assert services.apply("test", RULE, "rules.yaml")[0].planned.action == "create"
    row = AlertRule.objects.get(name="slow")
    assert (row.severity, row.selector, row.for_seconds, row.condition["window_seconds"]) == (
        "critical", "demo*", 30, 60
    )  # fmt: skip
    assert services.plan("test", RULE, "rules.yaml").is_empty
    changed = services.plan("test", RULE.replace("value: 500", "value: 800"), "rules.yaml")
    assert [(change.path, change.after) for change in changed.objects[0].changes] == [
        ("condition.value", 800.0)
    ]


def test_exporting_all_shipped_rules_and_applying_them_changes_nothing() -> None:
    install_shipped_rules("test")
    text = services.export("test", ["AlertRule"])
    assert len(list(yaml.safe_load_all(text))) == AlertRule.objects.count()
    assert services.plan("test", text, "export.yaml").is_empty


def test_channels_are_names() -> None:
    save_channel("test", {"name": "ops", "url": "https://example.org/"})
    with_channel = RULE + "  channels: [ops]\n"
    services.apply("test", with_channel, "rules.yaml")
    assert [each.name for each in AlertRule.objects.get().channels.all()] == ["ops"]
    assert services.plan("test", with_channel, "rules.yaml").is_empty


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("value: 500", "value: high", "value"),
        ("ttft_p99_ms", "ttft_p999_ms", "no metric of the vocabulary"),
        ("kind: threshold", "kind: sql", "needs a kind"),
        ("severity: critical", "severity: awful", "severity"),
        ("forSeconds: 30", "for: 30", "for"),
        ("summary: Slow first tokens", "channels: [nobody]\n  summary: x", "no notification channel nobody"),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_written(old: str, new: str, words: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        services.apply("test", RULE.replace(old, new), "rules.yaml")
    assert words in str(caught.value.sentence)
    assert not AlertRule.objects.exists()
