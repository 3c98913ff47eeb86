"""Nodes join with their slots, are set aside, and are judged by their beats."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
import redis

from apps.core import clock, database_time
from apps.core.exceptions import InvalidInput, NotAllowed, NotFound, NotPossibleNow
from apps.core.models import AuditEntry
from apps.core.transitions import transition
from apps.fleet import beats, leads, registration, selectors, services, states, sweep
from apps.fleet.beats import Ages
from apps.fleet.devices import DeviceFacts, HostFacts
from apps.fleet.leases import take_lease
from apps.fleet.models import Gpu, GpuLease, Node
from apps.fleet.policy import PROTOCOL_VERSION
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
    monkeypatch.setattr(registration, "connection", SimpleNamespace(vendor="sqlite"))
    register_node("ctl", "n-two", facts=host())
    with pytest.raises(InvalidInput) as caught:
        register_node("ctl", "n-three", facts=host(hostname="elsewhere"))
    assert (caught.value.code, caught.value.field) == ("sqlite_with_remote_node", "DATABASE_URL")
    monkeypatch.setattr(registration, "connection", SimpleNamespace(vendor="postgresql"))
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
    assert [verdict.node for verdict in sweep.sweep()] == [node.pk]


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


def facts(*slots: DeviceFacts, status: str = "ok", keep: bool = False) -> HostFacts:
    return replace(host(*slots), report={"status": status, "findings": []}, keep_known=keep)


def test_gpus_that_the_driver_cannot_reach_stay_marked_and_come_back(node: Node) -> None:
    two = facts(gpu_facts(0), gpu_facts(1))
    assert services.record_facts("n-one", two)
    assert not services.record_facts("n-one", two), "nothing is written where nothing changed"
    lost = facts(status="nvml_unreachable_in_container", keep=True)
    assert services.record_facts("n-one", lost)
    assert [(slot.device, slot.condition) for slot in node.gpus.all()] == [("gpu", "stale"), ("gpu", "stale")]
    assert not services.record_facts("n-one", lost)
    assert selectors.slots_for_work() == []
    node.refresh_from_db()
    assert node.gpu_report["status"] == "nvml_unreachable_in_container"
    services.record_facts("n-one", two)
    assert {slot.condition for slot in node.gpus.all()} == {"ok"}
    assert not services.record_facts("n-none", two)


def test_a_gpu_that_fell_off_the_bus_is_lost_and_gets_no_work(node: Node) -> None:
    services.record_facts("n-one", facts(gpu_facts(0), replace(gpu_facts(1), condition="lost")))
    assert [slot.index for slot in selectors.slots_for_work()] == [0]


def test_maintenance_labels_policy_and_forgetting(node: Node) -> None:
    operator, administrator = person("operator"), person("administrator")
    services.start_maintenance(operator, node, "new fans", "60")
    assert (node.state, node.reason) == (states.MAINTENANCE, "maintenance")
    assert "new fans" in node.sentence
    first = node.drain_deadline
    services.start_maintenance(operator, node, "", 0)
    assert node.drain_deadline is not None
    assert first is not None
    assert node.drain_deadline < first
    services.end_maintenance(operator, node)
    assert (node.state, node.drain_deadline, node.sentence) == (states.READY, None, "")
    with pytest.raises(NotPossibleNow):
        services.end_maintenance(operator, node)
    services.set_labels(operator, node, {"rack": "a"})
    assert node.labels == {"rack": "a"}
    services.set_policy(administrator, node, {"purposes": ["serve", "build", "test"], "share_gpus": False})
    assert node.policy == {"share_gpus": False}, "only what differs from the defaults is kept"
    with pytest.raises(NotPossibleNow):
        services.forget_node(administrator, node)
    Node.objects.update(state=states.LOST)
    services.forget_node(administrator, node)
    assert not Node.objects.exists()
    verbs = set(AuditEntry.objects.filter(object_type="node").values_list("verb", flat=True))
    assert verbs >= {
        "node.maintenance",
        "node.maintenance_ended",
        "node.labelled",
        "node.policy",
        "node.forgotten",
    }


@pytest.mark.parametrize(
    ("change", "field"),
    [
        (lambda node: services.set_labels("cli", node, {"a b": "c"}), "labels"),
        (lambda node: services.set_labels("cli", node, {"a": 1}), "labels.a"),
        (lambda node: services.set_labels("cli", node, "rack=a"), "labels"),
        (lambda node: services.set_labels("cli", node, {str(n): "x" for n in range(65)}), "labels"),
        (lambda node: services.set_policy("cli", node, {"purposes": ["cook"]}), "policy.purposes.0"),
        (lambda node: services.set_policy("cli", node, {"purposes": []}), "policy.purposes"),
        (lambda node: services.set_policy("cli", node, {"share_gpus": "yes"}), "policy.share_gpus"),
        (
            lambda node: services.set_policy("cli", node, {"mps_pipe_directory": "mps"}),
            "policy.mps_pipe_directory",
        ),
        (lambda node: services.set_policy("cli", node, []), "policy"),
        (lambda node: services.start_maintenance("cli", node, "", -1), "drain_seconds"),
        (lambda node: services.start_maintenance("cli", node, "", "soon"), "drain_seconds"),
        (lambda node: services.start_maintenance("cli", node, "x" * 301), "reason"),
        (lambda node: services.set_cordoned("cli", node, True, "x" * 301), "reason"),
    ],
)
def test_nonsense_names_the_field(node: Node, change: Any, field: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        change(node)
    assert caught.value.field == field
    assert caught.value.remedy


def test_roles(node: Node) -> None:
    viewer, operator = person("viewer"), person("operator")
    for change in (
        lambda: services.start_maintenance(viewer, node),
        lambda: services.end_maintenance(viewer, node),
        lambda: services.set_labels(viewer, node, {}),
        lambda: services.set_labels(operator, node, {"allow_old_triton": "true"}),
        lambda: services.set_policy(operator, node, {}),
        lambda: services.forget_node(operator, node),
    ):
        with pytest.raises(NotAllowed):
            change()


def test_one_node_leads_and_another_takes_over_when_it_ends(node: Node) -> None:
    assert leads.take(leads.PLACEMENT, "n-one")
    assert leads.take(leads.PLACEMENT, "n-one"), "it renews"
    assert not leads.take(leads.PLACEMENT, "n-two")
    leads.Lead.objects.update(until=clock.now() - timedelta(seconds=1))
    assert leads.take(leads.PLACEMENT, "n-two")
    assert not leads.give_up(leads.PLACEMENT, "n-one")
    assert leads.give_up(leads.PLACEMENT, "n-two")
    assert leads.Leadership(leads.PLACEMENT, "n-one").mine()
    assert leads.control_protocol() is None
    leads.announce_protocol()
    assert leads.control_protocol() == PROTOCOL_VERSION
    leads.Lead.objects.update(protocol_version=99)
    leads.announce_protocol()
    assert leads.control_protocol() == PROTOCOL_VERSION


def test_a_clock_that_is_off_is_told_and_decides_nothing(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    set_ages(monkeypatch, {"n-one": Ages(1, 1)})
    monkeypatch.setattr(database_time, "skew_seconds", lambda: 90.0)
    assert saw_node("n-one")
    assert sweep.sweep() == []
    shown = node_dict(Node.objects.get())
    assert (shown["clock_skew_seconds"], shown["clock_is_off"]) == (90.0, True)
