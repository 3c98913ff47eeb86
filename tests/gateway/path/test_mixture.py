"""Nothing is left behind: tasks, slots, sockets and memory after a mixture of good and bad requests."""

from __future__ import annotations

import asyncio
import http.client
import json
from typing import Any

import psutil
import pytest

from apps.gateway import keys
from apps.gateway.models import GatewayKey, UsageHour
from apps.gateway.running import snapshot
from tests.gateway.path.mixture import EXPECTED, Mixture
from tests.support import gateway as support
from tests.support.redis import RedisServer
from tests.support.waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.django_db(transaction=True)]


@pytest.mark.parametrize(
    "requests", [400, pytest.param(10_000, marks=[pytest.mark.slow, pytest.mark.timeout(600)])]
)
def test_a_mixture_leaves_nothing_behind(redis_server: RedisServer, settings: Any, requests: int) -> None:
    settings.INFLIGHT_UPSTREAM_ALLOW = ["127.0.0.1"]
    with support.double_process() as port:
        support.external(port, slots=32)
        key, revoked = support.key(), support.key("old")
        keys.revoke_key("test", GatewayKey.objects.get(name="old"))
        with support.gateway(redis_server) as gate:
            mixture = Mixture(gate.port, key, revoked)
            asyncio.run(mixture.run(200, 20))
            process = psutil.Process(gate.process.pid)
            warm = process.memory_info().rss
            asyncio.run(mixture.run(requests, 40, seed=2))
            eventually(lambda: gate.figure("inflight_gateway_running") == 0, "no call runs")
            assert gate.figure("inflight_gateway_waiting") == 0
            eventually(lambda: not snapshot(), "nothing is told to run")
            # The listening socket, Redis, warm connections upstream: no more than slots, whatever came.
            eventually(lambda: len(process.net_connections()) <= 32 + 8, "sockets are closed")
            grown = process.memory_info().rss - warm
            counts = counted(port)
            total = sum(mixture.came.values())
            eventually(lambda: usage("requests") == recorded(mixture), "usage is written", 20)
            assert mixture.odd == []
            assert set(mixture.came) == set(EXPECTED.items())
            assert total == requests + 200
            # The engine's own count: what was sent to it is in usage, and nothing else.
            assert counts["open"] == 0
            assert counts["requests"] <= usage("requests")
            assert usage("completion_tokens") == tokens(mixture)
            assert grown < 40_000_000


def counted(port: int) -> dict[str, int]:
    """What the double counted."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request("GET", "/counts")
    found: dict[str, int] = json.loads(connection.getresponse().read())
    connection.close()
    return found


def usage(column: str) -> int:
    """Sum over everything that was recorded."""
    return sum(UsageHour.objects.values_list(column, flat=True))


def recorded(mixture: Mixture) -> int:
    """Requests with a known key and model whose body was read."""
    kinds = {"whole", "stream", "abort", "slow_reader", "half_open"}
    return sum(count for (kind, _status), count in mixture.came.items() if kind in kinds)


def tokens(mixture: Mixture) -> int:
    """What the double says that it generated, for those whose end it told."""
    each = {"whole": 3, "stream": 5, "slow_reader": 20}
    return sum(each.get(kind, 0) * count for (kind, _status), count in mixture.came.items())
