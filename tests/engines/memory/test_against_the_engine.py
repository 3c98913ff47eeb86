"""The plan of the embedded engine against what llama.cpp says that it took, and what /proc says."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from apps.engines.domain.memory import kv_format
from apps.engines.domain.memory.llamacpp import LlamaCppRequest, plan_llamacpp, sizes_of
from apps.engines.domain.memory.measured import read_load_log
from apps.registry.domain.gguf_reader import read_header
from tests.triton_model.conftest import MODEL_FOLDER
from workers.builders.llamacpp_steps.convert import convert

pytestmark = pytest.mark.triton

# The model's own runtime, as Triton's stub runs it; then its resident memory as /proc has it.
LOAD = """
import json, sys
sys.path.insert(0, sys.argv[1])
from llamacpp_runtime import LlamaRuntime
from llamacpp_settings import Settings
runtime = LlamaRuntime(Settings(gguf_path=sys.argv[2], kv_cache_type=sys.argv[3], slots=int(sys.argv[4]),
                                context_per_slot=int(sys.argv[5]), threads=2))
lines = dict(line.split(":", 1) for line in open("/proc/self/status") if line.startswith("Rss"))
print(json.dumps({name: int(value.split()[0]) * 1024 for name, value in lines.items()}))
"""


@pytest.mark.parametrize(
    ("kind", "cache", "slots", "context"),
    [("F16", "F16", 8, 1024), ("Q4_0", "Q8_0", 3, 700)],
)
def test_weights_and_cache_agree_within_five_per_cent(
    kind: str, cache: str, slots: int, context: int, demo_file: Path, serving_python: str, tmp_path: Path
) -> None:
    engine = tmp_path / "model.gguf"
    convert(demo_file, engine, kind)
    argv = [serving_python, "-c", LOAD, str(MODEL_FOLDER), str(engine), cache, str(slots), str(context)]
    ran = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 0, ran.stderr[-2000:]
    said, resident = read_load_log(ran.stderr), json.loads(ran.stdout)

    request = LlamaCppRequest(slots, context, kv_format("fp16" if cache == "F16" else cache.lower()))
    # From the checkpoint, as before the build.
    planned = plan_llamacpp(sizes_of(read_header(demo_file), kind), request)
    assert planned.weights == pytest.approx(said.weights, rel=0.05)
    assert planned.kv == pytest.approx(said.kv, rel=0.05)
    assert planned.kv_tokens == said.kv_tokens
    terms = {term.name: term for term in planned.terms}
    assert terms["compute"].low <= (said.activations or 0) <= terms["compute"].high
    if said.repacked is not None:
        assert said.repacked <= terms["repacked"].high * 1.05
    # The file's pages and the cache are really there.
    assert resident["RssFile"] >= planned.weights * 0.95
    assert resident["RssAnon"] >= planned.kv * 0.95
    total = resident["RssFile"] + resident["RssAnon"]
    least = sum(term.low for term in planned.terms)
    assert least <= total <= sum(term.high for term in planned.terms)
