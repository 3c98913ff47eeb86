"""The embedded engine: its weights, cache and buffers, from a header alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from apps.engines.domain.memory import kv_format
from apps.engines.domain.memory.llamacpp import KEPT_F32, LlamaCppRequest, plan_llamacpp, sizes_of
from apps.registry.domain.gguf_reader import read_header
from tests.support.llama import write_llama
from workers.builders.llamacpp_steps import plan as builder
from workers.builders.llamacpp_steps.convert import convert

REQUEST = LlamaCppRequest(4, 300, kv_format("fp16"))


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_llama(tmp_path_factory.mktemp("gguf") / "tiny.gguf")


def test_weights_are_those_of_the_file(file: Path) -> None:
    header = read_header(file)
    assert sizes_of(header).weights == sum(tensor.size for tensor in header.tensors)


@pytest.mark.parametrize("kind", ["F16", "BF16", "Q8_0", "Q4_0", "Q5_1"])
def test_a_build_makes_what_was_predicted(file: Path, tmp_path: Path, kind: str) -> None:
    target = tmp_path / "engine.gguf"
    convert(file, target, kind)
    made = read_header(target)
    predicted = sizes_of(read_header(file), kind)
    assert predicted.tensors == tuple((tensor.name, tensor.type, tensor.size) for tensor in made.tensors)


def test_the_rule_of_what_stays_wide_is_the_builders() -> None:
    assert KEPT_F32 == builder.KEPT_F32


def test_the_cache_is_slots_times_whole_cells(file: Path) -> None:
    answer = plan_llamacpp(sizes_of(read_header(file)), REQUEST)
    # Two layers, two KV heads of 16: 2 x (K 32 + V 32) values of 2 bytes; 300 tokens take 512 cells.
    assert answer.kv == 4 * 512 * 2 * (32 + 32) * 2
    assert answer.kv_tokens == 4 * 512
    half = plan_llamacpp(sizes_of(read_header(file)), replace(REQUEST, kv=kv_format("q8_0")))
    assert half.kv == answer.kv * 34 // 64


def test_fits_is_unknown_without_memory_and_said_with_it(file: Path) -> None:
    sizes = sizes_of(read_header(file))
    assert plan_llamacpp(sizes, REQUEST).fits is None
    needed = plan_llamacpp(sizes, REQUEST).required
    assert plan_llamacpp(sizes, replace(REQUEST, memory=needed)).fits is True
    small = plan_llamacpp(sizes, replace(REQUEST, memory=needed - 1))
    assert small.fits is False
    assert [finding.id for finding in small.findings] == ["does_not_fit"]


def test_measured_shares_replace_the_estimate(file: Path) -> None:
    sizes = sizes_of(read_header(file))
    scaled = plan_llamacpp(sizes, replace(REQUEST, activations_scale=(1.1, 1.25, 1.5)))
    compute = next(term for term in scaled.terms if term.name == "compute")
    assert compute.likely == int(scaled.compute_formula * 1.25)
    assert compute.source == "calibrated on measured loads"
