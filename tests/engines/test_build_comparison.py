"""What differs between two builds."""

from __future__ import annotations

from typing import Any

from apps.engines.domain.build_comparison import Side, compare


def stage(name: str, argv: list[str], seconds: int | None = None, **more: Any) -> dict[str, Any]:
    ended = f"2026-11-30T10:00:{seconds or 0:02}+00:00"
    times = {"started_at": "2026-11-30T10:00:00+00:00", "finished_at": ended}
    return {
        "name": name,
        "title": name.title(),
        "argv": argv,
        **(times if seconds is not None else {}),
        **more,
    }


LEFT = Side(
    number=7,
    state="succeeded",
    spec={
        "checkpoint": "llama",
        "quantization": "fp8",
        "request": {"build": {"max_batch_size": 64}},
        "path": "/a",
    },
    stages=[
        stage("build", ["trtllm-build", "--max_batch_size", "64", "--output_dir", "/w/7", "--fast_build"], 40)
    ],
    manifest={"versions": {"tensorrt_llm": "1.2.0"}, "gpu": {"name": "H100"}},
    size_bytes=100,
    seconds=61.04,
)
RIGHT = Side(
    number=9,
    state="failed",
    spec={
        "checkpoint": "llama",
        "quantization": "fp8",
        "request": {"build": {"max_batch_size": 8}},
        "path": "/b",
    },
    stages=[
        stage("build", ["trtllm-build", "--max_batch_size=8", "--output_dir", "/w/9"], 50, peak_bytes=5),
        stage("publish", [], None),
    ],
    manifest={"versions": {"tensorrt_llm": "1.2.1"}, "gpu": {"name": "H100"}},
    reason="gpu_out_of_memory",
)


def test_every_section() -> None:
    found = compare(LEFT, RIGHT)
    assert {(each.section, each.name, each.left, each.right) for each in found.differences} == {
        ("specification", "request.build.max_batch_size", 64, 8),
        ("versions", "tensorrt_llm", "1.2.0", "1.2.1"),
        ("command", "build: --max_batch_size", "64", "8"),
        ("command", "build: --fast_build", True, None),
        ("result", "state", "succeeded", "failed"),
        ("result", "reason", None, "gpu_out_of_memory"),
        ("result", "seconds", 61.0, None),
        ("result", "size_bytes", 100, None),
    }
    assert not found.same_input
    build, publish = found.stages
    assert (build.left_seconds, build.right_seconds, build.change, build.right_peak_bytes) == (
        40,
        50,
        0.25,
        5,
    )
    assert (publish.left_seconds, publish.right_seconds, publish.change) == (None, None, None)


def test_the_same_build_differs_in_nothing() -> None:
    found = compare(LEFT, LEFT)
    assert found.differences == ()
    assert found.same_input
    assert found.as_dict()["stages"][0]["change"] == 0


def test_rows_of_other_shapes_do_no_harm() -> None:
    odd = Side(1, "failed", {"versions": 7}, [{"name": "x", "started_at": 3, "argv": None}], {"versions": []})
    assert compare(odd, LEFT).stages[0].left_seconds is None
