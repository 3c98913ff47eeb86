"""Rows of the gateway for tests of pages: a key, a route, an external deployment, usage, an ended request."""

from __future__ import annotations

from datetime import timedelta

from django.contrib.auth.models import User

from apps.core import clock
from apps.gateway.models import ExternalDeployment, GatewayKey, GatewayRoute, RequestLog, UsageHour
from tests.support.sequences import go_on_after


def everything(owner: User | None = None, name: str = "checkout service") -> GatewayKey:
    """One of each; key and request are number 1, the route is `assistant`, the external deployment `elsewhere`."""
    owner = owner or User.objects.get_or_create(username="keyholder")[0]
    key = gateway_key(owner, name, pk=1, requests_per_minute=60, tokens_per_minute=20_000, routes=["demo"])
    ExternalDeployment.objects.create(
        pk=1, name="elsewhere", base_url="https://api.example.org/v1", model="large-1", slots=8
    )
    GatewayRoute.objects.create(
        pk=1,
        name="assistant",
        targets=[
            {"deployment": "demo", "weight": 9.0, "max_prompt_tokens": 512},
            {"external": "elsewhere", "weight": 1.0},
        ],
        fallback="demo",
        concurrent_requests=32,
        record_bodies=True,
    )
    usage(key)
    ended(key, pk=1)
    go_on_after(GatewayKey, ExternalDeployment, GatewayRoute, RequestLog)
    return key


def gateway_key(owner: User, name: str = "app", **columns: object) -> GatewayKey:
    """A key whose text nobody knows."""
    number = GatewayKey.objects.count()
    return GatewayKey.objects.create(
        owner=owner, name=name, prefix=f"ik-test{number:02d}", digest=f"{number:064d}", **columns
    )


def usage(key: GatewayKey, route: str = "demo", hours: int = 3) -> None:
    """Some use in each of the last hours."""
    hour = clock.now().replace(minute=0, second=0, microsecond=0)
    for number in range(hours):
        UsageHour.objects.create(
            hour=hour - timedelta(hours=number),
            key_id=key.pk,
            key_name=key.name,
            route=route,
            requests=120 + number,
            errors=1,
            refused=4,
            prompt_tokens=30_000,
            completion_tokens=9_000,
            ttft_ms=12_000,
            ttft_count=110,
            ttft_100=60,
            ttft_200=45,
            ttft_800=5,
        )


def ended(key: GatewayKey, **columns: object) -> RequestLog:
    """A request that ended well, with its texts."""
    given = {
        "request_id": "req-0001",
        "at": clock.now(),
        "key_id": key.pk,
        "key_name": key.name,
        "route": "demo",
        "upstream": "k3v9q2m8tx",
        "revision": 1,
        "endpoint": "chat",
        "status": 200,
        "outcome": "ok",
        "streamed": True,
        "prompt_tokens": 42,
        "completion_tokens": 128,
        "queue_ms": 3.2,
        "ttft_ms": 142.2,
        "total_ms": 2210.0,
        "overhead_ms": 0.4,
        "prompt": "What is the capital of France?",
        "answer": "Paris.",
        "bodies_until": clock.now() + timedelta(days=7),
    }
    return RequestLog.objects.create(**{**given, **columns})
