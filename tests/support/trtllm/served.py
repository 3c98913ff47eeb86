"""TensorRT-LLM serving without a GPU: template files and a backend of our own where NVIDIA's are, engines and rows.

The rendered configuration is the product's, letter for letter; the server is the real one. Only what computes is a
python stand-in, found where the real parts are found: in the template folder and in the backends' folder.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from django.conf import settings

from apps.engines import states as engine_states
from apps.engines.models import BuildProfile, Engine
from apps.engines.selectors import freeze
from apps.fleet.models import Node, Toolchain
from apps.serving.domain.trtllm.templates import ENGINE_FOLDER, LLMAPI_FOLDER
from tests.support.trtllm import rows

MODELS = Path(__file__).with_name("models")
# The words that the stand-ins answer with, whatever is asked.
STORY = "Once upon a time there was a fox who read every log before it went to sleep. "
FILES = {
    f"{ENGINE_FOLDER}/preprocessing/1/model.py": "preprocessing.py",
    f"{ENGINE_FOLDER}/postprocessing/1/model.py": "postprocessing.py",
    f"{ENGINE_FOLDER}/tensorrt_llm_bls/1/model.py": "bls.py",
    f"{ENGINE_FOLDER}/tensorrt_llm_bls/1/lib/decode.py": "decode.py",
    f"{ENGINE_FOLDER}/tensorrt_llm_bls/1/lib/triton_decoder.py": "triton_decoder.py",
    f"{LLMAPI_FOLDER}/tensorrt_llm/1/model.py": "llmapi.py",
    f"{LLMAPI_FOLDER}/tensorrt_llm/1/helpers.py": "helpers.py",
}


def write_templates(root: Path, release: str = "1.2.1") -> Path:
    """The template folder of a release with the stand-ins in it; returns its all_models."""
    for place, name in FILES.items():
        path = root / "all_models" / place
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(MODELS / name, path)
    (root / "tools").mkdir(parents=True, exist_ok=True)
    (root / "tools/version.txt").write_text(f"{release}\n", encoding="utf-8")
    return root / "all_models"


def write_backends(root: Path, real: str) -> Path:
    """A folder of backends: the server's own python, and a python-based one called tensorrtllm."""
    root.mkdir(parents=True)
    (root / "python").symlink_to(Path(real) / "python")
    (root / "tensorrtllm").mkdir()
    shutil.copyfile(MODELS / "engine.py", root / "tensorrtllm/model.py")
    return root


def node(gpus: int = 2) -> Node:
    """This process's node with GPUs, whose toolchain is the interpreter that the embedded server's models have."""
    found = rows.node(gpus)
    Toolchain.objects.update_or_create(
        node=found,
        name="native",
        defaults={
            "how": "native",
            "location": settings.INFLIGHT_SERVING_PYTHON or "/nowhere/bin/python3",
            "examples": "/nowhere/tensorrt_llm/examples",
            "shared_memory_bytes": 2**30,
            "versions": rows.VERSIONS,
            "recipes": ["engine", "checkpoint"],
            "gpus": [
                {"index": i, "name": "NVIDIA H100", "uuid": f"GPU-{i}", "sm": 90, "memory_bytes": 80 * 2**30}
                for i in range(gpus)
            ],
        },
    )
    return found


def engine(profile: BuildProfile, recipe: str = "engine", tp: int = 1, **manifest: Any) -> Engine:
    """A ready engine, or checkpoint, of a profile, as the builder publishes it."""
    name = f"{recipe}-{profile.name}-{tp}"
    folder = Path(settings.INFLIGHT_HOME) / "engines" / name
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "tokenizer").mkdir(parents=True)
    files = ["config.json", "tokenizer/tokenizer.json"]
    files += [f"rank{rank}.engine" for rank in range(tp)] if recipe == "engine" else ["model.safetensors"]
    for file in files:
        (folder / file).write_text("{}")
    told = {
        "builder": {"name": "trtllm"},
        "recipe": recipe,
        "sm": 90,
        "gpu": {"name": "NVIDIA H100", "sm": 90, "memory_bytes": 80 * 2**30},
        "versions": rows.VERSIONS,
        "world_size": tp,
        "parallel": {"tp": tp, "pp": 1},
        "files": [{"name": file, "size_bytes": 2} for file in files],
        **manifest,
    }
    (folder / "manifest.json").write_text(json.dumps(told))
    return Engine.objects.create(
        state=engine_states.READY,
        fingerprint=freeze(profile).fingerprint(),
        checkpoint=profile.checkpoint,
        builder=profile.builder,
        quantization="none",
        path=str(folder),
        size_bytes=2,
        manifest=told,
    )
