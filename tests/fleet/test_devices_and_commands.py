"""What a host has, with NVML and without; the two commands."""

from __future__ import annotations

import json
import sys
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from apps.fleet import devices
from apps.fleet.domain import gpu_links, gpu_query
from apps.fleet.models import Node


class FakeNvml(SimpleNamespace):
    """pynvml with two GPUs that NVLink joins; whatever it does not have it does not support."""

    class NVMLError(Exception):
        pass

    def __init__(self, fails: str = "", sliced: bool = False) -> None:
        super().__init__()
        self.fails, self.sliced, self.shut_down = fails, sliced, False

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("nvml"):
            raise AttributeError(name)

        def unsupported(*arguments: Any) -> None:
            raise self.NVMLError("Not Supported")

        return unsupported

    def _say(self, call: str, answer: Any) -> Any:
        if self.fails == call:
            raise self.NVMLError(call)
        return answer

    def nvmlInit(self) -> None:
        self._say("init", None)

    def nvmlShutdown(self) -> None:
        self.shut_down = True

    def nvmlSystemGetDriverVersion(self) -> Any:
        return self._say("driver", b"580.1")

    def nvmlDeviceGetCount(self) -> Any:
        return self._say("count", 2)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Any:
        return self._say("handle", index)

    def nvmlDeviceGetCudaComputeCapability(self, handle: int) -> Any:
        return 9, 0

    def nvmlDeviceGetName(self, handle: int) -> Any:
        return "NVIDIA H200"

    def nvmlDeviceGetMemoryInfo(self, handle: Any) -> Any:
        size = 16_000_000_000 if isinstance(handle, str) else 150_000_000_000
        return self._say("memory", SimpleNamespace(total=size, used=1, free=size - 1))

    def nvmlDeviceGetUUID(self, handle: Any) -> Any:
        return f"{'' if isinstance(handle, str) else 'GPU-'}{handle}".encode()

    def nvmlDeviceGetP2PStatus(self, first: int, second: int, caps: int) -> Any:
        return self._say("links", 0)

    def nvmlDeviceGetMigMode(self, handle: int) -> Any:
        return (1, 1) if self.sliced and handle == 1 else (0, 0)

    def nvmlDeviceGetMaxMigDeviceCount(self, handle: int) -> Any:
        return 7

    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle: int, number: int) -> Any:
        if number >= 2:
            raise self.NVMLError("Not Found")
        return f"MIG-{handle}-{number}"


@pytest.fixture(autouse=True)
def no_smi(monkeypatch: pytest.MonkeyPatch) -> None:
    """No nvidia-smi, whatever the machine has."""
    monkeypatch.setattr(devices.shutil, "which", lambda name: None)


def test_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = FakeNvml()
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    found = devices.probe()
    assert [(slot.index, slot.device, slot.uuid, slot.compute_capability) for slot in found.devices] == [
        (0, "gpu", "GPU-0", "9.0"),
        (1, "gpu", "GPU-1", "9.0"),
    ]
    assert [slot.nvlink_group for slot in found.devices] == [0, 0]
    assert found.versions["driver"] == "580.1"
    assert found.report["status"] == "ok"
    assert found.folders[0].name == "home"
    assert devices.slot_indices() == [0, 1]
    assert nvml.shut_down


def test_slices_are_slots_and_their_gpu_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml(sliced=True))
    listed = (
        "GPU 0: NVIDIA H200 (UUID: GPU-0)\nGPU 1: NVIDIA H200 (UUID: GPU-1)\n"
        "  MIG 1g.18gb     Device  0: (UUID: MIG-1-0)\n  MIG 1g.18gb     Device  1: (UUID: MIG-1-1)\n"
    )
    monkeypatch.setattr(devices.shutil, "which", lambda name: "/usr/bin/nvidia-smi")
    monkeypatch.setattr(devices, "_run", lambda argv: gpu_query.Run(listed, "", 0))
    found = devices.probe().devices
    assert [(slot.index, slot.mig_parent, slot.mig_profile) for slot in found] == [
        (0, None, ""),
        (116, 1, "1g.18gb"),
        (117, 1, "1g.18gb"),
    ]
    assert (found[1].uuid, found[1].memory_bytes) == ("MIG-1-0", 16_000_000_000)
    assert devices.slot_indices() == [0, 116, 117]


