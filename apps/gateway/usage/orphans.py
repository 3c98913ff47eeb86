"""What a gateway process that was killed had begun, counted out of its last snapshot by the next one.

A process writes twice a second what it is sending (running.py). Where the process is gone, its requests were
interrupted then; those that it had recorded itself in the meantime are left out.
"""

from __future__ import annotations

import logging
import os
import time

from django.db import DatabaseError, close_old_connections

from apps.gateway.domain.facts import Priority, RequestRecord
from apps.gateway.models import RequestLog
from apps.gateway.running import BEGUN_PREFIX, BEGUN_SECONDS, RunningRequest, read
from apps.realtime.redis_clients import REDIS_ERRORS, sync_client

log = logging.getLogger(__name__)

INTERRUPTED = 499
# Redis or the database is away.
AWAY: tuple[type[Exception], ...] = (*REDIS_ERRORS, DatabaseError)


def adopt(own: str) -> list[RequestRecord]:
    """Records of requests that ended with their process; each is told once. Blocks; empty where Redis is away.

    `own` is this process's name. Processes share a host: which of them lives is looked up by its number.
    """
    found: list[RequestRecord] = []
    close_old_connections()
    try:
        client = sync_client()
        for key in list(client.scan_iter(match=f"{BEGUN_PREFIX}*", count=100)):
            name = str(key).removeprefix(BEGUN_PREFIX)
            if name == own or _lives(name):
                continue
            # Whoever takes it away counts it.
            text = client.getdel(key)
            if not text:
                continue
            try:
                found += [_record(one) for one in _unrecorded(list(read(str(text))))]
            except DatabaseError:
                client.set(key, text, ex=BEGUN_SECONDS)
                raise
    except AWAY as error:
        log.info("What killed gateways had begun is counted later: %s", error)
    return found


def _lives(name: str) -> bool:
    pid = name.partition("-")[0]
    if not pid.isdigit() or int(pid) == os.getpid():
        # A name of ours is told apart by the letters after the number: this one was of an earlier process.
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _unrecorded(rows: list[RunningRequest]) -> list[RunningRequest]:
    ids = [row.request_id for row in rows]
    known = set(RequestLog.objects.filter(request_id__in=ids).values_list("request_id", flat=True))
    return [row for row in rows if row.request_id not in known]


def _record(row: RunningRequest) -> RequestRecord:
    return RequestRecord(
        request_id=row.request_id,
        key_id=row.key_id,
        key_name=row.key_name,
        route=row.route,
        upstream=row.upstream,
        revision=None,
        endpoint=row.endpoint,  # type: ignore[arg-type]
        at=row.began,
        status=INTERRUPTED,
        outcome="interrupted",
        reason="gateway_killed",
        streamed=row.streamed,
        priority=Priority(row.priority),
        completion_tokens=row.tokens if row.counted else None,
        queue_seconds=row.queue_seconds,
        ttft_seconds=row.ttft_seconds,
        total_seconds=time.time() - row.began,
    )
