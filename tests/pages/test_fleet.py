"""The map of the fleet, a node, a slot, and the page from which hosts join."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from apps.accounts.roles import ADMINISTRATOR, VIEWER
from apps.dashboard.fleet import map as fleet_map
from apps.dashboard.fleet.map import Slot
from apps.dashboard.formats import ABSENT
from apps.fleet.leases import take_lease
from apps.fleet.models import Gpu, GpuLease, JoinToken, Node
from apps.telemetry import store
from tests.pages.conftest import World

SignIn = Callable[..., Client]


def _fleet(nodes: int, gpus: int = 8) -> None:
    Node.objects.bulk_create(
        Node(
            node_id=f"n-{n:03}", hostname=f"host-{n:03}.example", state="lost" if n == nodes - 1 else "ready"
        )
        for n in range(nodes)
    )
    Gpu.objects.bulk_create(
        Gpu(node=node, index=index, product="H100", memory_bytes=80 << 30, uuid=f"GPU-{node.pk}-{index}")
        for node in Node.objects.filter(node_id__startswith="n-")
        for index in range(gpus)
    )


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every GPU tells the same figures."""
    sample: dict[str, float | None] = {
        "at": time.time(), "gpu_use": 0.5, "gpu_memory_used_bytes": float(60 << 30),
        "gpu_memory_total_bytes": float(80 << 30), "gpu_power_watts": 650.0, "gpu_power_limit_watts": 700.0,
        "gpu_temperature_celsius": 64.0,
    }  # fmt: skip
    monkeypatch.setattr(store, "newest_of", lambda keys, within: [sample] * len(keys))


@pytest.mark.parametrize(
    ("nodes", "density", "piece"),
    [
        (1, "roomy", 'class="slot-card"'),
        (40, "compact", 'class="slot-tile"'),
        (500, "dense", 'class="map-node"'),
    ],
)
def test_the_map_shows_as_much_of_each_node_as_there_is_room_for(
    sign_in: SignIn, told: None, nodes: int, density: str, piece: str
) -> None:
    _fleet(nodes)
    client = sign_in(VIEWER)
    with CaptureQueriesContext(connection) as queries:
        text = client.get("/fleet/?by=memory").content.decode()
    assert len(queries) <= 20
    assert f"map-{density}" in text
    count = nodes if density == "dense" else 8 * nodes
    assert text.count(piece) == count
    # The one in trouble comes first.
    assert re.search(r"host-\d+\.example", text)[0] == f"host-{nodes - 1:03}.example"  # type: ignore[index]
    assert len(text) < 900_000


@pytest.mark.parametrize(
    ("by", "words"),
    [("held", "0\u202f%"), ("use", "50\u202f%"), ("memory", "75\u202f%"), ("temperature", "64\u202f°C"),
     ("power", "650\u202fW")],
)  # fmt: skip
def test_what_the_bars_say_is_chosen_in_the_address(sign_in: SignIn, told: None, by: str, words: str) -> None:
    _fleet(1, 1)
    text = sign_in(VIEWER).get(f"/fleet/?by={by}").content.decode()
    assert words in text
    assert f'?by={by}" aria-current="true"' in text


def test_another_word_is_refused_with_those_that_are_known(sign_in: SignIn) -> None:
    answer = sign_in(VIEWER).get("/fleet/?by=colour")
    assert answer.status_code == 422
    assert "held, use, memory, temperature, power" in answer.content.decode()


@pytest.mark.parametrize(
    ("query", "names"),
    [("q=host-003", {"host-003.example"}), ("q=h100+host-002", {"host-002.example"}),
     ("state=lost", {"host-004.example"}), ("q=nothing", set())],
)  # fmt: skip
def test_nodes_are_found_by_name_device_and_state(sign_in: SignIn, query: str, names: set[str]) -> None:
    _fleet(5, 2)
    text = sign_in(VIEWER).get(f"/fleet/?{query}").content.decode()
    assert set(re.findall(r"host-\d+\.example", text)) == names
    assert names or "No node fits this filter." in text


def test_what_nobody_tells_is_a_dash_and_not_zero() -> None:
    slot = Slot(Gpu(device="gpu", index=0, memory_bytes=None), by="temperature")
    assert (slot.words, slot.level, slot.percent) == (ABSENT, "unknown", 0)
    assert slot.share("memory") is None
    slot.sample = {"at": 1.0, "gpu_power_watts": 100.0}
    assert slot.share("power") is None
    totals = fleet_map.totals([], 0, 0)
    assert (totals.used_bytes, totals.watts, totals.hottest) == (None, None, None)


