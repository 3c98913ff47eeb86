"""Replicas get places, say why they wait, leave nodes that are to be empty, and are granted once."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from apps.core import clock
from apps.core.exceptions import InvalidInput
from apps.fleet import services as fleet
from apps.fleet import states as fleet_states
from apps.fleet.models import Gpu, GpuLease, Node
from apps.serving import inputs, placing, states
from apps.serving import reconcile as rows_side
from apps.serving.models import Deployment, Instance
from apps.serving.place_requests import environment_of
from apps.serving.shapes import Placement
from tests import fleet_rows, objects

pytestmark = pytest.mark.django_db


def running(name: str = "demo", placement: dict[str, Any] | None = None, replicas: int = 1) -> Deployment:
    """A deployment whose active revision should run."""
    made = objects.deployment(name, replicas=replicas, placement=placement or {"device": "gpu"})
    revision = objects.revision(made)
    type(revision).objects.filter(pk=revision.pk).update(replicas=replicas, placement=made.placement)
    Deployment.objects.filter(pk=made.pk).update(
        state=states.STARTING, desired=Deployment.Desired.RUNNING, active_revision=revision
    )
    made.refresh_from_db()
    return made


def only(deployment: Deployment) -> Instance:
    return deployment.instances.get()


def serve(row: Instance) -> Instance:
    Instance.objects.filter(pk=row.pk).update(state=states.SERVING, serving_since=clock.now())
    row.refresh_from_db()
    return row


def test_the_best_of_all_nodes_is_chosen_and_the_reason_is_kept() -> None:
    nodes = fleet_rows.many_nodes(2, gpus=2)
    holder = objects.node("holder")
    fleet.take_lease(nodes[0].gpus.get(index=0), GpuLease.Purpose.BUILD, holder)
    demo = running()
    rows_side.reconcile_deployments(nodes[0])
    row = only(demo)
    assert (row.state, row.node_id) == (states.PLACED, nodes[1].pk)
    assert "least loaded (spread)" in row.placement["why"]
    assert row.placement["gpus"][0]["uuid"] == row.gpu.uuid if row.gpu else False
    assert row.placement["environment"] == {"CUDA_VISIBLE_DEVICES": row.gpu.uuid if row.gpu else ""}
    assert GpuLease.objects.filter(holder_kind="instance", holder_id=row.pk).count() == 1


def test_several_gpus_of_one_host_are_leased_together_or_not_at_all() -> None:
    (node,) = fleet_rows.many_nodes(1, gpus=4)
    demo = running(placement={"device": "gpu", "gpus": 3})
    rows_side.reconcile_deployments(node)
    row = only(demo)
    assert [gpu["index"] for gpu in row.placement["gpus"]] == [0, 1, 2]
    assert row.placement["environment"]["CUDA_VISIBLE_DEVICES"].count(",") == 2
    other = running("other", {"device": "gpu", "gpus": 2})
    rows_side.reconcile_deployments(node)
    assert not other.instances.exists()
    other.refresh_from_db()
    assert other.reason == "no_free_share"
    assert "2 GPUs of one host are needed" in other.placement_report["sentence"]
    assert other.placement_report["waits"][0]["nodes"] == 1
    assert GpuLease.objects.filter(released_at__isnull=True).count() == 3


def test_why_nothing_is_chosen_is_said_for_each_kind_of_node_and_taken_back() -> None:
    first, second = fleet_rows.many_nodes(2, gpus=1)
    fleet.set_cordoned("cli", first, True, "new driver")
    Node.objects.filter(pk=second.pk).update(state=fleet_states.SUSPECT)
    demo = running()
    rows_side.reconcile_deployments(first)
    demo.refresh_from_db()
    assert demo.reason == "no_slot"
    assert "cordoned: new driver" in demo.sentence
    assert "suspect" in demo.sentence
    version = demo.version
    rows_side.reconcile_deployments(first)
    demo.refresh_from_db()
    assert demo.version == version, "said once"
    fleet.set_cordoned("cli", first, False)
    rows_side.reconcile_deployments(first)
    demo.refresh_from_db()
    assert only(demo).node_id == first.pk
    assert demo.placement_report == {}


def test_a_node_that_does_not_lead_places_nothing() -> None:
    (node,) = fleet_rows.many_nodes(1)
    demo = running()
    assert rows_side.reconcile_deployments(node, leads=False) == set()
    assert not demo.instances.exists()
    row = serve(objects.instance(demo.active_revision, node=node))  # type: ignore[arg-type]
    Deployment.objects.filter(pk=demo.pk).update(desired=Deployment.Desired.STOPPED)
    assert rows_side.reconcile_deployments(node, leads=False) == {row.pk}, "its own servers it drains itself"


def test_a_node_in_maintenance_is_emptied_start_before_stop() -> None:
    first, second = fleet_rows.many_nodes(2, gpus=1)
    demo = running()
    rows_side.reconcile_deployments(first)
    old = serve(only(demo))
    node = Node.objects.get(pk=old.node_id)
    fleet.start_maintenance("cli", node, "new fans", 600)
    assert rows_side.reconcile_deployments(first) == set()
    successor = demo.instances.exclude(pk=old.pk).get()
    old.refresh_from_db()
    assert successor.node_id == (second if node == first else first).pk
    assert (old.state, old.evicted_at is not None) == (states.SERVING, True), "it serves until the other does"
    serve(successor)
    assert rows_side.reconcile_deployments(first) == {old.pk}
    assert rows_side.reconcile_deployments(node, leads=False) == {old.pk}


def test_without_another_place_a_server_stays_until_the_deadline() -> None:
    (node,) = fleet_rows.many_nodes(1, gpus=1)
    demo = running()
    rows_side.reconcile_deployments(node)
    old = serve(only(demo))
    fleet.start_maintenance("cli", node, "", 600)
    rows_side.reconcile_deployments(node)
    old.refresh_from_db()
    assert (old.evicted_at, old.stop_requested_at) == (None, None)
    Node.objects.update(drain_deadline=clock.now() - timedelta(seconds=1))
    rows_side.reconcile_deployments(node)
    old.refresh_from_db()
    assert old.stop_requested_at is not None
    assert old.pk in rows_side.reconcile_deployments(node)


def test_servers_of_a_lost_node_get_a_successor_and_are_left_alone() -> None:
    first, second = fleet_rows.many_nodes(2, gpus=1)
    demo = running()
    rows_side.reconcile_deployments(first)
    old = serve(only(demo))
    Node.objects.filter(pk=old.node_id).update(state=fleet_states.LOST)
    Instance.objects.filter(pk=old.pk).update(state=states.UNREACHABLE)
    other = second if old.node_id == first.pk else first
    assert rows_side.reconcile_deployments(other) == set()
    assert demo.instances.exclude(pk=old.pk).get().node_id == other.pk
    old.refresh_from_db()
    assert (old.state, old.stop_requested_at) == (states.UNREACHABLE, None)


def test_workers_of_another_protocol_drain() -> None:
    first, second = fleet_rows.many_nodes(2, gpus=1)
    demo = running()
    rows_side.reconcile_deployments(first)
    old = serve(only(demo))
    Node.objects.filter(pk=old.node_id).update(protocol_version=99)
    other = second if old.node_id == first.pk else first
    rows_side.reconcile_deployments(other)
    assert demo.instances.exclude(pk=old.pk).get().node_id == other.pk


def test_mps_only_where_wanted_offered_and_shared() -> None:
    (node,) = fleet_rows.many_nodes(1, gpus=1)
    slot = node.gpus.get()
    node.policy = {"mps_pipe_directory": "/run/mps"}
    found = environment_of(node, [slot], [50], {"mps": True})
    assert found["CUDA_MPS_PIPE_DIRECTORY"] == "/run/mps"
    assert found["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "50"
    assert found["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == f"0={141 * 1024 // 2}M"
    for share, placement in ((100, {"mps": True}), (50, {})):
        assert list(environment_of(node, [slot], [share], placement)) == ["CUDA_VISIBLE_DEVICES"]
    cpu = objects.node("cpu")
    assert environment_of(cpu, [cpu.gpus.get()], [25], {}) == {"CUDA_VISIBLE_DEVICES": ""}
    assert cpu.gpus.get().device == Gpu.Device.CPU


@pytest.mark.parametrize(
    ("placement", "field"),
    [
        ({"gpus": 0}, "placement.gpus"),
        ({"gpus": True}, "placement.gpus"),
        ({"memory": "much"}, "placement.memory"),
        ({"memory": "24GiB", "share": 50}, "placement.memory"),
        ({"nodes": []}, "placement.nodes"),
        ({"slots": [-1]}, "placement.slots.0"),
        ({"labels": {"a b": "c"}}, "placement.labels"),
        ({"labels": ["a"]}, "placement.labels"),
        ({"mig": "some"}, "placement.mig"),
        ({"strategy": "best"}, "placement.strategy"),
        ({"purpose": "build"}, "placement.purpose"),
        ({"rack": "a"}, "placement.rack"),
    ],
)
def test_a_placement_that_cannot_be_used_names_the_field(placement: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        inputs.check_placement(placement)
    assert caught.value.field == field
    assert caught.value.remedy


def test_where_no_memory_plan_can_be_made_the_size_of_the_files_counts_and_is_told() -> None:
    (node,) = fleet_rows.many_nodes(1, gpus=1)
    demo = running()
    revision = demo.active_revision
    assert revision is not None
    engine = revision.engine
    assert engine is not None
    type(engine).objects.update(builder="trtllm", quantization="none", size_bytes=10**15)
    rows_side.reconcile_deployments(node)
    demo.refresh_from_db()
    assert "of memory are needed on each GPU" in demo.placement_report["sentence"]
    assert "the engine's files are as large" in demo.placement_report["sentence"]
    type(engine).objects.update(size_bytes=2**30)
    rows_side.reconcile_deployments(node)
    assert "1.0 GiB of memory were taken for it (no memory plan: " in only(demo).placement["why"]


def test_a_placement_keeps_what_was_written_and_nothing_else() -> None:
    given = {"device": "gpu", "memory": "24GiB", "labels": {"rack": "a"}, "nvlink": True, "nodes": ["n1"]}
    kept = inputs.check_placement(given)
    assert kept == {**given, "memory": 24 * 2**30}
    assert Placement.model_validate(given).model_dump() == kept
    assert inputs.check_placement(kept) == kept


def test_a_tick_costs_the_same_number_of_queries_for_few_and_many(django_assert_max_num_queries: Any) -> None:
    made = fleet_rows.fleet(nodes=8, servers=8, gpus=8)
    leader = made.nodes[0]
    counts = []
    for _round in range(2):
        rows_side.reconcile_deployments(leader)  # places the one that is missing, then nothing is left to do
        with django_assert_max_num_queries(12) as asked:
            rows_side.reconcile_deployments(leader)
        counts.append(len(asked))
        fleet_rows.many_servers(made.nodes, 16)
    assert counts[0] == counts[1]
    with django_assert_max_num_queries(6):
        rows_side.reconcile_deployments(leader, leads=False)
    with django_assert_max_num_queries(4):
        placing.new_round().look()
