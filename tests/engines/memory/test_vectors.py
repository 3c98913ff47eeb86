"""Figures from logs of TensorRT-LLM and from published models, to the last digit that is printed there."""

from __future__ import annotations

from dataclasses import replace

import pytest

from apps.core.exceptions import InvalidInput
from apps.engines.domain.memory import PlanRequest, kv_format, plan, weight_format
from apps.engines.domain.memory.answers import concurrent
from apps.engines.domain.memory.kv import WindowGroup, blocks_per_sequence, pool_of
from apps.engines.domain.memory.units import GIB, MIB
from tests.engines.memory.shapes import LLAMA_8B, LLAMA_70B, QWEN_7B, Config, dense

RESERVE = int(0.6 * GIB)


def ask(memory: float = 1024, **changes: object) -> PlanRequest:
    """A request as the vectors have it: 0.6 GiB for context and buffers, blocks of 32, 8,192 tokens a step."""
    base = PlanRequest(
        int(memory * GIB),
        weight_format("bf16"),
        kv_format("fp16"),
        max_batch_size=2048,
        max_seq_len=8192,
        overhead_bytes=RESERVE,
    )
    return replace(base, **changes)  # type: ignore[arg-type]


def group(bytes_per_token: int) -> tuple[WindowGroup, ...]:
    return (WindowGroup(None, 1, bytes_per_token),)


@pytest.mark.parametrize(
    ("available_gib", "fraction", "bytes_per_token", "block", "blocks", "tokens", "gib"),
    [
        (70.48, 0.9, 262_144, 64, 4060, 259_840, 63.44),
        (85.57, 0.9, 262_144, 32, 9859, 315_488, 77.02),
    ],
)
def test_pools_that_logs_print(
    available_gib: float,
    fraction: float,
    bytes_per_token: int,
    block: int,
    blocks: int,
    tokens: int,
    gib: float,
) -> None:
    pool = pool_of(int(available_gib * GIB), fraction, group(bytes_per_token), 8192, block)
    # Logs print the free memory with two digits, so the last block may differ.
    assert abs(pool.blocks - blocks) <= 1
    assert abs(pool.tokens - tokens) <= block
    assert round(pool.bytes / GIB, 2) == pytest.approx(gib, abs=0.011)


@pytest.mark.parametrize(
    ("config", "tp", "expected", "pool_bytes", "pool_tokens"),
    [
        (Config(4096, 32, 32, 32, 128, 11_008, 32_000), 1, 524_288, 69_524_783_104, 132_608),
        (Config(4096, 32, 32, 8, 128, 14_336, 32_000), 4, 32_768, 956_301_312, 29_184),
    ],
    ids=["llama-7b", "mistral-7b-tp4"],
)
def test_bytes_for_a_token_that_logs_print(
    config: Config, tp: int, expected: int, pool_bytes: int, pool_tokens: int
) -> None:
    answer = plan(dense(config), ask(tp=tp))
    assert answer.rank.bytes_per_token == expected == pool_bytes // pool_tokens


@pytest.mark.parametrize(
    ("config", "params", "gib"),
    [
        (LLAMA_8B, 8_030_261_248, 14.958),
        (LLAMA_70B, 70_553_706_496, 131.417),
        (QWEN_7B, 7_615_616_512, 14.185),
    ],
)
def test_parameters(config: Config, params: int, gib: float) -> None:
    shape = dense(config)
    assert shape.params == params
    assert round(2 * params / GIB, 3) == gib


SIZES = {
    "8b": (LLAMA_8B, (131_072, 65_536, 32_768, 16_384)),
    "70b": (LLAMA_70B, (327_680, 163_840, 81_920, 40_960)),
    "qwen": (QWEN_7B, (57_344, 28_672, 14_336, None)),
}
WEIGHTS = {
    ("8b", "bf16"): (14.958, 7.968, 4.474, 2.726),
    ("8b", "fp8"): (8.458, 4.718, 2.849, 1.914),
    ("8b", "int4"): (5.309, 3.144, 2.062, 1.520),
    ("70b", "bf16"): (131.417, 66.688, 34.324, 18.142),
    ("70b", "fp8"): (67.667, 34.813, 18.386, 10.173),
    ("70b", "int4"): (36.788, 19.374, 10.667, 6.313),
    ("qwen", "bf16"): (14.185, 7.600, 4.308, None),
    ("qwen", "fp8"): (8.108, 4.562, 2.789, None),
    ("qwen", "int4"): (5.164, 3.090, 2.053, None),
}
ACTIVATIONS = {"8b": (416, 304, 248, 220), "70b": (832, 608, 496, 440), "qwen": (464, 316, 242, None)}
TPS = (1, 2, 4, 8)


@pytest.mark.parametrize("tp", TPS)
@pytest.mark.parametrize("name", SIZES)
def test_cache_of_a_token_and_activations_at_each_tp(name: str, tp: int) -> None:
    config, sizes = SIZES[name]
    expected = sizes[TPS.index(tp)]
    shape = dense(config)
    if expected is None:
        with pytest.raises(InvalidInput, match="28 is not divisible by tp 8"):
            plan(shape, ask(tp=tp))
        return
    answer = plan(shape, ask(tp=tp))
    assert answer.rank.bytes_per_token == expected
    assert plan(shape, ask(tp=tp, kv=kv_format("fp8"))).rank.bytes_per_token == expected // 2
    assert answer.rank.activations.likely == (ACTIVATIONS[name][TPS.index(tp)] or 0) * MIB
    assert answer.rank.activations.low * 2 == answer.rank.activations.likely
    assert answer.rank.activations.high * 2 == 3 * answer.rank.activations.likely


