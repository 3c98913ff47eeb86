"""REST: a plan of a registered checkpoint, the table of GPUs, predicted against measured."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from django.conf import settings
from django.test import Client

from apps.engines.models import Engine, MemoryMeasurement
from apps.fleet.models import Gpu
from apps.registry.services import register_checkpoint
from tests import objects
from tests.engines.memory.test_command import LLAMA_8B
from tests.people import client_of, person
from tests.specs.api import ok, refused, send
from tests.support.llama import write_llama

pytestmark = pytest.mark.django_db


@pytest.fixture
def viewer() -> Client:
    return client_of(person("viewer"))


@pytest.fixture
def llama(db: None) -> str:
    folder = Path(settings.INFLIGHT_HOME) / "checkpoints" / "llama-8b"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(LLAMA_8B))
    register_checkpoint("test", "llama-8b", {"path": str(folder)})
    return "llama-8b"


def test_a_plan(viewer: Client, llama: str) -> None:
    body = {"checkpoint": llama, "gpu_memory": "79.1GiB", "max_batch_size": 64, "max_seq_len": 8192}
    found = ok(send(viewer, "POST", "/memory/plan", body))
    assert found["engine"] == "tensorrt_llm"
    assert found["weights_bytes"] == 2 * 8_030_261_248
    assert found["fits"] is True
    assert found["largest_batch"] >= 50
    assert found["fewest_spread"] == {"tp": 1, "pp": 1}
    assert found["terms"][0]["formula"]
    small = ok(send(viewer, "POST", "/memory/plan", {**body, "gpu_memory": "8GiB"}))
    assert small["fits"] is False
    assert small["fewest_gpus"] == 4


def test_a_plan_on_a_slot_of_this_fleet(viewer: Client) -> None:
    slot = objects.node().gpus.get()
    write_llama(Path(settings.INFLIGHT_HOME) / "checkpoints" / "whole" / "tiny.gguf")
    register_checkpoint("test", "whole", {"demo": "whole"})
    body = {"checkpoint": "whole", "gpu": f"fleet:{slot.node.node_id}/{slot.index}", "max_batch_size": 4}
    refused(send(viewer, "POST", "/memory/plan", body), 422, "slot_memory_unknown", "gpu_memory")
    slot.node.versions = {"memory_bytes": 8 * 2**30}
    slot.node.save()
    found = ok(send(viewer, "POST", "/memory/plan", body))
    assert (found["engine"], found["fits"], found["gpus"]) == ("llamacpp", True, None)
    gpu = Gpu.objects.create(
        node=slot.node,
        index=1,
        device="gpu",
        product="NVIDIA L4",
        memory_bytes=22 * 2**30,
        compute_capability="8.9",
    )
    on_gpu = {**body, "gpu": f"fleet:{slot.node.node_id}/{gpu.index}", "weights": "nvfp4", "max_seq_len": 512}
    planned = ok(send(viewer, "POST", "/memory/plan", on_gpu))
    assert planned["gpu_memory_bytes"] == 22 * 2**30
    assert "format_unsupported_gpu" in {finding["id"] for finding in planned["findings"]}


@pytest.mark.parametrize(
    ("change", "code", "field"),
    [
        ({"tp": 3}, "tp_invalid", "tp"),
        ({"gpu_memory": "much"}, "bytes_unreadable", "gpu_memory"),
        ({"gpu_memory": "", "gpu": "abacus"}, "gpu_unknown", "gpu"),
        ({"weights": "int3"}, "weights_unknown", "weights"),
    ],
)
def test_refused_input(viewer: Client, llama: str, change: dict[str, object], code: str, field: str) -> None:
    body = {"checkpoint": llama, "gpu_memory": "80GiB"} | change
    refused(send(viewer, "POST", "/memory/plan", body), 422, code, field)


def test_unknown_checkpoints_and_fields(viewer: Client, llama: str) -> None:
    refused(
        send(viewer, "POST", "/memory/plan", {"checkpoint": "none", "gpu": "l4"}), 404, "checkpoint_unknown"
    )
    assert send(viewer, "POST", "/memory/plan", {"checkpoint": llama, "gpus": "l4"}).status_code == 422


def test_the_table_of_gpus(viewer: Client) -> None:
    found = {gpu["key"]: gpu for gpu in ok(send(viewer, "GET", "/memory/gpus"))}
    assert found["h200"]["memory_bytes"] == 150_109_880_320
    assert found["h200"]["sm"] == 90
    assert {"h100-sxm", "h100-nvl", "a100-40", "a100-80", "l40s", "l4", "b200", "gb200", "v100-16"} <= set(
        found
    )


def test_measurements_of_an_engine(viewer: Client) -> None:
    engine: Engine = objects.engine(objects.build_profile())
    MemoryMeasurement.objects.create(
        event="load",
        engine=engine,
        subject="i-1",
        attempt=1,
        term="kv",
        predicted=105,
        measured=100,
        source="log",
    )
    found = ok(send(viewer, "GET", f"/memory/measurements?engine={engine.fingerprint[:12]}"))
    assert found["items"][0] | {"created_at": None} == {
        "event": "load",
        "term": "kv",
        "engine": engine.fingerprint,
        "build": None,
        "instance": "i-1",
        "attempt": 1,
        "predicted": 105,
        "predicted_low": None,
        "predicted_high": None,
        "measured": 100,
        "error": 0.05,
        "source": "log",
        "version": "",
        "gpu_kind": "",
        "created_at": None,
    }
    assert ok(send(viewer, "GET", "/memory/measurements?instance=i-2"))["items"] == []
