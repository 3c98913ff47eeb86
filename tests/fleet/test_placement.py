"""Where work goes and why: one table of requests, hosts and answers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.fleet.domain.placement import Choice, Host, Refusal, Request, Slot, choose, taken

GIB = 2**30


def gpu(index: int, row: int | None = None, **more: Any) -> Slot:
    known: dict[str, Any] = {"product": "H200", "memory_bytes": 140 * GIB, "sm": 90}
    return Slot(gpu=100 + index if row is None else row, index=index, device="gpu", **{**known, **more})


def cpu(row: int = 1, **more: Any) -> Slot:
    return Slot(gpu=row, index=0, device="cpu", product="CPU", memory_bytes=8 * GIB, **more)


def host(node: int = 1, *slots: Slot, **more: Any) -> Host:
    name = f"h{node}"
    given = tuple(replace(slot, gpu=1000 * node + slot.gpu) for slot in slots)
    return Host(node=node, name=name, node_id=f"n{node}", slots=given, **more)


def refusal(request: Request, *hosts: Host) -> Refusal:
    found = choose(request, hosts)
    assert isinstance(found, Refusal), found
    return found


def choice(request: Request, *hosts: Host) -> Choice:
    found = choose(request, hosts)
    assert isinstance(found, Choice), found
    return found


GPU = Request(device="gpu")


@pytest.mark.parametrize(
    ("request_", "candidate", "told", "full"),
    [
        (GPU, host(1, gpu(0), state="suspect"), "suspect", False),
        (GPU, host(1, gpu(0), state="lost"), "lost", False),
        (GPU, host(1, gpu(0), state="maintenance"), "maintenance", False),
        (GPU, host(1, gpu(0), cordoned="new driver"), "cordoned: new driver", False),
        (GPU, host(1, gpu(0), cordoned=""), "It is cordoned.", False),
        (GPU, host(1, gpu(0), speaks=2), "protocol 2", False),
        (
            GPU,
            host(1, gpu(0), purposes=frozenset({"build"})),
            "policy takes no work of the kind serve",
            False,
        ),
        (replace(GPU, nodes=frozenset({"n9"})), host(1, gpu(0)), "not a node that was asked for", False),
        (replace(GPU, labels={"rack": "a"}), host(1, gpu(0)), "no label rack=a", False),
        (replace(GPU, labels={"rack": "a"}), host(1, gpu(0), labels={"rack": "b"}), "rack is b, a is", False),
        (
            replace(GPU, versions={"driver": "580"}),
            host(1, gpu(0), versions={"driver": "550.54"}),
            "driver 550.54, 580",
            False,
        ),
        (replace(GPU, versions={"driver": "580"}), host(1, gpu(0)), "of no known version", False),
        (replace(GPU, only_on=frozenset({7})), host(1, gpu(0)), "files are not there", False),
        (GPU, host(1, cpu()), "no GPU slot", False),
        (Request(device="cpu"), host(1, gpu(0)), "no CPU slot", False),
        (Request(gpus=2), host(1, cpu()), "no GPU slot", False),
        (GPU, host(1, gpu(0, usable=False)), "driver cannot reach", False),
        (replace(GPU, slots=frozenset({3})), host(1, gpu(0)), "none of the slots", False),
        (replace(GPU, sms=frozenset({80})), host(1, gpu(0)), "SM 90, SM 80 is needed", False),
        (replace(GPU, mig="only"), host(1, gpu(0)), "not cut into MIG", False),
        (replace(GPU, mig="never"), host(1, gpu(100, is_slice=True)), "one process sees one slice", False),
        (replace(GPU, memory={"H200": 150 * GIB}), host(1, gpu(0)), "150.0 GiB of memory", False),
        (replace(GPU, memory={"": 80 * GIB}, share=50), host(1, gpu(0)), "it has 70.0 GiB", False),
        (replace(GPU, lease_memory=200 * GIB), host(1, gpu(0)), "200.0 GiB of memory", False),
        (Request(memory={"cpu": 9 * GIB}), host(1, cpu()), "9.0 GiB of memory are needed on a host", False),
        (
            replace(GPU, memory={"": 150 * GIB}, guessed=frozenset({""}), memory_note="no plan"),
            host(1, gpu(0)),
            "it has 140.0 GiB (no plan).",
            False,
        ),
        (replace(GPU, share=50), host(1, gpu(0), share_gpus=False), "nobody share a GPU", False),
        (GPU, host(1, gpu(0, free=40, held_for=frozenset({"build"}))), "40 % of its GPU free, 100 %", True),
        (Request(gpus=2), host(1, gpu(0), gpu(1, free=0)), "2 GPUs of one host are needed; 1 of its 2", True),
        (Request(gpus=4), host(1, gpu(0), gpu(1)), "4 GPUs of one host are needed; 2 of its 2", False),
        (Request(gpus=2), host(1, gpu(0), gpu(1, product="A100")), "no 2 free GPUs of one kind", True),
        (Request(gpus=2, nvlink=True), host(1, gpu(0), gpu(1)), "joined by NVLink", True),
    ],
)
def test_why_a_host_is_refused(request_: Request, candidate: Host, told: str, full: bool) -> None:
    found = refusal(request_, candidate)
    assert told in found.waits[0].why
    assert "h1" in found.sentence
    assert found.full is full


def test_reasons_are_grouped_and_the_commonest_comes_first() -> None:
    hosts = [host(number, gpu(0), state="lost") for number in range(1, 301)]
    found = refusal(GPU, *hosts, host(301, gpu(0), cordoned="x"))
    assert [(wait.nodes, len(wait.examples)) for wait in found.waits] == [(300, 3), (1, 1)]
    assert found.sentence.startswith("300 nodes (h1, h2, h3, …): It is lost.")
    assert refusal(GPU).sentence == "No node has joined yet."


def test_it_spreads_packs_and_says_why() -> None:
    busy, idle = host(1, gpu(0, free=50), gpu(1)), host(2, gpu(0), gpu(1))
    half = replace(GPU, share=50)
    spread = choice(half, busy, idle)
    assert (spread.host.node, spread.shares) == (2, (50,))
    assert "2 of 2 nodes fit" in spread.why
    assert "least loaded (spread)" in spread.why
    packed = choice(replace(half, strategy="pack"), busy, idle)
    assert (packed.host.node, packed.slots[0].index) == (1, 0)
    assert "(pack)" in packed.why
    # Servers of one deployment stay apart even where the other host is fuller.
    assert choice(replace(half, same={2: 1}), busy, idle).host.node == 1
    # The files' node is taken among equals, and said.
    near = choice(replace(GPU, near=frozenset({4})), host(3, gpu(0)), host(4, gpu(0)))
    assert near.host.node == 4
    assert "files lie there" in near.why
    alone = choice(GPU, host(1, gpu(0)))
    assert alone.why == "h1 gpu0, all of it: it is the only node."
    assert "asked for by name" in choice(replace(GPU, nodes=frozenset({"n1"})), host(1, gpu(0))).why


def test_a_gpu_comes_before_a_cpu_slot_and_a_cpu_slot_is_shared() -> None:
    assert choice(Request(), host(1, cpu()), host(2, gpu(0))).host.node == 2
    found = choice(Request(), host(1, cpu(free=50)))
    assert found.shares == (25,)
    assert "cpu0, 25 % of it" in found.why


def test_what_no_memory_plan_stands_behind_is_said_with_the_choice() -> None:
    planned = replace(GPU, memory={"H200": GIB, "": 2 * GIB}, guessed=frozenset({""}), memory_note="no plan")
    assert "memory" not in choice(planned, host(1, gpu(0))).why
    other = host(1, gpu(0, product="B200"))
    assert "2.0 GiB of memory were taken for it (no plan)" in choice(planned, other).why
    silent = host(1, gpu(0, memory_bytes=None))
    assert "how much memory it has is not known" in choice(planned, silent).why
    nothing = replace(GPU, memory_note="a repository of links")
    assert "was not checked (a repository of links)" in choice(nothing, host(1, gpu(0))).why
    # A CPU slot is shared by cores: its memory is the host's whatever the share.
    small = Request(device="cpu", share=25, memory={"cpu": 7 * GIB})
    assert choice(small, host(1, cpu())).shares == (25,)


def test_memory_is_leased_as_a_share_of_it() -> None:
    found = choice(replace(GPU, lease_memory=35 * GIB), host(1, gpu(0)))
    assert found.shares == (25,)


def test_several_gpus_are_joined_as_closely_as_can_be() -> None:
    linked = host(
        1, gpu(0, nvlink_group=0), gpu(1, nvlink_group=2), gpu(2, nvlink_group=2), gpu(3, nvlink_group=0)
    )
    found = choice(Request(gpus=2), linked)
    assert [slot.index for slot in found.slots] == [0, 3]
    assert "joined by NVLink" in found.why
    numa = host(1, gpu(0, numa_node=0), gpu(1, numa_node=1), gpu(2, numa_node=1))
    found = choice(Request(gpus=2), numa)
    assert [slot.index for slot in found.slots] == [1, 2]
    assert "NUMA" in found.why
    # A host whose GPUs are joined comes before one whose are not.
    assert choice(Request(gpus=2), host(1, gpu(0), gpu(1)), replace(linked, node=2)).host.node == 2
    assert "not known" in choice(Request(gpus=2), host(1, gpu(0), gpu(1))).why
    # A small group is used up before a large one is broken.
    groups = [gpu(index, nvlink_group=0) for index in range(4)] + [
        gpu(4, nvlink_group=4),
        gpu(5, nvlink_group=4),
    ]
    assert [slot.index for slot in choice(Request(gpus=2), host(1, *groups)).slots] == [4, 5]


def test_slices_are_taken_by_one_process_only() -> None:
    slices = host(
        1, gpu(100, is_slice=True, memory_bytes=16 * GIB), gpu(101, is_slice=True, memory_bytes=16 * GIB)
    )
    assert choice(replace(GPU, mig="only"), slices).slots[0].is_slice
    assert "one process sees one slice" in refusal(Request(gpus=2), slices).sentence


@given(
    shares=st.lists(st.integers(1, 100), min_size=1, max_size=30),
    sizes=st.lists(st.integers(1, 4), min_size=1, max_size=5),
    strategy=st.sampled_from(["spread", "pack"]),
)
def test_no_slot_is_ever_given_twice(shares: list[int], sizes: list[int], strategy: Any) -> None:
    hosts = [host(number, *(gpu(index) for index in range(size))) for number, size in enumerate(sizes, 1)]
    given_away: dict[int, int] = {}
    for share in shares:
        found = choose(Request(device="gpu", share=share, strategy=strategy), hosts)
        if isinstance(found, Refusal):
            assert found.full
            assert all(slot.free < share for each in hosts for slot in each.slots)
            continue
        hosts = taken(hosts, found, "serve")
        for slot, part in zip(found.slots, found.shares, strict=True):
            given_away[slot.gpu] = given_away.get(slot.gpu, 0) + part
    assert all(share <= 100 for share in given_away.values())
