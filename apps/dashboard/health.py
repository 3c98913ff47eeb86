"""Liveness and readiness, and whether live updates can reach the pages."""

from __future__ import annotations

import time

from django.conf import settings
from django.contrib.auth.decorators import login_not_required
from django.db import DatabaseError, connection
from django.http import HttpRequest, JsonResponse
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache

from apps.realtime.redis_clients import REDIS_ERRORS, sync_client

# One answer serves every page of this many seconds, so that a dead Redis does not slow each of them.
_KEPT_SECONDS = 2.0
_last: tuple[float, str] = (0.0, "")


@login_not_required
@never_cache
def healthz(request: HttpRequest) -> JsonResponse:
    """200 while this process answers; says nothing about what it depends on (readyz does)."""
    return JsonResponse({"status": "ok"})


@login_not_required
@never_cache
def readyz(request: HttpRequest) -> JsonResponse:
    """200 when the database and Redis answer now, else 503 naming what does not. Causes stay in the log."""
    checks = {"database": _database(), "redis": _redis()}
    ready = all(checks.values())
    named = {name: "ok" if good else "failed" for name, good in checks.items()}
    return JsonResponse(
        {"status": "ok" if ready else "failed", "checks": named}, status=200 if ready else 503
    )


def live_problem() -> str:
    """Why pages are not updated live, or an empty text while they are."""
    global _last  # noqa: PLW0603 - one answer for the whole process
    asked, answer = _last
    if time.monotonic() - asked > _KEPT_SECONDS or not asked:
        answer = (
            "" if _redis() else _("Redis does not answer, so changes do not reach this page by themselves.")
        )
        _last = (time.monotonic(), answer)
    return answer


def _redis() -> bool:
    if "InMemory" in settings.CHANNEL_LAYERS["default"]["BACKEND"]:
        return True
    try:
        sync_client().ping()
    except REDIS_ERRORS:
        return False
    return True


def _database() -> bool:
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
            cursor.fetchone()
    except DatabaseError:
        return False
    return True
