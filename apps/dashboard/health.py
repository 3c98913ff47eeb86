"""Liveness for supervisors and load balancers."""

from __future__ import annotations

from django.contrib.auth.decorators import login_not_required
from django.http import HttpRequest, JsonResponse
from django.views.decorators.cache import never_cache


@login_not_required
@never_cache
def healthz(request: HttpRequest) -> JsonResponse:
    """200 while this process answers; says nothing about what it depends on (readyz does)."""
    return JsonResponse({"status": "ok"})
