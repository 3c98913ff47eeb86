"""Who is told of what: a webhook on loopback that really receives, once, grouped, and not while silenced."""

from __future__ import annotations

import hashlib
import hmac
import socket
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.core import mail
from django.utils import timezone

from apps.core.exceptions import InvalidInput
from apps.telemetry.alerts import delivery, notifying, services
from apps.telemetry.alerts.models import Alert, AlertRule, Notification, NotificationChannel
from tests.telemetry.alerts.conftest import rule
from tests.telemetry.alerts.receiver import Receiver, receiver

pytestmark = pytest.mark.django_db


@pytest.fixture
def hook(settings: Any) -> Iterator[Receiver]:
    """A receiver, and loopback allowed for it alone."""
    with receiver() as state:
        settings.INFLIGHT_OUTBOUND_ALLOW = [f"127.0.0.1:{state.port}"]
        yield state


def channel(hook: Receiver, **changes: Any) -> NotificationChannel:
    return services.save_channel("test", {"name": "ops", "url": hook.url, "secret": "s3cret", **changes})


def firing(of: AlertRule, name: str = "demo", **columns: Any) -> Alert:
    """An alert that has fired for a minute."""
    ago = timezone.now() - timedelta(minutes=1)
    given = {"state": "firing", "fired_at": ago, "true_since": ago, "last_true": ago, **columns}
    return Alert.objects.create(
        rule=of, rule_name=of.name, summary=of.summary, severity=of.severity, fingerprint=f"{of.name}-{name}",
        target="deployment", target_name=name, deployment=name, sentence=f"{name} is full.",
        remedy=of.remedy, **given,
    )  # fmt: skip


def tell() -> int:
    """One round of the telemetry process, without its thread; how many attempts were made."""
    notifying.plan()
    return delivery.send_due()


def test_a_webhook_is_really_sent_signed_and_recorded(hook: Receiver) -> None:
    channel(hook)
    alert = firing(rule())
    assert tell() == 1
    message = hook.messages[0]
    assert message.body["event"] == "firing"
    assert message.body["version"] == 1
    assert message.body["rule"] == "kv-full"
    assert message.body["alerts"][0]["id"] == alert.pk
    assert message.body["alerts"][0]["object"] == "demo"
    assert message.body["alerts"][0]["unit"] == "share"
    timestamp = message.headers["X-Inflight-Timestamp"]
    expected = hmac.new(b"s3cret", timestamp.encode() + b"." + message.raw, hashlib.sha256).hexdigest()
    assert message.headers["X-Inflight-Signature"] == f"sha256={expected}"
    row = Notification.objects.get()
    assert (row.state, row.answer, row.attempt) == ("delivered", "200 ok", 1)
    assert row.uid == message.headers["X-Inflight-Id"] == message.body["id"]


def test_it_is_told_once_and_its_end_once(hook: Receiver) -> None:
    channel(hook)
    alert = firing(rule())
    for _ in range(5):
        tell()
    Alert.objects.filter(pk=alert.pk).update(state="resolved", resolved_at=timezone.now())
    for _ in range(5):
        tell()
    assert hook.events == ["firing", "resolved"]


def test_what_fires_together_goes_in_one_message(hook: Receiver) -> None:
    channel(hook)
    made = rule()
    for number in range(20):
        firing(made, f"demo-{number}")
    tell()
    assert len(hook.messages) == 1
    assert len(hook.messages[0].body["alerts"]) == 20
    assert hook.messages[0].body["title"] == "Firing: KV cache almost full (20 objects)"


def test_it_waits_a_moment_for_others(hook: Receiver) -> None:
    channel(hook)
    firing(rule(), fired_at=timezone.now())
    assert tell() == 0


def test_it_is_told_again_after_the_interval_while_nobody_looks_after_it(hook: Receiver) -> None:
    channel(hook)
    alert = firing(rule(repeat_seconds=600))
    tell()
    Notification.objects.update(created_at=timezone.now() - timedelta(seconds=601))
    tell()
    assert hook.events == ["firing", "repeat"]
    Notification.objects.update(created_at=timezone.now() - timedelta(seconds=601))
    services.acknowledge("test", alert)
    tell()
    assert len(hook.messages) == 2


