"""Writing records, and removing old ones. Blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta

from django.db import transaction
from django.db.models import F, Q

from apps.core import clock
from apps.gateway.domain.facts import RequestRecord
from apps.gateway.models import GatewayKey, RequestLog, UsageHour
from apps.gateway.usage.counting import Counts, Place

# Recent requests are kept so long and so many, usage so long.
LOG_DAYS = 14
LOG_ROWS = 200_000
USAGE_DAYS = 400
# Rows that one statement removes: a long one would hold SQLite's write lock.
REMOVE_ROWS = 2000
TEXT_LETTERS = 100_000


def write(
    counts: Mapping[Place, Counts],
    used: Mapping[int, float],
    records: Iterable[RequestRecord],
    body_days: Callable[[str], int],
    now: float,
) -> None:
    """Add counts to their hours, set times of last use and append requests, all or nothing."""
    with transaction.atomic():
        _add(counts)
        for key_id, at in sorted(used.items()):
            moment = datetime.fromtimestamp(at, UTC)
            older = Q(last_used_at__isnull=True) | Q(last_used_at__lt=moment)
            GatewayKey.objects.filter(older, pk=key_id).update(last_used_at=moment)
        RequestLog.objects.bulk_create([_row(record, body_days, now) for record in records])


def _add(counts: Mapping[Place, Counts]) -> None:
    """Sorted, so that two processes that add to the same rows never wait for each other."""
    places = sorted(counts)
    UsageHour.objects.bulk_create(
        [
            UsageHour(hour=place.hour, key_id=place.key_id, route=place.route, key_name=place.key_name)
            for place in places
        ],
        ignore_conflicts=True,
    )
    for place in places:
        changes = {name: F(name) + value for name, value in counts[place].changes().items()}
        UsageHour.objects.filter(hour=place.hour, key_id=place.key_id, route=place.route).update(**changes)


def _row(record: RequestRecord, body_days: Callable[[str], int], now: float) -> RequestLog:
    has_text = record.prompt is not None or record.answer is not None
    until = datetime.fromtimestamp(now, UTC) + timedelta(days=body_days(record.route)) if has_text else None
    return RequestLog(
        request_id=clean(record.request_id[:128]),
        at=datetime.fromtimestamp(record.at, UTC),
        key_id=record.key_id or 0,
        key_name=record.key_name[:100],
        route=clean(record.route[:63]),
        upstream=clean(record.upstream[:100]),
        revision=record.revision,
        endpoint=record.endpoint,
        status=record.status,
        outcome=record.outcome[:20],
        reason=clean(record.reason[:60]),
        streamed=record.streamed,
        priority=record.priority.name.lower(),
        prompt_tokens=record.prompt_tokens,
        completion_tokens=record.completion_tokens,
        cached_tokens=record.cached_tokens,
        queue_ms=_ms(record.queue_seconds),
        ttft_ms=_ms(record.ttft_seconds),
        total_ms=_ms(record.total_seconds),
        overhead_ms=_ms(record.overhead_seconds),
        prompt=_text(record.prompt),
        answer=_text(record.answer),
        bodies_until=until,
    )


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1000, 3)


def _text(text: str | None) -> str | None:
    return None if text is None else clean(text[:TEXT_LETTERS])


def clean(text: str) -> str:
    """The text as every database takes it: PostgreSQL refuses NUL, and a lone surrogate cannot be encoded."""
    return text.replace("\x00", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace").decode()


def sweep() -> int:
    """Remove texts whose days are over and what is too old or too much; returns how many rows were touched."""
    now = clock.now()
    over = RequestLog.objects.filter(bodies_until__lt=now).order_by("pk").values_list("pk", flat=True)
    done = RequestLog.objects.filter(pk__in=list(over[:REMOVE_ROWS])).update(
        prompt=None, answer=None, bodies_until=None
    )
    old = RequestLog.objects.filter(at__lt=now - timedelta(days=LOG_DAYS)).order_by("pk")
    done += _remove(list(old.values_list("pk", flat=True)[:REMOVE_ROWS]))
    many = RequestLog.objects.order_by("-pk").values_list("pk", flat=True)[LOG_ROWS : LOG_ROWS + 1].first()
    if many is not None:
        surplus = RequestLog.objects.filter(pk__lte=many).order_by("pk").values_list("pk", flat=True)
        done += _remove(list(surplus[:REMOVE_ROWS]))
    past = UsageHour.objects.filter(hour__lt=now - timedelta(days=USAGE_DAYS)).order_by("pk")
    pks = list(past.values_list("pk", flat=True)[:REMOVE_ROWS])
    return done + UsageHour.objects.filter(pk__in=pks).delete()[0]


def _remove(pks: list[int]) -> int:
    return RequestLog.objects.filter(pk__in=pks).delete()[0]