def test_a_node_shows_who_holds_what_and_what_happened(world: World, sign_in: SignIn) -> None:
    slot = world.node.gpus.get()
    take_lease(slot, GpuLease.Purpose.SERVE, world.instance, 50)
    Node.objects.filter(pk=world.node.pk).update(
        folders=[
            {
                "name": "engines",
                "path": "/srv/engines",
                "total_bytes": 2**40,
                "free_bytes": 2**39,
                "writable": False,
            }
        ],
        clock_skew_seconds=1.5,
        labels={"zone": "a"},
    )
    text = sign_in(VIEWER).get("/fleet/n1/").content.decode()
    for words in ("server of demo", "/srv/engines", "not writable", "1.50 s", "zone=a", "cpu0", "Timeline"):
        assert words in text, words


def test_a_slot_shows_its_holders_now_and_before_and_its_slices(
    world: World, sign_in: SignIn, told: None
) -> None:
    node = world.node
    for index, profile in ((0, ""), (101, "1g.10gb"), (102, "2g.20gb")):
        Gpu.objects.update_or_create(
            node=node, index=index,
            defaults={"device": "gpu", "product": "A100", "mig_parent": 0 if profile else None,
                      "mig_profile": profile, "nvlink_group": 2, "numa_node": 1, "memory_bytes": 10 << 30},
        )  # fmt: skip
    slice_ = node.gpus.get(index=101)
    lease = take_lease(slice_, GpuLease.Purpose.SERVE, world.instance, 100)
    assert lease is not None
    text = sign_in(VIEWER).get("/fleet/n1/101/").content.decode()
    for words in ("server of demo", "1g.10gb", "2g.20gb", "NVLink group", "64\u202f°C", "Slice of"):
        assert words in text, words
    GpuLease.objects.filter(pk=lease.pk).update(released_at=lease.taken_at)
    text = sign_in(VIEWER).get("/fleet/n1/101/").content.decode()
    assert "Nobody holds it." in text
    assert text.index("Who held it before") < text.index("server of demo")
    found = sign_in(VIEWER).get("/api/v1/nodes/n1/slots/101").json()
    assert (found["mig_profile"], found["leases"], found["earlier"][0]["share"]) == ("1g.10gb", [], 100)


def test_curves_are_asked_for_by_range_or_since(
    world: World, sign_in: SignIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = sign_in(VIEWER)
    now = time.time()
    monkeypatch.setattr(store, "read", lambda key, since: [{"at": now, "host_cpu_use": 0.5, "secret": 1.0}])
    found = client.get(f"/fleet/n1/data.json?since={now - 5}").json()["samples"]
    assert (found[0]["at"], found[0]["host_cpu_use"]) == (now, 0.5)
    assert "secret" not in found[0]
    assert client.get("/fleet/n1/data.json?range=1h").json()["frame"]["step"] > 0
    for url in ("/fleet/n1/data.json?since=x", "/fleet/n1/0/data.json?since=nan", "/fleet/n1/?range=never"):
        assert client.get(url).status_code == 422
    assert client.get("/fleet/n-none/").status_code == 404
    assert client.get("/fleet/n1/99/").status_code == 404


def test_the_command_of_a_new_host_is_shown_once(sign_in: SignIn, settings: Any) -> None:
    client = sign_in(ADMINISTRATOR)
    settings.INFLIGHT_DATABASE_URL = ""
    assert "SQLite file" in client.get("/fleet/-/join/").content.decode()
    settings.INFLIGHT_DATABASE_URL = "postgres://u:pw@db.example/inflight"
    settings.INFLIGHT_REDIS_URL = "rediss://:pw@redis.example"
    text = client.post("/fleet/-/join/", {"labels": "zone=a rack=1", "minutes": "15"}).content.decode()
    token = re.search(r"INFLIGHT_JOIN_TOKEN=(ifj_[\w-]+)", text)
    assert token
    assert "pw@" not in text
    again = client.get("/fleet/-/join/").content.decode()
    assert token[1] not in again
    row = JoinToken.objects.get()
    assert row.labels == {"zone": "a", "rack": "1"}
    assert row.prefix in again
    assert "is no label" in client.post("/fleet/-/join/", {"labels": "zone"}).content.decode()
    assert "1 to 1440 minutes" in client.post("/fleet/-/join/", {"minutes": "x"}).content.decode()
    client.post(f"/fleet/-/join/{row.pk}/revoke/")
    row.refresh_from_db()
    assert row.revoked_at is not None