@pytest.mark.parametrize(
    ("silence", "silent"),
    [
        ({"rule": "kv-full"}, True),
        ({"rule": "kv-*", "object_name": "demo"}, True),
        ({"object_name": "dem?"}, True),
        ({"severity": "warning"}, True),
        ({}, True),
        ({"rule": "other"}, False),
        ({"rule": "kv-full", "object_name": "else"}, False),
        ({"severity": "critical"}, False),
        ({"starts_at": timezone.now() + timedelta(minutes=30)}, False),
    ],
)
def test_silences(hook: Receiver, silence: dict[str, Any], silent: bool) -> None:
    channel(hook)
    firing(rule())
    until = timezone.now() + timedelta(hours=1)
    made = services.create_silence("test", {"reason": "maintenance", "ends_at": until, **silence})
    tell()
    assert hook.events == ([] if silent else ["firing"])
    if silent:
        # When it is over, what still fires is told.
        services.end_silence("test", made)
        tell()
        assert hook.events == ["firing"]


def test_a_silence_keeps_the_end_quiet_too(hook: Receiver) -> None:
    channel(hook)
    alert = firing(rule())
    tell()
    until = timezone.now() + timedelta(hours=1)
    services.create_silence("test", {"reason": "maintenance", "ends_at": until})
    Alert.objects.filter(pk=alert.pk).update(state="resolved", resolved_at=timezone.now())
    tell()
    assert hook.events == ["firing"]


def test_severity_and_rules_choose_channels(hook: Receiver) -> None:
    channel(hook, name="all", least_severity="info")
    channel(hook, name="critical", least_severity="critical")
    channel(hook, name="named", least_severity="info")
    channel(hook, name="off", enabled=False)
    firing(rule())
    firing(rule(name="chosen", channels=["named"]))
    tell()
    told = {(row.channel.name, row.rule_name) for row in Notification.objects.all()}
    assert told == {("all", "kv-full"), ("named", "kv-full"), ("named", "chosen")}


def test_a_failure_is_tried_again_with_pauses_and_given_up_in_the_end(hook: Receiver) -> None:
    channel(hook)
    firing(rule())
    hook.statuses = [500]
    tell()
    row = Notification.objects.get()
    assert (row.state, row.attempt, row.answer) == ("queued", 1, "500 ok")
    assert row.next_at > timezone.now()
    assert delivery.send_due() == 0
    for _ in delivery.PAUSES:
        Notification.objects.update(next_at=timezone.now())
        delivery.send_due()
    row.refresh_from_db()
    assert (row.state, row.attempt) == ("failed", 6)
    assert "500 ok" in row.sentence
    # Given up is not told again before the interval.
    tell()
    assert len(hook.messages) == 6


def test_a_receiver_that_recovers_gets_the_same_message_id(hook: Receiver) -> None:
    channel(hook)
    firing(rule())
    hook.statuses = [503, 200]
    hook.headers = {"Retry-After": "40"}
    tell()
    assert Notification.objects.get().next_at > timezone.now() + timedelta(seconds=30)
    Notification.objects.update(next_at=timezone.now())
    delivery.send_due()
    assert Notification.objects.get().state == "delivered"
    assert len({message.body["id"] for message in hook.messages}) == 1
    assert [message.headers["X-Inflight-Attempt"] for message in hook.messages] == ["1", "2"]


def test_a_refusal_and_a_redirect_are_not_tried_again(hook: Receiver) -> None:
    channel(hook)
    made = rule()
    for status in (404, 302):
        hook.statuses, hook.headers = [status], {"Location": "http://127.0.0.1:1/"}
        firing(made, f"demo-{status}")
        tell()
        assert Notification.objects.first().state == "failed"  # type: ignore[union-attr]
    assert len(hook.messages) == 2


def test_nobody_is_told_of_an_end_who_never_heard_of_the_beginning(hook: Receiver) -> None:
    channel(hook)
    alert = firing(rule())
    hook.statuses = [404]
    tell()
    Alert.objects.filter(pk=alert.pk).update(state="resolved", resolved_at=timezone.now())
    hook.statuses = [200]
    tell()
    assert len(hook.messages) == 1


def test_two_senders_never_make_the_same_attempt(hook: Receiver) -> None:
    channel(hook)
    firing(rule())
    notifying.plan()
    one, two = Notification.objects.get(), Notification.objects.get()
    assert delivery.send(one)
    assert not delivery.send(two)
    assert len(hook.messages) == 1


def test_an_attempt_whose_sender_died_is_taken_up_again(hook: Receiver) -> None:
    channel(hook)
    firing(rule())
    notifying.plan()
    Notification.objects.update(attempt=1, next_at=timezone.now() + timedelta(seconds=delivery.CLAIM_SECONDS))
    assert delivery.send_due() == 0
    Notification.objects.update(next_at=timezone.now() - timedelta(seconds=1))
    assert delivery.send_due() == 1
    assert hook.events == ["firing"]


