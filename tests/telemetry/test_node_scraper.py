"""A joined host's own scraper: what it writes, and how the telemetry process takes it up."""

from __future__ import annotations

import json
from typing import Any

import pytest

from apps.telemetry import devices, node_scraper, store, targets
from apps.telemetry.node_scraper import NodeScraper, RemoteProcess, Server, Told
from apps.telemetry.storage.rollups import Rollups


class _Redis:
    def __init__(self) -> None:
        self.kept: dict[str, str] = {}

    def pipeline(self, transaction: bool = True) -> _Redis:
        return self

    def set(self, key: str, value: str, px: int = 0) -> None:
        assert px == node_scraper.FRESH_MS
        self.kept[key] = value

    async def execute(self) -> None:
        pass

    def get(self, key: str) -> str | None:
        return self.kept.get(key)


async def test_it_tells_of_its_host_its_gpus_and_its_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    redis, written = _Redis(), {}

    async def write(samples: dict[str, Any], more: Any = None, alive: bool = True) -> None:
        assert not alive
        written.update(samples)

    monkeypatch.setattr(store, "write", write)
    monkeypatch.setattr(targets, "devices", lambda: (7, [targets.Device(3, 7, "GPU-a")]))
    monkeypatch.setattr(node_scraper, "servers", lambda: [Server(11, 1, None, "GPU-a")])
    monkeypatch.setattr(devices.Gpus, "read", lambda self, uuids: {"GPU-a": {"gpu_use": 0.5}})
    monkeypatch.setattr(devices, "host", lambda: {"host_memory_used_bytes": 5.0})
    monkeypatch.setattr(devices.ProcessGauge, "read", lambda self: {"cpu_use": 0.1, "rss_bytes": 2.0})
    monkeypatch.setattr(node_scraper, "async_client", lambda: redis)
    monkeypatch.setattr(node_scraper, "sync_client", lambda: redis)
    rollups = Rollups()
    await NodeScraper(rollups).once()
    assert written[store.gpu_key(3)]["gpu_use"] == 0.5
    assert written[store.node_key(7)]["host_memory_used_bytes"] == 5.0
    assert RemoteProcess(11).read() == Told({"cpu_use": 0.1, "rss_bytes": 2.0}, {"gpu_use": 0.5})
    assert RemoteProcess(12).read() == Told({}, {})
    rollups.close()
    closed = rollups.take()
    assert closed is not None
    assert len(closed.buckets) == 2
    assert closed.marks == {}


@pytest.mark.parametrize("text", ["", "{", "[]", "3", '{"process": 3}', json.dumps({"gpu": "x"})])
def test_what_cannot_be_read_is_nothing(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    redis = _Redis()
    redis.kept[node_scraper.key_of(1)] = text
    monkeypatch.setattr(node_scraper, "sync_client", lambda: redis)
    assert RemoteProcess(1).read() == Told({}, {})