def test_a_driver_that_nvml_cannot_reach_is_asked_by_nvidia_smi(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml("init"))
    xml = (Path(__file__).parents[1] / "data/gpus/h200-query.xml").read_text()
    monkeypatch.setattr(devices.shutil, "which", lambda name: "/usr/bin/nvidia-smi")
    monkeypatch.setattr(devices, "_run", lambda argv: gpu_query.Run(xml, "", 0))
    found = devices.probe()
    assert [slot.device for slot in found.devices] == ["gpu"]
    assert found.report["source"] == "nvidia-smi"
    assert found.report["findings"], "what NVML said is kept"


@pytest.mark.parametrize(
    ("fails", "slots"), [("init", ["cpu"]), ("count", ["cpu"]), ("driver", ["gpu", "gpu"])]
)
def test_nvml_that_does_not_answer(monkeypatch: pytest.MonkeyPatch, fails: str, slots: list[str]) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml(fails))
    found = devices.probe()
    assert [slot.device for slot in found.devices] == slots
    assert found.devices[0].product
    if slots == ["cpu"]:
        assert found.devices[0].memory_bytes == found.memory_bytes > 0
        assert devices.slot_indices() == [0]
    assert found.cores >= 1


def test_a_gpu_that_does_not_answer_and_one_without_memory_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml("handle"))
    assert {slot.condition for slot in devices.probe().devices} == {"lost"}
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml("memory"))
    found = devices.probe()
    assert {(slot.unified_memory, slot.memory_bytes) for slot in found.devices} == {
        (True, found.memory_bytes)
    }


def test_no_pynvml_means_a_cpu_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert [slot.device for slot in devices.probe().devices] == ["cpu"]


TOPOLOGY = """\t\x1b[4mGPU0\tGPU1\tGPU2\tGPU3\tCPU Affinity\tNUMA Affinity\x1b[0m
GPU0\t X \tNV18\tSYS\tSYS\t0-31\t0
GPU1\tNV18\t X \tSYS\tSYS\t0-31\t0
GPU2\tSYS\tSYS\t X \tPHB\t32-63\t1
GPU3\tSYS\tSYS\tPHB\t X \t32-63\t1

Legend:
  NV#  = Connection traversing a bonded set of # NVLinks
"""


@pytest.mark.parametrize(
    ("text", "groups"), [(TOPOLOGY, {0: 0, 1: 0}), ("", {}), ("Failed to initialize NVML", {})]
)
def test_groups_out_of_the_topology(text: str, groups: dict[int, int]) -> None:
    assert gpu_links.from_topology(text) == groups


def test_list_worker_slots_needs_no_database(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml())
    output = StringIO()
    call_command("list_worker_slots", stdout=output)
    assert output.getvalue() == "0\n1\n"


@pytest.mark.django_db
def test_join() -> None:
    output = StringIO()
    call_command("join", "--node-id", "n-x", "--label", "rack=a", "--json", stdout=output)
    shown = json.loads(output.getvalue())
    assert (shown["node_id"], shown["state"], shown["labels"]) == ("n-x", "ready", {"rack": "a"})
    call_command("join", stdout=(output := StringIO()))
    assert output.getvalue().startswith("n-test: ")
    assert Node.objects.count() == 2


@pytest.mark.django_db
def test_join_with_wrong_words(settings: Any) -> None:
    with pytest.raises(CommandError, match="KEY=VALUE"):
        call_command("join", "--label", "rack")
    settings.INFLIGHT_NODE_ID = ""
    with pytest.raises(CommandError, match="INFLIGHT_NODE_ID"):
        call_command("join")
