"""Sending notifications: one attempt at a time, each recorded, tried again with growing pauses.

A sender claims an attempt before it sends (the attempt number fences), so two never send the same one. A process that
dies in between sends it again: the message's id tells a receiver that it has it already.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

import aiohttp
from django.conf import settings
from django.core.mail import EmailMessage
from django.db import close_old_connections, transaction
from django.db.models import QuerySet
from django.utils.translation import gettext as _

from apps.core import clock, ids, outbound, secrets
from apps.core.exceptions import InflightError
from apps.core.transitions import amend, transition
from apps.telemetry.alerts import messages, states
from apps.telemetry.alerts.models import Alert, Notification, NotificationChannel

log = logging.getLogger(__name__)

ACTOR = "telemetry"
WEBHOOK_SECONDS = 5.0
# Pauses after a failed attempt; after the last one it is given up (some 45 minutes in all).
PAUSES = (5, 30, 120, 600, 1800)
# A claimed attempt that nobody finished is taken up again after so many seconds.
CLAIM_SECONDS = 60
AT_ONCE = 20
_MOST_ANSWER = 200


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one attempt. `again`: trying again may help; `after`: not before so many seconds."""

    good: bool
    answer: str
    again: bool = True
    after: int = 0


def make(channel: NotificationChannel, event: str, alerts: Sequence[Alert]) -> Notification:
    """A notification that is due now, with the message as it will be sent."""
    uid = ids.short_id(16)
    with transaction.atomic():
        row = Notification.objects.create(
            state=states.QUEUED,
            uid=uid,
            channel=channel,
            event=event,
            rule_name=alerts[0].rule_name if alerts else "",
            body=messages.body_of(uid, channel, event, alerts),
            next_at=clock.now(),
        )
        row.alerts.set(alerts)
    return row


def due() -> QuerySet[Notification]:
    """Notifications whose next attempt is due, oldest first."""
    return (
        Notification.objects.select_related("channel")
        .filter(state=states.QUEUED, next_at__lte=clock.now())
        .order_by("next_at", "id")
    )


def send_due() -> int:
    """Make one attempt for each notification that is due; how many were tried."""
    rows = list(due()[:AT_ONCE])
    for row in rows:
        send(row)
    return len(rows)


def send(row: Notification, *, last_attempt: bool = False) -> bool:
    """Claim one attempt, make it without a transaction, record it. False where somebody else has it."""
    attempt = row.attempt
    claimed = Notification.objects.filter(pk=row.pk, state=states.QUEUED, attempt=attempt).update(
        attempt=attempt + 1, next_at=clock.now() + timedelta(seconds=CLAIM_SECONDS)
    )
    if not claimed:
        return False
    row.attempt = attempt + 1
    outcome = _attempt(row)
    if outcome.good:
        transition(
            row,
            states.DELIVERED,
            actor=ACTOR,
            attempt=row.attempt,
            answer=outcome.answer[:500],
            sent_at=clock.now(),
        )
        return True
    left = PAUSES[row.attempt - 1 :]
    if last_attempt or not outcome.again or not left:
        transition(
            row,
            states.FAILED,
            actor=ACTOR,
            attempt=row.attempt,
            reason="not_delivered",
            sentence=_("%(channel)s was not told: %(answer)s")
            % {"channel": row.channel.name, "answer": outcome.answer},
            remedy=_("Correct the channel, then press Test."),
            answer=outcome.answer[:500],
        )
        return True
    pause = timedelta(seconds=max(left[0], outcome.after))
    amend(row, attempt=row.attempt, next_at=clock.now() + pause, answer=outcome.answer[:500])
    return True


def _attempt(row: Notification) -> Outcome:
    channel = row.channel
    if not channel.enabled and row.event != Notification.Event.TEST:
        return Outcome(False, _("The channel is switched off."), again=False)
    try:
        if channel.type == NotificationChannel.Kind.EMAIL:
            return _mail(row)
        return asyncio.run(_webhook(row))
    except InflightError as error:
        return Outcome(False, error.sentence, again=False)
    except Exception as error:
        log.exception("Notification %s was not sent.", row.uid)
        return Outcome(False, f"{type(error).__name__}: {error}")


async def _webhook(row: Notification) -> Outcome:
    """POST the message; any answer from 200 to 299 is good."""
    allow = settings.INFLIGHT_OUTBOUND_ALLOW
    outbound.check_url(row.channel.url, allow)
    body = messages.encode(row.body)
    timestamp = str(int(time.time()))
    headers = {
        "Content-Type": "application/json; charset=utf-8",
        "User-Agent": "Inflight",
        "X-Inflight-Id": row.uid,
        "X-Inflight-Event": row.event,
        "X-Inflight-Attempt": str(row.attempt),
        "X-Inflight-Timestamp": timestamp,
    }
    if row.channel.secret:
        key = secrets.decrypt(row.channel.secret)
        headers[messages.SIGNATURE_HEADER] = messages.signature(key, timestamp, body)
    timeout = aiohttp.ClientTimeout(total=WEBHOOK_SECONDS)
    try:
        async with (
            outbound.session(allow, timeout=timeout) as session,
            session.post(row.channel.url, data=body, headers=headers, allow_redirects=False) as response,
        ):
            said = (await response.content.read(_MOST_ANSWER)).decode("utf-8", "replace").strip()
            return _judged(response.status, said, response.headers.get("Retry-After", ""))
    except TimeoutError:
        return Outcome(False, _("No answer within %(seconds)d s.") % {"seconds": WEBHOOK_SECONDS})
    except (aiohttp.ClientError, OSError) as error:
        return Outcome(False, str(error) or type(error).__name__)


def _judged(status: int, said: str, retry_after: str) -> Outcome:
    answer = f"{status} {said}".strip()
    if 200 <= status < 300:
        return Outcome(True, answer)
    # Not now, or its own fault: worth another try. Anything else would be refused again.
    again = status in {408, 425, 429} or status >= 500
    after = min(int(retry_after), PAUSES[-1]) if retry_after.isascii() and retry_after.isdigit() else 0
    return Outcome(False, answer, again=again, after=after)


def _mail(row: Notification) -> Outcome:
    if settings.EMAIL_BACKEND.endswith("smtp.EmailBackend") and not settings.EMAIL_HOST:
        return Outcome(
            False, _("No mail server is set: an administrator sets INFLIGHT_SMTP_HOST."), again=False
        )
    message = EmailMessage(
        subject=f"[Inflight] {row.body['title']}"[:200],
        body=messages.mail_text(row.body),
        to=list(row.channel.recipients),
        headers={"X-Inflight-Id": row.uid},
    )
    try:
        message.send()
    except OSError as error:  # smtplib's errors are OSErrors
        return Outcome(False, str(error) or type(error).__name__)
    return Outcome(True, _("handed to the mail server"))


class Courier:
    """A thread of its own for sending: a slow receiver must not hold up the process's other work."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def kick(self) -> None:
        """Send what is due, unless that is going on."""
        if due().exists() and self._lock.acquire(blocking=False):
            threading.Thread(target=self._run, name="alert-courier", daemon=True).start()

    def _run(self) -> None:
        try:
            close_old_connections()
            while send_due():
                pass
        except Exception:
            log.exception("Notifications were not sent; the next kick tries again.")
        finally:
            close_old_connections()
            self._lock.release()


courier = Courier()
