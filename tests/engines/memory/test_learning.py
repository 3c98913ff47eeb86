"""Predicted against measured, kept with builds and loads; and what plans learn of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from apps.engines import learning
from apps.engines.domain.memory import PlanRequest, kv_format, plan, weight_format
from apps.engines.domain.memory.units import GIB
from apps.engines.models import BuildProfile, Engine, MemoryMeasurement
from apps.fleet.models import Gpu
from apps.registry.domain.gguf_reader import read_header
from tests import objects
from tests.engines.memory.shapes import LLAMA_8B, dense
from tests.engines.memory.test_measured import LLAMACPP, TENSORRT
from tests.support.llama import write_llama


@pytest.fixture
def engine(db: None, slot: Gpu, tmp_path: Path) -> Engine:
    """An engine whose file is a small llama."""
    made = objects.engine(objects.build_profile("q8", quantization="Q8_0"))
    write_llama(tmp_path / "engine" / learning.ENGINE_FILE)
    made.path = str(tmp_path / "engine")
    made.manifest = {"versions": {"xllamacpp": "2026.10.1"}}
    made.save()
    return made


def load_of(engine: Engine, instance: str = "i-1", log: str = LLAMACPP) -> learning.Load:
    return learning.Load(engine, instance, 1, 8, 1024, log, 400_000_000, "Slow CPU")


def test_a_load_keeps_each_term_with_its_source_and_error(engine: Engine) -> None:
    learning.record_load(load_of(engine))
    rows = {row.term: row for row in learning.measurements(instance="i-1")}
    assert set(rows) == {"weights", "repacked", "kv", "kv_tokens", "activations", "output", "process"}
    assert rows["process"].source == "proc"
    assert rows["process"].measured == 400_000_000
    assert {row.source for term, row in rows.items() if term != "process"} == {"log"}
    assert rows["kv_tokens"].predicted == rows["kv_tokens"].measured == 8192
    assert rows["kv_tokens"].error == 0.0
    header = read_header(Path(engine.path) / learning.ENGINE_FILE)
    assert rows["weights"].predicted == sum(tensor.size for tensor in header.tensors)
    assert rows["weights"].error == pytest.approx(
        (rows["weights"].predicted - rows["weights"].measured) / rows["weights"].measured
    )
    # The engine has no type that is repacked: nothing was predicted, so there is no error to show.
    assert rows["repacked"].predicted is None
    assert rows["repacked"].error is None
    assert rows["kv"].version == "xllamacpp 2026.10.1"


def test_a_tensorrt_llm_load_is_held_against_its_plan(engine: Engine) -> None:
    engine.builder = "trtllm"
    engine.manifest = {"versions": {"tensorrt_llm": "0.16.0"}}
    engine.save()
    request = PlanRequest(int(79.10 * GIB), weight_format("bf16"), kv_format("fp16"), max_batch_size=64)
    found = plan(dense(LLAMA_8B), request)
    for number in range(5):
        load = replace(
            load_of(engine, f"i-{number}", TENSORRT), plan=found, gpu_kind="H100", process_bytes=None
        )
        learning.record_load(load)
    rows = {row.term: row for row in learning.measurements(instance="i-0")}
    assert rows["weights"].error == pytest.approx(-0.0046, abs=0.0002)
    assert rows["kv_tokens"].measured == 259_840
    assert rows["activations"].formula_bytes == 416 * 2**20
    calibrated = learning.newest_calibration("H100", learning.TENSORRT)
    assert calibrated is not None
    assert calibrated.scale[1] == pytest.approx(1210.51 / 416, rel=1e-4)
    priced = plan(
        dense(LLAMA_8B), replace(request, activations_scale=calibrated.scale, calibrated_runs=calibrated.runs)
    )
    assert priced.rank.activations.likely == pytest.approx(1210.51 * 2**20, rel=1e-4)
    context = next(term for term in priced.rank.terms if term.name == "context")
    assert "calibrated on 5 measured runs" in context.source
    # Without a plan the figures are kept all the same.
    learning.record_load(replace(load_of(engine, "i-9", TENSORRT), gpu_kind="H100"))
    assert MemoryMeasurement.objects.get(subject="i-9", term="kv").predicted is None


def test_the_same_load_measured_twice_is_one_row(engine: Engine) -> None:
    learning.record_load(load_of(engine))
    learning.record_load(replace(load_of(engine), process_bytes=500_000_000))
    assert MemoryMeasurement.objects.get(term="process").measured == 500_000_000


def test_activations_are_calibrated_from_five_runs_on(engine: Engine) -> None:
    version = "xllamacpp 2026.10.1"
    for number in range(4):
        learning.record_load(load_of(engine, f"i-{number}"))
    assert learning.calibration("Slow CPU", version) is None
    learning.record_load(load_of(engine, "i-4"))
    found = learning.calibration("Slow CPU", version)
    assert found is not None
    assert found.runs == 5
    row = MemoryMeasurement.objects.filter(term="activations").first()
    assert row is not None
    assert row.formula_bytes
    assert found.scale[1] == pytest.approx(row.measured / row.formula_bytes)
    assert found.scale[0] < found.scale[1] < found.scale[2]
    # Other hardware, another version: nothing is known of them.
    assert learning.calibration("Fast CPU", version) is None
    assert learning.calibration("Slow CPU", "xllamacpp 2027.1") is None
    learning.record_load(load_of(engine, "i-5"))
    latest = MemoryMeasurement.objects.get(term="activations", subject="i-5")
    assert latest.error == pytest.approx(0.0, abs=0.001)


def test_what_cannot_be_read_costs_nothing_but_a_line(
    engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    (Path(engine.path) / learning.ENGINE_FILE).unlink()
    learning.record_load(load_of(engine))
    assert not MemoryMeasurement.objects.exists()
    assert "could not be recorded" in caplog.text


def test_a_log_without_figures_still_keeps_the_process(engine: Engine) -> None:
    learning.record_load(load_of(engine, log="nothing of use"))
    assert [row.term for row in learning.measurements(engine=engine)] == ["process"]


def test_a_build_keeps_the_size_that_it_wrote(engine: Engine, slot: Gpu) -> None:
    source = write_llama(engine_path(engine) / "source.gguf")
    build = objects.build(
        BuildProfile.objects.get(name="q8"), number=3, node=slot.node, gpu=slot, engine=engine
    )
    build.spec = {**build.spec, "path": str(source)}
    build.save()
    learning.record_build(build)
    row = MemoryMeasurement.objects.get(build=build)
    assert (row.term, row.source, row.subject) == ("weights", "file", "build:3")
    assert row.measured == (engine_path(engine) / learning.ENGINE_FILE).stat().st_size
    assert row.predicted is not None
    assert row.predicted < row.measured


def engine_path(engine: Engine) -> Path:
    return Path(engine.path)
