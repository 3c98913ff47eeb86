"""What a host has, with NVML and without; the two commands."""

from __future__ import annotations

import json
import sys
from io import StringIO
from types import SimpleNamespace
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from apps.fleet import devices
from apps.fleet.models import Node


class FakeNvml(SimpleNamespace):
    """pynvml with two GPUs."""

    class NVMLError(Exception):
        pass

    def __init__(self, fails: str = "") -> None:
        super().__init__()
        self.fails, self.shut_down = fails, False

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

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> Any:
        return SimpleNamespace(total=150_000_000_000)

    def nvmlDeviceGetUUID(self, handle: int) -> Any:
        return f"GPU-{handle}".encode()


def test_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = FakeNvml()
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    found = devices.probe()
    assert [(slot.index, slot.device, slot.uuid, slot.compute_capability) for slot in found.devices] == [
        (0, "gpu", "GPU-0", "9.0"),
        (1, "gpu", "GPU-1", "9.0"),
    ]
    assert found.versions["driver"] == "580.1"
    assert devices.slot_indices() == [0, 1]
    assert nvml.shut_down


@pytest.mark.parametrize("fails", ["init", "driver", "count", "handle"])
def test_nvml_that_does_not_answer_means_a_cpu_slot(monkeypatch: pytest.MonkeyPatch, fails: str) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml(fails))
    found = devices.probe()
    assert [slot.device for slot in found.devices] == ["cpu"]
    assert found.devices[0].product
    assert found.devices[0].memory_bytes == found.memory_bytes > 0
    assert found.cores >= 1
    assert devices.slot_indices() == [0]


def test_no_pynvml_means_a_cpu_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert [slot.device for slot in devices.probe().devices] == ["cpu"]


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