def test_copied_heads_make_no_smaller_cache() -> None:
    answer = plan(dense(LLAMA_70B), ask(tp=16))
    assert answer.rank.bytes_per_token == 40_960
    assert "kv_heads_copied" in {finding.id for finding in answer.findings}


@pytest.mark.parametrize(("name", "form"), WEIGHTS)
def test_weights_of_a_rank(name: str, form: str) -> None:
    shape = dense(SIZES[name][0])
    for tp, expected in zip(TPS, WEIGHTS[(name, form)], strict=True):
        if expected is not None:
            answer = plan(shape, ask(tp=tp, weights=weight_format(form)))
            assert round(answer.rank.weights.likely / GIB, 3) == expected


PLANS = [
    (LLAMA_8B, 79.10, 1, "bf16", "fp16", 63.136, 131_072, 14_547, 56.82, 101, 56),
    (LLAMA_70B, 79.10, 4, "bf16", "fp16", 43.692, 81_920, 16_107, 39.32, 111, 62),
    (QWEN_7B, 22.0, 1, "bf16", "fp16", 6.762, 57_344, 3561, 6.09, 24, 13),
    (LLAMA_8B, 22.0, 1, "fp8", "fp8", 12.536, 65_536, 5777, 11.28, 40, 22),
    (LLAMA_70B, 79.10, 2, "fp8", "fp8", 43.093, 81_920, 15_886, 38.78, 110, 62),
]


@pytest.mark.parametrize(
    ("config", "memory", "tp", "weights", "cache", "free", "each", "blocks", "pool", "short", "long"), PLANS
)
def test_whole_plans(
    config: Config,
    memory: float,
    tp: int,
    weights: str,
    cache: str,
    free: float,
    each: int,
    blocks: int,
    pool: float,
    short: int,
    long: int,
) -> None:
    answer = plan(
        dense(config),
        ask(memory, tp=tp, weights=weight_format(weights), kv=kv_format(cache), max_seq_len=8192),
    )
    assert answer.fits
    assert round(answer.rank.free_for_kv / GIB, 3) == free
    assert answer.rank.bytes_per_token == each
    assert answer.kv_blocks == blocks
    assert answer.kv_capacity_tokens == blocks * 32
    assert round(answer.kv_pool_bytes / GIB, 2) == pool
    assert concurrent(answer, 4096, 512).held == short
    assert answer.sequences_at_max_seq_len == long


def test_longest_prompt_is_the_smaller_limit() -> None:
    shape = dense(QWEN_7B)
    answer = plan(shape, ask(max_seq_len=32_768))
    assert answer.longest_prompt == 8192
    assert "prompt_limited_by_max_num_tokens" in {finding.id for finding in answer.findings}
    assert plan(shape, ask(max_seq_len=32_768, chunked_context=True)).longest_prompt == 32_767


@pytest.mark.parametrize(
    ("tokens", "beam", "output", "window", "expected"),
    [
        (4608, 1, None, None, 144),
        (4609, 1, None, None, 145),
        (8192, 1, None, 4096, 128),
        # Beams share the blocks of the prompt: 96 tokens, 3 blocks, and 2 each of their own.
        (160, 4, 64, None, 3 + 2 * 4),
        # A prompt that ends inside a block: the beams copy the rest of it.
        (150, 2, 50, None, 3 + -(-(50 + 4) // 32) * 2),
        (160, 4, None, None, 20),
        (160, 4, 200, None, 20),
    ],
)
def test_blocks_of_a_sequence(
    tokens: int, beam: int, output: int | None, window: int | None, expected: int
) -> None:
    assert blocks_per_sequence(tokens, 32, window=window, beam=beam, output=output) == expected


def test_context_logits_are_the_logged_37_gib() -> None:
    """128,000 tokens of Llama-3-8B with context logits: 37,812.51 MiB of execution context in the log."""
    answer = plan(
        dense(LLAMA_8B),
        ask(max_num_tokens=128_000, max_seq_len=128_000, gather_context_logits=True),
    )
    assert answer.rank.activations.likely == 128_000 * 309_760
    assert answer.rank.activations.likely / MIB == pytest.approx(37_812.51, rel=1e-5)


def test_batch_sized_buffers_are_flagged_on_a_crowded_card() -> None:
    """Qwen 32B in FP16 on 80 GiB with the builder's default batch of 2,048: out of memory before the cache."""
    config = Config(5120, 64, 40, 8, 128, 27_648, 152_064, bias=True)
    request = ask(80, weights=weight_format("fp16"), overhead_bytes=None, max_seq_len=131_072)
    answer = plan(dense(config), request)
    logits = next(term for term in answer.rank.terms if term.name == "logits")
    assert logits.low == 1_245_708_288
    flagged = next(finding for finding in answer.findings if finding.id == "batch_buffers_large")
    assert flagged.where == "max_batch_size"
    assert "batch_buffers_large" not in {
        finding.id for finding in plan(dense(config), replace(request, max_batch_size=1)).findings
    }
