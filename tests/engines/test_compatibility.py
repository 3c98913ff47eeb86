"""Engine against host: every property that decides, and what is not known."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from apps.engines.domain.compatibility import EngineNeeds, GpuOffer, HostOffer, best, judge, needs_of

GIB = 2**30
H100 = GpuOffer("NVIDIA H100 80GB HBM3", 90, 80 * GIB)
NEEDS = EngineNeeds(
    "engine", 90, H100.name, "10.14.1.48", "1.2.1", "image@sha256:a", world_size=2, rank_bytes=35 * GIB
)
HOST = HostOffer("gpu-1", (H100,) * 4, "10.14.1.48", "1.2.1", "image@sha256:a")
A100 = GpuOffer("NVIDIA A100", 80, 80 * GIB)
H200 = GpuOffer("NVIDIA H200", 90, 141 * GIB)


def told(needs: EngineNeeds, host: HostOffer) -> tuple[str, list[str]]:
    found = judge(needs, host)
    return found.verdict, [each.id for each in found.findings]


@pytest.mark.parametrize(
    ("needs", "host", "verdict", "ids"),
    [
        ({}, {}, "ok", []),
        ({}, {"gpus": (A100,) * 4}, "refuse", ["engine_built_for_other_gpu"]),
        ({}, {"gpus": (H200,) * 2}, "warn", ["other_gpu_model"]),
        ({}, {"tensorrt": "10.13.3.9"}, "refuse", ["tensorrt_version_mismatch"]),
        ({}, {"tensorrt_llm": "1.2.0"}, "refuse", ["tensorrt_llm_version_mismatch"]),
        ({}, {"tensorrt_llm": None}, "warn", ["tensorrt_llm_unknown"]),
        ({"sm": None, "gpu_name": None}, {}, "warn", ["gpu_architecture_unknown"]),
        ({}, {"gpus": (GpuOffer("x", None, 80 * GIB),) * 2}, "warn", ["gpu_architecture_unknown"]),
        ({}, {"gpus": ()}, "refuse", ["no_gpus"]),
        ({}, {"gpus": (H100, A100)}, "refuse", ["too_few_gpus"]),
        ({"world_size": 8}, {}, "refuse", ["too_few_gpus"]),
        ({"world_size": None}, {}, "warn", ["world_size_unknown"]),
        ({"rank_bytes": 79 * GIB}, {}, "refuse", ["memory_too_small"]),
        ({"rank_bytes": 70 * GIB}, {}, "warn", ["memory_tight"]),
        ({}, {"image": "image@sha256:b"}, "warn", ["image_differs"]),
        # A checkpoint carries no plan: other versions and architectures are its runtime's own business.
        ({"recipe": "checkpoint"}, {"gpus": (A100,) * 2, "tensorrt": "9.0"}, "ok", []),
        ({"recipe": "gguf", "world_size": None}, {"gpus": ()}, "ok", []),
    ],
)
def test_judge(needs: dict[str, Any], host: dict[str, Any], verdict: str, ids: list[str]) -> None:
    assert told(replace(NEEDS, **needs), replace(HOST, **host)) == (verdict, ids)


def test_every_reason_says_both_values_and_a_remedy() -> None:
    found = judge(NEEDS, replace(HOST, gpus=(A100,) * 4, tensorrt="10.3.0.26"))
    text = " ".join(each.message for each in found.findings)
    assert "SM 90" in text
    assert "SM 80" in text
    assert "10.14.1.48" in text
    assert "10.3.0.26" in text
    assert all(each.remedy for each in found.findings)
    assert found.first is not None
    assert found.first.severity == "error"


def test_the_best_of_several_hosts() -> None:
    worse, good = replace(HOST, node="old", tensorrt_llm="0.21.0"), replace(HOST, node="new")
    answer, chosen = best(NEEDS, [worse, good])
    assert (answer.verdict, chosen) == ("ok", good)
    assert best(NEEDS, [])[0].verdict == "refuse"


def test_manifests() -> None:
    manifest = {
        "builder": {"name": "trtllm"},
        "recipe": "engine",
        "sm": 90,
        "image": "i@sha256:1",
        "gpu": {"name": "NVIDIA H100", "sm": 90},
        "versions": {"tensorrt_llm": "1.2.1", "tensorrt": "10.14.1.48"},
        "engine": {"world_size": 2},
        "files": [
            {"name": "rank0.engine", "size_bytes": 7},
            {"name": "rank1.engine", "size_bytes": 9},
            {"name": "config.json", "size_bytes": 99},
        ],
    }
    assert needs_of(manifest) == EngineNeeds(
        "engine", 90, "NVIDIA H100", "10.14.1.48", "1.2.1", "i@sha256:1", 2, 9
    )
    assert needs_of({"builder": {"name": "llamacpp"}}).recipe == "gguf"
    broken = needs_of(
        {"recipe": "engine", "gpu": 7, "versions": [], "engine": {"world_size": "2"}, "files": [1]}
    )
    assert broken == EngineNeeds("engine")
