"""Figures out of engines' logs."""

from __future__ import annotations

from apps.engines.domain.memory.measured import Measured, read_load_log
from apps.engines.domain.memory.units import GIB, MIB

LLAMACPP = """\
llama.cpp: load_tensors:   CPU_Mapped model buffer size =    72.27 MiB
llama.cpp: load_tensors:   CPU_REPACK model buffer size =    72.14 MiB
llama.cpp: llama_context:        CPU  output buffer size =     1.50 MiB
llama.cpp: llama_kv_cache:        CPU KV buffer size =    95.62 MiB
llama.cpp: llama_kv_cache: size =   95.62 MiB (  1024 cells,  30 layers,  8/8 seqs), K (q8_0):   47.81 MiB
llama.cpp: sched_reserve:        CPU compute buffer size =     4.19 MiB
"""
TENSORRT = """\
[TensorRT-LLM][INFO] Engine version 0.16.0 found in the config file, assuming engine(s) built by new builder API...
[TensorRT-LLM][INFO] Loaded engine size: 15388 MiB
[TensorRT-LLM][INFO] [MemUsageChange] Allocated 1210.51 MiB for execution context memory.
[TensorRT-LLM][INFO] [MemUsageChange] Allocated 43.29 MB GPU memory for runtime buffers.
[TensorRT-LLM][INFO] [MemUsageChange] Allocated 180.30 MB GPU memory for decoder.
[TensorRT-LLM][INFO] Memory usage when calculating max tokens in paged kv cache: total: 79.10 GiB, \
available: 70.48 GiB
[TensorRT-LLM][INFO] Number of blocks in KV cache primary pool: 4060
[TensorRT-LLM][INFO] Number of tokens per block: 64.
[TensorRT-LLM][INFO] [MemUsageChange] Allocated 63.44 GiB for max tokens in paged KV cache (259840).
"""


def test_llamacpp() -> None:
    found = read_load_log(LLAMACPP)
    assert found == Measured(
        weights=int(72.27 * MIB),
        repacked=int(72.14 * MIB),
        kv=int(95.62 * MIB),
        kv_tokens=8192,
        activations=int(4.19 * MIB),
        buffers=int(1.5 * MIB),
    )


def test_tensorrt_llm() -> None:
    found = read_load_log(TENSORRT)
    assert found == Measured(
        weights=15_388 * MIB,
        kv=int(63.44 * GIB),
        kv_tokens=259_840,
        kv_blocks=4060,
        activations=int(1210.51 * MIB),
        buffers=int(43.29 * MIB) + int(180.30 * MIB),
        free_before_kv=int(70.48 * GIB),
        total=int(79.10 * GIB),
        engine_version="0.16.0",
    )


def test_newer_and_older_spellings() -> None:
    new = "[windowSize=32768] {.primaryBlocks=9859, .secondayBlocks=0}"
    assert read_load_log(new).kv_blocks == 9859
    assert (
        read_load_log("[TensorRT-LLM][INFO] Allocate 69524783104 bytes for k/v cache.").kv == 69_524_783_104
    )


def test_a_log_that_says_nothing_gives_nothing() -> None:
    for text in ("", "I0101 starting\n", "\x00\ufffd" * 1000, "model buffer size = x MiB"):
        assert not read_load_log(text).anything
