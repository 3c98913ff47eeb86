"""What a revision asks of a place, and what its server's environment must say once it has one."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from django.conf import settings

from apps.core.exceptions import InflightError
from apps.engines import memory_plans
from apps.engines.compatibility import engine_needs
from apps.engines.domain.memory.inputs import PlanInput
from apps.engines.models import Engine
from apps.fleet.domain.placement import HOST_MEMORY, Host, Request
from apps.fleet.domain.toolchain_report import ENGINE
from apps.fleet.inputs import policy_of
from apps.fleet.models import Gpu, Node
from apps.fleet.policy import CPU_SHARES
from apps.serving.models import Revision


def request_of(revision: Revision, hosts: Iterable[Host]) -> Request:
    """The request of one server of a revision. `hosts` tells which kinds of GPUs a memory plan is made for."""
    placement = revision.placement
    purpose = placement.get("purpose", "serve")
    engine = revision.engine
    gpus = max(int(placement.get("gpus") or 1), world_size(engine))
    needs = memory_of(revision, hosts, gpus)
    return Request(
        purpose=purpose,
        device=placement.get("device", "any"),
        gpus=gpus,
        share=placement.get("share"),
        cpu_share=CPU_SHARES[purpose],
        memory=needs.by_product,
        guessed=needs.guessed,
        memory_note=needs.note,
        lease_memory=placement.get("memory"),
        sms=sms_of(engine),
        labels=placement.get("labels") or {},
        versions=placement.get("versions") or {},
        nodes=frozenset(placement.get("nodes") or ()),
        slots=frozenset(placement.get("slots") or ()),
        mig=placement.get("mig", "any"),
        nvlink=bool(placement.get("nvlink", False)),
        strategy=placement.get("strategy", "spread"),
        only_on=files_on(engine),
        near=frozenset() if engine is None or engine.node_id is None else frozenset({engine.node_id}),
    )


def world_size(engine: Engine | None) -> int:
    """GPUs that the engine needs, by its manifest."""
    told = engine_needs(engine).world_size if engine is not None else None
    return max(1, told or 1)


def sms_of(engine: Engine | None) -> frozenset[int]:
    """Compute capabilities (times ten) on which the engine runs; empty for any.

    A compiled engine runs on the one that it was built for, everything else on all.
    """
    if engine is None:
        return frozenset()
    needs = engine_needs(engine)
    return frozenset({needs.sm}) if needs.recipe == ENGINE and needs.sm is not None else frozenset()


def files_on(engine: Engine | None) -> frozenset[int] | None:
    """Nodes that have the engine's files; null where every node does: a repository, an engine of no node.

    With a store every node can fetch them (docs/several-hosts.md); the one that has them is near.
    """
    if settings.INFLIGHT_STORE:
        return None
    return None if engine is None or engine.node_id is None else frozenset({engine.node_id})


@dataclass(frozen=True, slots=True)
class Needs:
    """Bytes by the keys of placement.Request.memory; `guessed` those that no plan stands behind, `note` why."""

    by_product: dict[str, int]
    guessed: frozenset[str] = frozenset()
    note: str = ""


def memory_of(revision: Revision, hosts: Iterable[Host], gpus: int = 1) -> Needs:
    """What a server of the revision must have for its engine and one sequence, by the memory plan.

    Where no plan can be made, what its files take of each GPU is the least; why is told with the choice.
    """
    engine = revision.engine
    if engine is None:
        size = _files_of(revision)
        if not size:
            return Needs({}, note="nothing is known of the repository's files")
        return _by_size(size, gpus, "no memory plan of a model repository; its files are as large")
    if engine.builder == "trtllm":
        return _of_trtllm(revision, engine, hosts, gpus)
    try:
        needed = memory_plans.host_bytes(engine.checkpoint, engine.quantization, **_sizes_of(revision))
    except (InflightError, ValueError, OSError) as error:
        return _by_size(engine.size_bytes, gpus, _no_plan(error))
    return Needs({HOST_MEMORY: needed, "": needed})


def _of_trtllm(revision: Revision, engine: Engine, hosts: Iterable[Host], gpus: int) -> Needs:
    if revision.placement.get("device") == "cpu":
        return Needs({})
    planned: dict[str, int] = {}
    why = ""
    for product, memory in _kinds(hosts).items():
        try:
            planned[product] = _needed(revision, engine, memory)
        except (InflightError, ValueError, OSError) as error:
            why = why or _no_plan(error)
    if not why:
        return Needs(planned)
    guess = _by_size(engine.size_bytes, gpus, why)
    return Needs({**guess.by_product, **planned}, guess.guessed, guess.note)


def _by_size(size: int, gpus: int, note: str) -> Needs:
    each = math.ceil(size / gpus)
    return Needs({"": each, HOST_MEMORY: size}, frozenset({"", HOST_MEMORY}), note)


def _no_plan(error: Exception) -> str:
    said = error.sentence if isinstance(error, InflightError) else (str(error).splitlines() or ["?"])[0]
    return f"no memory plan: {said.rstrip('.')}; the engine's files are as large"


def _files_of(revision: Revision) -> int:
    repository = revision.deployment.repository
    return sum(int(each.get("size_bytes") or 0) for each in repository.files) if repository else 0


def _kinds(hosts: Iterable[Host]) -> dict[str, int]:
    return {
        slot.product: slot.memory_bytes
        for host in hosts
        for slot in host.slots
        if slot.device == "gpu" and slot.memory_bytes
    }


def _sizes_of(revision: Revision) -> dict[str, int]:
    batching = revision.batching
    return {
        "max_batch_size": int(batching.get("max_batch_size") or 1),
        "max_seq_len": int(batching.get("max_seq_len") or 1024),
    }


def _needed(revision: Revision, engine: Engine, memory: int) -> int:
    parallel = (engine.manifest or {}).get("parallel") or {}
    given = PlanInput(
        gpu_memory=str(memory),
        tp=int(parallel.get("tp") or 1),
        pp=int(parallel.get("pp") or 1),
        weights=engine.quantization,
        **_sizes_of(revision),
    )
    return memory_plans.answer(engine.checkpoint, given).required


def environment_of(
    node: Node, gpus: Sequence[Gpu], shares: Sequence[int], placement: dict[str, Any]
) -> dict[str, str]:
    """Variables of the server's environment that follow from its place.

    CUDA_VISIBLE_DEVICES names the slots by UUID (a MIG slice only has one), an empty value hides every GPU. Where the
    deployment wants MPS and the node's policy names its daemon, the share becomes the client's limits (CUDA MPS,
    "Client Resource Limits"): with one GPU only, since the numbers there are those of the daemon.
    """
    visible = ",".join(gpu.uuid or str(gpu.index) for gpu in gpus if gpu.device == Gpu.Device.GPU)
    found = {"CUDA_VISIBLE_DEVICES": visible}
    pipe = policy_of(node.policy).mps_pipe_directory
    shared = len(gpus) == 1 and visible and shares[0] < gpus[0].total_share
    if placement.get("mps") and pipe and shared:
        share, memory = shares[0] / gpus[0].total_share, gpus[0].memory_bytes
        found["CUDA_MPS_PIPE_DIRECTORY"] = pipe
        found["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = str(max(1, round(100 * share)))
        if memory:
            found["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] = f"0={int(memory * share) // 2**20}M"
    return found
