"""A checkpoint, a node with GPUs, a probed toolchain of doubles, and builds of them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from django.conf import settings

from apps.core import clock
from apps.engines import states
from apps.engines.models import Build, BuildProfile, QuantizationProfile
from apps.engines.services import start_build
from apps.fleet.models import Node, Toolchain
from apps.fleet.services import register_node
from apps.registry.models import Checkpoint
from apps.registry.services import register_checkpoint
from tests.fleet.conftest import gpu_facts, host
from tests.support.trtllm.installed import IMAGE, Installed

CONFIG = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "torch_dtype": "bfloat16",
    "num_hidden_layers": 2,
    "hidden_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "head_dim": 16,
    "intermediate_size": 128,
    "vocab_size": 64,
    "max_position_embeddings": 2048,
}
VERSIONS = {"tensorrt_llm": "1.2.1", "tensorrt": "10.14.1.48", "cuda": "13.1.0", "driver": "590.44.01"}


def folder(name: str = "small-llama") -> Path:
    """A checkpoint in Hugging Face form of a few kilobytes, in this home's checkpoints."""
    path = Path(settings.INFLIGHT_HOME) / "checkpoints" / name
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    (path / "config.json").write_text(json.dumps(CONFIG))
    (path / "tokenizer.json").write_text("{}")
    (path / "tokenizer_config.json").write_text("{}")
    tensor = {"dtype": "BF16", "shape": [64, 64], "data_offsets": [0, 8192]}
    header = json.dumps({"lm_head.weight": tensor}).encode()
    (path / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(8192))
    return path


def checkpoint(name: str = "small-llama") -> Checkpoint:
    """Registered and inspected."""
    found = Checkpoint.objects.filter(name=name).first()
    return found or register_checkpoint("test", name, {"path": str(folder(name))})


def node(gpus: int = 2) -> Node:
    """This process's node with GPUs."""
    facts = host(*(gpu_facts(index) for index in range(gpus)))
    return register_node("test", settings.INFLIGHT_NODE_ID, facts=facts)


def toolchain(
    installed: Installed, kind: str = "native", on: Node | None = None, **columns: Any
) -> Toolchain:
    """The row that a probe of the installation writes."""
    known: dict[str, Any] = {
        "how": kind,
        "location": str(installed.python) if kind == "native" else IMAGE,
        "program": "" if kind == "native" else str(installed.bin / kind),
        "examples": str(installed.examples),
        "shared_memory_bytes": 2**30,
        "versions": VERSIONS,
        "recipes": ["engine", "checkpoint"],
        "gpus": [
            {"index": i, "name": "NVIDIA H100", "uuid": f"GPU-{i}", "sm": 90, "memory_bytes": 80 * 2**30}
            for i in range(2)
        ],
        "probed_at": clock.now(),
    }
    where = on or node()
    return Toolchain.objects.update_or_create(node=where, name="doubles", defaults=known | columns)[0]


def profile(name: str = "small", quantization: str = "", **columns: Any) -> BuildProfile:
    """A trtllm build profile; `quantization` is a format."""
    quantized = None
    if quantization:
        quantized = QuantizationProfile.objects.get_or_create(
            name=quantization.replace("_", "-"),
            defaults={"format": quantization, "calib_size": 4, "calib_dataset": "/data/cnn_dailymail"},
        )[0]
    known: dict[str, Any] = {
        "builder": "trtllm",
        "checkpoint": checkpoint(),
        "quantization": "",
        "quantization_profile": quantized,
        "options": {"build": {"max_batch_size": 8, "max_seq_len": 1024, "max_num_tokens": 4096}},
    }
    return BuildProfile.objects.create(name=name, **known | columns)


def queued(**columns: Any) -> Build:
    """A started build that waits on the first slot. Nothing is sent: tests claim it themselves."""
    row = start_build("test", profile(**columns))
    assert row.state == states.QUEUED, row.sentence
    slot = node().gpus.order_by("index").first()
    Build.objects.filter(pk=row.pk).update(node=slot.node, gpu=slot, dispatched_at=clock.now())
    return Build.objects.get(pk=row.pk)
