"""The guard before a start, and what pages say of an engine on each node."""

from __future__ import annotations

from typing import Any

import pytest

from apps.engines.compatibility import engine_hosts, engine_on_node
from apps.engines.models import Engine
from apps.fleet.models import Gpu, Node, Toolchain
from apps.serving.models import Instance
from tests import objects
from workers import engine_guard

MANIFEST: dict[str, Any] = {
    "recipe": "engine",
    "sm": 90,
    "world_size": 1,
    "gpu": {"name": "NVIDIA H100", "sm": 90},
    "versions": {"tensorrt_llm": "1.2.1", "tensorrt": "10.14.1.48"},
    "files": [{"name": "rank0.engine", "size_bytes": 2**30}],
}


def toolchain(node: Node, name: str, sm: int = 90, release: str = "1.2.1") -> Toolchain:
    gpu = {"index": 0, "name": "NVIDIA H100", "uuid": "", "sm": sm, "memory_bytes": 80 * 2**30}
    return Toolchain.objects.create(
        node=node,
        name=name,
        how=Toolchain.Kind.DOCKER,
        location=f"image-{name}@sha256:1",
        examples="/app",
        shared_memory_bytes=2**30,
        versions={"tensorrt_llm": release, "tensorrt": "10.14.1.48"},
        recipes=["engine"],
        gpus=[gpu],
    )


@pytest.fixture
def row(db: None) -> Instance:
    """A placed instance whose engine is a TensorRT-LLM one for SM 90."""
    deployment = objects.deployment("demo")
    instance = objects.instance(objects.revision(deployment), "abc", node=objects.node())
    engine = instance.revision.engine
    assert engine is not None
    Engine.objects.filter(pk=engine.pk).update(builder="trtllm", manifest=MANIFEST)
    return Instance.objects.select_related("revision__engine", "node").get(pk=instance.pk)


def test_an_engine_is_refused_before_it_is_loaded(row: Instance) -> None:
    assert row.node is not None
    failure = engine_guard.refusal(row)
    assert failure is not None
    assert failure.reason == "engine_does_not_fit"
    assert "no GPU" in failure.sentence
    toolchain(row.node, "ada", sm=89)
    failure = engine_guard.refusal(row)
    assert failure is not None
    assert "SM 89" in failure.sentence
    assert failure.remedy
    # One toolchain that fits is enough.
    toolchain(row.node, "hopper")
    assert engine_guard.refusal(row) is None


def test_what_is_not_known_does_not_hold_a_start_back(row: Instance) -> None:
    assert row.node is not None
    assert row.revision.engine is not None
    Gpu.objects.create(node=row.node, index=1, device="gpu", product="NVIDIA H100", compute_capability="9.0")
    assert engine_on_node(row.revision.engine, row.node).verdict == "warn"
    assert engine_guard.refusal(row) is None


def test_a_llamacpp_engine_runs_anywhere(row: Instance) -> None:
    engine = row.revision.engine
    assert engine is not None
    engine.builder = "llamacpp"
    assert [found.verdict for _node, found in engine_hosts(engine, Node.objects.all())] == ["ok"]
