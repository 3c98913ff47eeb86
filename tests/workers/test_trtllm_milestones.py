"""Log lines of the real programs, by release, to shares of a step: the share never falls."""

from __future__ import annotations

import pytest

from workers.builders.base import Milestones
from workers.builders.trtllm_milestones import reader_of

STAMP = "[11/30/2026-12:00:00] [TRT-LLM] [I] "
RANK = [
    f"{STAMP}Set gpt_attention_plugin to auto.",
    f"{STAMP}Total time of constructing network from module object 2.1 seconds",
    f"{STAMP}Total optimization profiles added: 1",
    f"{STAMP}Total time to initialize the weights in network Unnamed Network 0: 00:00:01",
    f"{STAMP}Build TensorRT engine Unnamed Network 0",
    "[11/30/2026-12:00:09] [TRT] [I] Detected 15 inputs and 1 output network tensors.",
    "[11/30/2026-12:03:09] [TRT] [I] Total Host Persistent Memory: 98016 bytes",
    "[11/30/2026-12:03:10] [TRT] [I] Engine generation completed in 181.5 seconds.",
    f"{STAMP}Total time of building Unnamed Network 0: 00:03:01",
    f"{STAMP}Serializing engine to /w/engine/rank0.engine...",
    f"{STAMP}Engine serialized. Total time: 00:00:05",
]
NEWER = [line.replace("Set gpt_attention_plugin", "Set PluginConfig.gpt_attention_plugin") for line in RANK]


def shares(reader: Milestones, lines: list[str]) -> list[float]:
    found = [reader.read(line) for line in lines]
    return [seen.share for seen in found if seen is not None]


def made(step: str, ranks: int = 1, batches: int = 1) -> Milestones:
    reader = reader_of(step, ranks, batches)
    assert reader is not None
    return reader()


@pytest.mark.parametrize("lines", [RANK, NEWER])
@pytest.mark.parametrize("ranks", [1, 4])
def test_a_build_moves_with_every_milestone_of_every_rank(lines: list[str], ranks: int) -> None:
    found = shares(
        made("build", ranks), [*lines * ranks, f"{STAMP}Total time of building all engines: 00:13:00"]
    )
    assert found == sorted(found)
    assert len(found) == len(lines) * ranks + 1
    assert found[-1] == 1.0
    assert len(set(found)) >= 9 * ranks


def test_several_ranks_say_which_one_is_built() -> None:
    reader = made("build", 2)
    for line in RANK:
        reader.read(line)
    seen = reader.read(RANK[4])
    assert seen is not None
    assert (seen.doing, seen.share) == ("TensorRT searches for kernels, rank 2 of 2", 0.55)


def test_calibration_counts_batches() -> None:
    reader = made("quantize", batches=16)
    lines = [f"{STAMP}Loading calibration dataset", f"{STAMP}Starting quantization..."]
    lines += [f"[11/30/2026-12:00:00] [TRT-LLM] [D] Calibrating batch {n}" for n in range(16)]
    lines += [
        f"{STAMP}Quantization done. Total time used: 60.00 s.",
        f"{STAMP}Quantized model exported to /w",
    ]
    found = shares(reader, lines)
    assert found == sorted(found)
    assert found[9] == pytest.approx(0.05 + 0.8 * 8 / 16)
    assert found[-1] == 0.99
    # Releases before 0.10 print it plainly; a count beyond what was asked for stays at the end.
    plain = made("quantize", batches=2).read("Calibrating batch 7")
    assert plain is not None
    assert plain.share == pytest.approx(0.85)


@pytest.mark.parametrize(
    "line",
    [
        "[TRT] [W] UNSUPPORTED_STATESkipping tactic 9 due to insufficient memory on requested size of 157500",
        "[TRT-LLM] [W] Invalid timing cache, using freshly created one",
        "",
        "Traceback (most recent call last):",
    ],
)
def test_lines_that_tell_no_progress_move_nothing(line: str) -> None:
    assert made("build").read(line) is None
    assert made("quantize").read(line) is None


def test_a_log_that_goes_back_moves_nothing_back() -> None:
    reader = made("build", 1)
    for line in RANK:
        reader.read(line)
    assert reader.read(RANK[0]) is None


def test_programs_of_ours_are_not_read() -> None:
    assert reader_of("publish", 1, 1) is None
