"""Nodes join with their slots, are set aside, and are judged by their beats."""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
import redis

from apps.core import clock
from apps.core.exceptions import InvalidInput, NotAllowed, NotFound
from apps.core.models import AuditEntry
from apps.core.transitions import transition
from apps.fleet import beats, selectors, services, states, sweep
from apps.fleet.beats import Ages
from apps.fleet.leases import take_lease
from apps.fleet.models import Gpu, GpuLease, Node
from apps.fleet.serialize import node_dict
from apps.fleet.services import beat, echo, register_node, saw_node, set_cordoned
from tests.fleet.conftest import gpu_facts, host
from tests.people import person

pytestmark = pytest.mark.django_db


def test_a_host_joins_with_a_cpu_slot(node: Node) -> None:
    assert node.state == states.READY
    slot = node.gpus.get()
    assert (slot.index, slot.device, slot.total_share) == (0, "cpu", 100)
    assert node.versions["cores"] == "2"
    assert node.last_seen is not None
    assert AuditEntry.objects.get(verb="node.joined").to_state == "ready"


def test_joining_again_changes_nothing_but_what_was_found(node: Node) -> None:
    again = register_node("ctl", "n-one", facts=host(gpu_facts(0), gpu_facts(1)), labels={"rack": "a"})
    assert again.pk == node.pk
    assert again.version > node.version
    assert [slot.device for slot in again.gpus.all()] == ["gpu", "gpu"]
    assert again.labels == {"rack": "a"}
    back = register_node("ctl", "n-one", facts=host())
    assert [slot.device for slot in back.gpus.all()] == ["cpu"]
    assert back.labels == {"rack": "a"}


def test_a_slot_that_is_gone_stays_while_somebody_holds_it(node: Node) -> None:
    register_node("ctl", "n-one", facts=host(gpu_facts(0), gpu_facts(1)))
    lease = take_lease(node.gpus.get(index=1), GpuLease.Purpose.SERVE, node)
    assert lease is not None
    assert register_node("ctl", "n-one", facts=host()).gpus.count() == 2


@pytest.mark.parametrize("state", [states.SUSPECT, states.LOST])
def test_a_node_that_was_given_up_comes_back(node: Node, state: str) -> None:
    Node.objects.filter(pk=node.pk).update(state=state)
    assert register_node("ctl", "n-one", facts=host()).state == states.READY


def test_maintenance_outlasts_a_restart(node: Node) -> None:
    transition(node, states.MAINTENANCE, actor="cli")
    assert register_node("ctl", "n-one", facts=host()).state == states.MAINTENANCE


def test_an_id_is_needed(settings: Any) -> None:
    settings.INFLIGHT_NODE_ID = ""
    with pytest.raises(InvalidInput) as caught:
        register_node("cli", facts=host())
    assert caught.value.field == "INFLIGHT_NODE_ID"
    assert selectors.local_node() is None


