"""Real objects for tests: a small GGUF file, and rows made by the services or by hand where workers would."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
from django.conf import settings

from apps.engines import states as engine_states
from apps.engines.models import Build, BuildProfile, Engine
from apps.engines.selectors import freeze
from apps.engines.services import save_build_profile
from apps.fleet.models import Gpu, Node
from apps.registry.models import Checkpoint
from apps.registry.services import register_checkpoint
from apps.serving import states as serving_states
from apps.serving.models import BatchingProfile, Deployment, Instance, ModelRepository, Revision
from apps.serving.services import import_repository, save_batching_profile, save_deployment


def gguf_file(name: str = "tiny") -> Path:
    """A llama-shaped GGUF of a few kilobytes in this home's checkpoints."""
    folder = Path(settings.INFLIGHT_HOME) / "checkpoints" / name
    path = folder / "tiny.gguf"
    if path.exists():
        return path
    folder.mkdir(parents=True, exist_ok=True)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name(name)
    writer.add_block_count(2)
    writer.add_context_length(2048)
    writer.add_embedding_length(64)
    writer.add_feed_forward_length(128)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_file_type(1)
    writer.add_tensor("token_embd.weight", np.zeros((32, 64), dtype=np.float16))
    writer.add_tensor("blk.0.attn_q.weight", np.zeros((64, 64), dtype=np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def checkpoint(name: str = "tiny") -> Checkpoint:
    """A registered, inspected checkpoint."""
    gguf_file(name)
    return Checkpoint.objects.filter(name=name).first() or register_checkpoint("test", name, {"demo": name})


def build_profile(name: str = "f16", **fields: Any) -> BuildProfile:
    """A build profile of the small checkpoint."""
    return save_build_profile("test", {"name": name, "checkpoint": checkpoint().name, **fields})


def batching(name: str = "inflight-16", **fields: Any) -> BatchingProfile:
    """A batching profile with the defaults."""
    return save_batching_profile("test", {"name": name, **fields})


def engine(profile: BuildProfile, **columns: Any) -> Engine:
    """A ready engine of a profile, as a worker would have made it."""
    fingerprint = freeze(profile).fingerprint()
    folder = Path(settings.INFLIGHT_HOME) / "engines" / fingerprint
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "manifest.json").write_text("{}", encoding="utf-8")
    return Engine.objects.create(
        state=engine_states.READY,
        fingerprint=fingerprint,
        checkpoint=profile.checkpoint,
        builder=profile.builder,
        quantization=profile.quantization,
        path=str(folder),
        size_bytes=12_345,
        manifest={"files": []},
        **columns,
    )


def build(profile: BuildProfile, state: str = engine_states.QUEUED, number: int = 1, **columns: Any) -> Build:
    """A build in any state, as workers would have left it."""
    spec = freeze(profile)
    return Build.objects.create(
        state=state,
        number=number,
        profile=profile,
        checkpoint=profile.checkpoint,
        spec=spec.model_dump(mode="json"),
        fingerprint=spec.fingerprint(),
        **columns,
    )


def deployment(name: str = "demo", **fields: Any) -> Deployment:
    """A stopped deployment, with profiles of its own unless given."""
    fields.setdefault("build_profile", BuildProfile.objects.first() or build_profile())
    fields.setdefault("batching", BatchingProfile.objects.first() or batching())
    return save_deployment("test", {"name": name, **fields})


PYTHON_MODEL = """import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        inputs = [pb_utils.get_input_tensor_by_name(request, "INPUT").as_numpy() for request in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT", 2 * one)]) for one in inputs]
"""
PYTHON_CONFIG = """# Doubles what comes.
name: "doubler"
backend: "python"
max_batch_size: 4
input [ { name: "INPUT" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "OUTPUT" data_type: TYPE_FP32 dims: [ -1 ] } ]
instance_group [ { count: 1 kind: KIND_CPU } ]
dynamic_batching { max_queue_delay_microseconds: 2000 }
parameters { key: "own" value { string_value: "kept" } }
"""


PAIR_CONFIG = """name: "pair" platform: "ensemble" max_batch_size: 4
input [ { name: "X" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "Y" data_type: TYPE_FP32 dims: [ -1 ] } ]
ensemble_scheduling { step [
  { model_name: "first" model_version: -1 input_map { key: "INPUT" value: "X" }
    output_map { key: "OUTPUT" value: "mid" } },
  { model_name: "second" model_version: -1 input_map { key: "INPUT" value: "mid" }
    output_map { key: "OUTPUT" value: "Y" } } ] }
"""


def repository_folder(name: str = "own") -> Path:
    """A model repository as somebody might have it, inside an allowed folder: one Python model that doubles."""
    folder = Path(settings.INFLIGHT_HOME) / "checkpoints" / name
    write_doubler(folder, "doubler")
    return folder


def write_doubler(root: Path, name: str) -> None:
    """One Python model that doubles, as a folder of a repository."""
    (root / name / "1").mkdir(parents=True, exist_ok=True)
    (root / name / "config.pbtxt").write_text(PYTHON_CONFIG.replace('"doubler"', f'"{name}"'))
    (root / name / "1/model.py").write_text(PYTHON_MODEL)


def write_pair(root: Path) -> None:
    """A repository of an ensemble and its two models."""
    for name in ("first", "second"):
        write_doubler(root, name)
    (root / "pair/1").mkdir(parents=True, exist_ok=True)
    (root / "pair/config.pbtxt").write_text(PAIR_CONFIG)


def model_repository(name: str = "own") -> ModelRepository:
    """An imported repository."""
    return import_repository("test", name, {"path": str(repository_folder(name))})


def broken_repository(name: str = "pair") -> ModelRepository:
    """An imported ensemble with a fault of each severity."""
    folder = Path(settings.INFLIGHT_HOME) / "checkpoints" / name
    write_pair(folder)
    (folder / "tokenizer").mkdir(exist_ok=True)
    path = folder / "second/config.pbtxt"
    path.write_text(path.read_text().replace("max_queue_delay_microseconds", "delay_ms"))
    return import_repository("test", name, {"path": str(folder)})


def revision(of: Deployment, number: int = 1, state: str = serving_states.ACTIVE) -> Revision:
    """A revision with an engine of the deployment's profile."""
    assert of.build_profile is not None
    made = Engine.objects.filter(quantization=of.build_profile.quantization).first()
    return Revision.objects.create(
        deployment=of,
        number=number,
        state=state,
        engine=made or engine(of.build_profile),
        batching={
            "name": of.batching.name,
            "strategy": of.batching.strategy,
            "max_batch_size": of.batching.max_batch_size + number,
            "max_queue_delay_microseconds": 0,
            "max_seq_len": 1024,
            "max_queue_size": 256,
            "threads": 0,
        },
        placement={"device": "any"},
    )


def instance(
    of: Revision, uid: str = "abc123", state: str = serving_states.SERVING, **columns: Any
) -> Instance:
    """An instance of a revision, as the control worker would have made it."""
    return Instance.objects.create(deployment=of.deployment, revision=of, uid=uid, state=state, **columns)


def node(node_id: str = "n1") -> Node:
    """A ready node with one CPU slot."""
    made = Node.objects.create(node_id=node_id, hostname=f"{node_id}.local", home="/home", state="ready")
    Gpu.objects.create(node=made, index=0, device=Gpu.Device.CPU, product="CPU")
    return made