def test_an_address_that_is_no_longer_allowed_is_not_called(hook: Receiver, settings: Any) -> None:
    channel(hook)
    firing(rule())
    settings.INFLIGHT_OUTBOUND_ALLOW = []
    tell()
    row = Notification.objects.get()
    assert row.state == "failed"
    assert "public internet" in row.sentence
    assert hook.messages == []


def test_a_name_that_resolves_inside_is_refused_when_it_is_called(
    hook: Receiver, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.INFLIGHT_OUTBOUND_ALLOW = []
    made = services.save_channel("test", {"name": "ops", "url": f"http://public.example.org:{hook.port}/"})
    # The name server of somebody else says that the public name lies on loopback.
    inside = (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", hook.port))
    monkeypatch.setattr(socket, "getaddrinfo", lambda *args, **kwargs: [inside])
    found = services.test_channel("test", made)
    assert found.state == "failed"
    assert "not allowed" in found.answer
    assert hook.messages == []


def test_the_test_button_really_sends(hook: Receiver) -> None:
    made = channel(hook, enabled=False)
    found = services.test_channel("test", made)
    assert found.state == "delivered"
    assert hook.events == ["test"]
    hook.statuses = [500]
    found = services.test_channel("test", made)
    assert (found.state, found.answer) == ("failed", "500 ok")


def test_a_webhook_that_hangs_or_is_not_there(hook: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    made = channel(hook)
    with socket.socket() as listening:
        # Accepts and never answers.
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        port = listening.getsockname()[1]
        monkeypatch.setattr(delivery, "WEBHOOK_SECONDS", 0.2)
        monkeypatch.setattr("django.conf.settings.INFLIGHT_OUTBOUND_ALLOW", ["127.0.0.1"])
        NotificationChannel.objects.update(url=f"http://127.0.0.1:{port}/")
        made.refresh_from_db()
        assert "No answer" in services.test_channel("test", made).answer
    assert services.test_channel("test", made).state == "failed"


def test_mail(hook: Receiver) -> None:
    made = services.save_channel(
        "test", {"name": "mail", "type": "email", "recipients": ["ops@example.org", "boss@example.org"]}
    )
    firing(rule())
    tell()
    assert len(mail.outbox) == 1
    assert mail.outbox[0].to == ["ops@example.org", "boss@example.org"]
    assert mail.outbox[0].subject == "[Inflight] Firing: KV cache almost full (demo)"
    assert "demo is full." in mail.outbox[0].body
    assert "Lower the batch size." in mail.outbox[0].body
    assert services.test_channel("test", made).state == "delivered"


def test_mail_without_a_mail_server_says_so(settings: Any) -> None:
    settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
    settings.EMAIL_HOST = ""
    made = services.save_channel("test", {"name": "m", "type": "email", "recipients": ["ops@example.org"]})
    found = services.test_channel("test", made)
    assert found.state == "failed"
    assert "INFLIGHT_SMTP_HOST" in found.sentence


@pytest.mark.parametrize(
    ("data", "field"),
    [
        ({"url": ""}, "url"),
        ({"url": "http://127.0.0.1:6379/"}, "url"),
        ({"url": "http://169.254.169.254/latest"}, "url"),
        ({"url": "ftp://example.org/"}, "url"),
        ({"type": "email", "recipients": []}, "recipients"),
        ({"type": "email", "recipients": ["not an address"]}, "recipients"),
        ({"type": "email", "recipients": ["a@b.org\nBcc: c@d.org"]}, "recipients"),
        ({"type": "pigeon", "url": "https://example.org/"}, "type"),
        ({"url": "https://example.org/", "colour": "red"}, "colour"),
        ({"name": "No Name", "url": "https://example.org/"}, "name"),
    ],
)
def test_a_channel_that_cannot_be_is_refused(data: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        services.save_channel("test", {"name": "ops", **data})
    assert caught.value.field == field


def test_a_secret_is_kept_encrypted_and_stays_when_it_is_left_out(hook: Receiver) -> None:
    made = channel(hook)
    assert "s3cret" not in made.secret
    stored = made.secret
    again = services.save_channel("test", {"send_resolved": False}, made)
    assert again.secret == stored
    assert services.save_channel("test", {"secret": ""}, made).secret == ""


def test_history_is_pruned(hook: Receiver) -> None:
    channel(hook)
    alert = firing(rule())
    tell()
    Notification.objects.update(created_at=timezone.now() - timedelta(days=31))
    long_ago = timezone.now() - timedelta(days=91)
    Alert.objects.filter(pk=alert.pk).update(state="resolved", resolved_at=long_ago)
    notifying.prune()
    assert not Notification.objects.exists()
    assert not Alert.objects.exists()