def test_sqlite_serves_one_machine(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(services, "connection", SimpleNamespace(vendor="sqlite"))
    register_node("ctl", "n-two", facts=host())
    with pytest.raises(InvalidInput) as caught:
        register_node("ctl", "n-three", facts=host(hostname="elsewhere"))
    assert (caught.value.code, caught.value.field) == ("sqlite_with_remote_node", "DATABASE_URL")
    monkeypatch.setattr(services, "connection", SimpleNamespace(vendor="postgresql"))
    assert register_node("ctl", "n-three", facts=host(hostname="elsewhere")).state == states.READY


def test_cordoning(node: Node) -> None:
    with pytest.raises(NotAllowed):
        set_cordoned(person("viewer"), node, True)
    assert [slot.node_id for slot in selectors.slots_for_work()] == [node.pk]
    assert set_cordoned(person("operator"), node, True).cordoned
    assert selectors.slots_for_work() == []
    assert AuditEntry.objects.filter(verb="node.cordoned", actor_label="operator").exists()
    set_cordoned("cli", node, False)
    assert len(selectors.slots_for_work()) == 1


def test_selectors(node: Node, settings: Any) -> None:
    settings.INFLIGHT_NODE_ID = "n-one"
    assert selectors.local_node() == node
    assert selectors.node("n-one") == node
    with pytest.raises(NotFound):
        selectors.node("n-none")


@pytest.mark.parametrize(
    ("state", "ages", "target", "reason"),
    [
        (states.READY, Ages(1, 1), None, None),
        (states.READY, Ages(9, 9), None, None),
        (states.READY, Ages(9.5, 1), states.SUSPECT, "no_heartbeat"),
        (states.READY, Ages(1, 9.5), states.SUSPECT, "takes_no_tasks"),
        (states.READY, Ages(99, 99), states.SUSPECT, "no_heartbeat"),
        (states.SUSPECT, Ages(12, 1), None, None),
        (states.SUSPECT, Ages(15.5, 1), states.LOST, "no_heartbeat"),
        (states.SUSPECT, Ages(1, 15.5), states.LOST, "takes_no_tasks"),
        (states.READY, Ages(1, None), None, None),
    ],
)
def test_judgement(node: Node, state: str, ages: Ages, target: str | None, reason: str | None) -> None:
    Node.objects.filter(pk=node.pk).update(state=state)
    node.refresh_from_db()
    verdict = sweep.judge(node, ages)
    assert (verdict and verdict.target, verdict and verdict.reason) == (target, reason)


@pytest.mark.parametrize(("seconds", "target"), [(20, None), (26, states.SUSPECT)])
def test_a_beat_that_redis_lost_is_judged_by_the_row(node: Node, seconds: int, target: str | None) -> None:
    Node.objects.filter(pk=node.pk).update(last_seen=clock.now() - timedelta(seconds=seconds))
    node.refresh_from_db()
    verdict = sweep.judge(node, Ages(None, None))
    assert (verdict and verdict.target) == target


def set_ages(monkeypatch: pytest.MonkeyPatch, ages: dict[str, Ages]) -> None:
    monkeypatch.setattr(beats, "ages", lambda ids: {node_id: ages[node_id] for node_id in ids})


def test_a_silent_node_is_suspect_then_lost_and_says_why(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    set_ages(monkeypatch, {"n-one": Ages(20, 20)})
    assert [verdict.target for verdict in sweep.sweep()] == [states.SUSPECT]
    node.refresh_from_db()
    assert (node.state, node.reason) == (states.SUSPECT, "no_heartbeat")
    assert node.sentence
    assert node.remedy
    assert selectors.slots_for_work() == []
    assert [verdict.target for verdict in sweep.sweep()] == [states.LOST]
    assert sweep.sweep() == []


def test_when_most_nodes_fall_silent_at_once_this_host_doubts_itself(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("n-two", "n-three"):
        register_node("ctl", name, facts=host())
    silent, well = Ages(20, 20), Ages(1, 1)
    set_ages(monkeypatch, {"n-one": silent, "n-two": silent, "n-three": well})
    assert sweep.sweep() == []
    set_ages(monkeypatch, {"n-one": silent, "n-two": well, "n-three": well})
    assert [verdict.node.node_id for verdict in sweep.sweep()] == ["n-one"]


def test_nobody_is_judged_without_redis(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(ids: list[str]) -> None:
        raise redis.ConnectionError("gone")

    monkeypatch.setattr(beats, "ages", gone)
    assert sweep.sweep() == []
    assert node_dict(node)["beat_age_seconds"] is None


@pytest.mark.integration
def test_beats_and_echoes_age_by_redis_own_clock(node: Node, redis_server: Any) -> None:
    assert selectors.last_beat("n-one") == Ages(None, None)
    beat("n-one")
    ages = selectors.last_beat("n-one")
    assert ages.beat is not None
    assert 0 <= ages.beat < 3
    assert ages.echo is None
    with redis_server.client(3) as client:
        client.pexpire("beat:n-one", int((beats.BEAT_KEPT_SECONDS - 30) * 1000))
    aged = selectors.last_beat("n-one").beat
    assert aged is not None
    assert 29 < aged < 33
    Node.objects.filter(pk=node.pk).update(state=states.SUSPECT)
    echo("n-one")
    node.refresh_from_db()
    assert node.state == states.READY
    assert saw_node("n-one")
    assert not saw_node("n-none")
    shown = node_dict(node)
    assert shown["gpus"][0]["free_share"] == 100
    assert shown["echo_age_seconds"] < 3


@pytest.mark.integration
def test_what_a_redis_that_is_gone_raises(node: Node, redis_server: Any) -> None:
    redis_server.stop()
    with pytest.raises(redis.RedisError):
        beat("n-one")
    assert sweep.sweep() == []


def test_gpu_names(node: Node) -> None:
    assert str(node.gpus.get()) == "host cpu0"
    assert Gpu.Device.CPU == "cpu"
