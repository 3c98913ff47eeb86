"""The alert pages through their services: what is shown, refused and done."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from apps.accounts.roles import OPERATOR, VIEWER
from apps.telemetry.alerts.models import Alert, AlertRule, NotificationChannel, Silence
from tests.pages.conftest import World

HTMX = {"HTTP_HX_REQUEST": "true"}


@pytest.fixture
def operator(world: World, sign_in: Callable[..., Client]) -> Client:
    """An operator, with one of everything there."""
    return sign_in(OPERATOR)


def text(client: Client, name: str, *args: Any) -> str:
    answer = client.get(reverse(name, args=args))
    assert answer.status_code == 200
    return answer.content.decode()


def test_pages_say_what_there_is(operator: Client) -> None:
    assert "KV use is 97%, above 90%." in text(operator, "alerts:alerts")
    assert "KV use is 97%, above 90%." in text(operator, "alerts:alert", 1)
    assert "200 ok" in text(operator, "alerts:alert", 1)
    assert "KV cache almost full" in text(operator, "alerts:history")
    assert "KV use &gt; 90%" in text(operator, "alerts:rules")
    assert "planned work" in text(operator, "alerts:silences")
    assert "hooks.example.org" in text(operator, "alerts:channels")
    assert "n0t1f1cat10n" in text(operator, "alerts:notifications")


def test_the_bell_counts_on_every_page(operator: Client) -> None:
    page = text(operator, "dashboard:overview")
    assert 'id="bell"' in page
    assert 'count-bad">1<' in page
    Alert.objects.update(state="resolved")
    assert 'class="count">0<' in text(operator, "alerts:bell")


def test_the_overview_says_what_fires_and_has_its_buttons(
    operator: Client, sign_in: Callable[..., Client]
) -> None:
    page = text(operator, "dashboard:overview")
    assert "KV cache almost full (demo)" in page
    assert "KV use is 97%, above 90%. Lower the maximum batch size." in page
    assert f'hx-post="{reverse("alerts:acknowledge", args=[1])}"' in page
    assert f'href="{reverse("alerts:alert", args=[1])}#silence"' in page
    # Who only looks has no buttons.
    assert "/acknowledge/" not in text(sign_in(VIEWER), "dashboard:overview")
    # Somebody is on it, or it is silenced: it asks for nobody.
    Alert.objects.update(state="acknowledged")
    assert "KV use is 97%" not in text(operator, "dashboard:overview")
    Alert.objects.update(state="firing")
    Silence.objects.update(rule="kv-full")
    assert "KV use is 97%" not in text(operator, "dashboard:overview")


def test_without_rows_each_page_says_the_next_step(sign_in: Callable[..., Client]) -> None:
    client = sign_in(VIEWER)
    assert "No rule is switched on" in text(client, "alerts:alerts")
    for name in ("history", "rules", "silences", "channels", "notifications"):
        assert 'class="empty"' in text(client, f"alerts:{name}")


def test_acknowledging(operator: Client) -> None:
    answer = operator.post(reverse("alerts:acknowledge", args=[1]), {"note": "on it"}, **HTMX)
    assert answer.status_code == 204
    assert Alert.objects.get().state == "acknowledged"
    assert "on it" in text(operator, "alerts:alerts")
    operator.post(reverse("alerts:unacknowledge", args=[1]))
    assert Alert.objects.get().state == "firing"


def test_silencing(operator: Client) -> None:
    data = {"rule": "kv-full", "object_name": "demo", "severity": "", "hours": "4", "reason": "upgrade"}
    assert operator.post(reverse("alerts:silences"), data).status_code == 303
    assert "Silenced by operator: upgrade" in text(operator, "alerts:alerts")
    made = Silence.objects.get(reason="upgrade")
    operator.post(reverse("alerts:end_silence", args=[made.pk]))
    assert "Silenced by" not in text(operator, "alerts:alerts")
    refused = operator.post(reverse("alerts:silences"), {**data, "reason": ""})
    assert refused.status_code == 422


RULE = {
    "name": "mine", "summary": "Slow", "severity": "warning", "target": "deployment", "selector": "*",
    "kind": "threshold", "key": "ttft_p99_ms", "compare": "above", "value": "500", "statistic": "median",
    "window_seconds": "30", "for_seconds": "60", "resolve_seconds": "60", "repeat_seconds": "3600",
    "channels": ["ops"], "enabled": "on",
}  # fmt: skip


def test_a_rule_is_made_shown_and_changed(operator: Client) -> None:
    answer = operator.post(reverse("alerts:new_rule"), RULE)
    assert answer.status_code == 303
    row = AlertRule.objects.get(name="mine")
    assert row.condition == {
        "kind": "threshold", "key": "ttft_p99_ms", "compare": "above", "value": 500.0,
        "statistic": "median", "window_seconds": 30,
    }  # fmt: skip
    assert [channel.name for channel in row.channels.all()] == ["ops"]
    page = text(operator, "alerts:rule", "mine")
    assert 'value="500.0"' in page
    assert "TTFT p99 &gt; 500" in page
    changed = {**RULE, "name": "other", "kind": "absence", "absence_seconds": "45"}
    assert operator.post(reverse("alerts:rule", args=["mine"]), changed).status_code == 303
    row.refresh_from_db()
    assert (row.name, row.condition) == ("mine", {"kind": "absence", "seconds": 45})
    operator.post(reverse("alerts:switch_rule", args=["mine"]))
    row.refresh_from_db()
    assert row.enabled is False
    operator.post(reverse("alerts:delete_rule", args=["mine"]))
    assert not AlertRule.objects.filter(name="mine").exists()


@pytest.mark.parametrize(
    ("kind", "fields", "condition"),
    [
        (
            "change",
            {"change_key": "kv_use", "direction": "fall", "by": "0.5", "relative": "yes"},
            {"key": "kv_use", "direction": "fall", "by": 0.5, "relative": True, "at_least": 0.0,
             "window_seconds": 60, "baseline_seconds": 300},
        ),
        ("events", {"event": "instance_restart", "count": "3"},
         {"event": "instance_restart", "count": 3, "within_seconds": 600}),
        ("state", {"states": "failed, degraded"}, {"states": ["failed", "degraded"]}),
    ],
)  # fmt: skip
def test_each_kind_of_condition_has_its_fields(
    operator: Client, kind: str, fields: dict[str, str], condition: dict[str, Any]
) -> None:
    assert operator.post(reverse("alerts:new_rule"), {**RULE, "kind": kind, **fields}).status_code == 303
    assert AlertRule.objects.get(name="mine").condition == {"kind": kind, **condition}


def test_an_error_budget_keeps_its_windows(operator: Client) -> None:
    data = {**RULE, "kind": "burn_rate", "indicator": "ttft", "limit_ms": "800", "objective": "99.5"}
    operator.post(reverse("alerts:new_rule"), data)
    row = AlertRule.objects.get(name="mine")
    assert row.condition["objective"] == 0.995
    windows = [{"long_seconds": 7200, "short_seconds": 600, "factor": 10.0}]
    AlertRule.objects.filter(pk=row.pk).update(condition={**row.condition, "windows": windows})
    operator.post(reverse("alerts:rule", args=["mine"]), {**data, "objective": "99"})
    row.refresh_from_db()
    assert (row.condition["objective"], row.condition["windows"]) == (0.99, windows)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"value": ""}, "condition.value"),
        ({"value": "lots"}, "Enter a number."),
        ({"clear": "900"}, "clear must not be on the bad side"),
        ({"kind": "state", "states": "dreaming"}, "A deployment is never dreaming."),
        ({"kind": "burn_rate", "indicator": "ttft", "objective": "99"}, "needs limit_ms"),
        ({"name": "kv-full"}, "already exists"),
    ],
)
def test_a_refusal_stands_at_its_field(operator: Client, changes: dict[str, str], words: str) -> None:
    answer = operator.post(reverse("alerts:new_rule"), {**RULE, **changes})
    assert answer.status_code == 422
    assert words in answer.content.decode()


def test_the_preview_says_what_holds_now(operator: Client) -> None:
    data = {**RULE, "kind": "state", "states": "stopped"}
    answer = operator.post(reverse("alerts:preview"), data).content.decode()
    assert "is stopped" in answer
    assert "holds" in answer
    assert (
        "A condition needs a kind" in operator.post(reverse("alerts:preview"), {"kind": ""}).content.decode()
    )


def test_channels(operator: Client) -> None:
    data = {
        "name": "mail",
        "type": "email",
        "recipients": "a@example.org\nb@example.org",
        "least_severity": "info",
    }
    assert operator.post(reverse("alerts:channels"), data).status_code == 303
    row = NotificationChannel.objects.get(name="mail")
    assert row.recipients == ["a@example.org", "b@example.org"]
    inside = {"name": "inside", "type": "webhook", "url": "http://127.0.0.1:6379/", "least_severity": "info"}
    refused = operator.post(reverse("alerts:channels"), inside)
    assert refused.status_code == 422
    assert "INFLIGHT_OUTBOUND_ALLOW" in refused.content.decode()
    assert operator.post(reverse("alerts:test_channel", args=["mail"]), **HTMX).status_code == 204
    operator.post(
        reverse("alerts:channel", args=["mail"]), {**data, "recipients": "c@example.org", "enabled": "on"}
    )
    row.refresh_from_db()
    assert (row.recipients, row.enabled) == (["c@example.org"], True)
    operator.post(reverse("alerts:delete_channel", args=["mail"]))
    assert not NotificationChannel.objects.filter(name="mail").exists()


def test_a_secret_never_comes_back(operator: Client) -> None:
    data = {"name": "signed", "type": "webhook", "url": "https://example.org/", "least_severity": "info",
            "secret": "t0p-s3cret"}  # fmt: skip
    operator.post(reverse("alerts:channels"), data)
    for name, args in (("alerts:channels", []), ("alerts:channel", ["signed"])):
        assert "t0p-s3cret" not in text(operator, name, *args)
    stored = NotificationChannel.objects.get(name="signed").secret
    operator.post(reverse("alerts:channel", args=["signed"]), {**data, "secret": ""})
    assert NotificationChannel.objects.get(name="signed").secret == stored


def test_a_viewer_looks_and_is_refused(world: World, sign_in: Callable[..., Client]) -> None:
    viewer = sign_in(VIEWER)
    assert "Acknowledge" not in text(viewer, "alerts:alerts")
    for name in ("alerts:silences", "alerts:channels"):
        assert viewer.post(reverse(name), {"name": "x"}).status_code == 403


def test_many_rows_are_paged_in_few_queries(operator: Client, django_assert_max_num_queries: Any) -> None:
    first = Alert.objects.get()
    Alert.objects.bulk_create(
        Alert(**{
            **{field.attname: getattr(first, field.attname) for field in Alert._meta.concrete_fields},
            "id": None, "fingerprint": f"x{number}",
        })
        for number in range(1000)
    )  # fmt: skip
    for name in ("alerts:alerts", "alerts:history"):
        with django_assert_max_num_queries(25):
            assert "1 to 50 of 1\u202f001" in text(operator, name)
