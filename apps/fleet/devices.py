"""What this host has: GPUs by NVML, else one CPU slot by psutil. Never raises: a host without NVML is a CPU host."""

from __future__ import annotations

import os
import platform
import socket
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from apps.fleet.models import Gpu


@dataclass(frozen=True, slots=True)
class DeviceFacts:
    """One slot. `memory_bytes` is the GPU's, or the host's for a CPU slot; empty text where unknown."""

    index: int
    device: str
    product: str
    memory_bytes: int | None
    uuid: str = ""
    compute_capability: str = ""


@dataclass(frozen=True, slots=True)
class HostFacts:
    """The host and its slots. `versions` holds what is known: python, kernel, driver; `cores` logical ones."""

    hostname: str
    cores: int
    memory_bytes: int
    versions: dict[str, str]
    devices: tuple[DeviceFacts, ...]


def probe() -> HostFacts:
    """Look at this host."""
    versions = {"python": platform.python_version(), "kernel": platform.release()}
    gpus, driver = _gpus()
    if driver:
        versions["driver"] = driver
    memory = psutil.virtual_memory().total
    return HostFacts(
        hostname=socket.gethostname(),
        cores=usable_cores(),
        memory_bytes=memory,
        versions=versions,
        devices=gpus or (_cpu_slot(memory),),
    )


def slot_indices() -> list[int]:
    """Indices of this host's worker slots: one for each GPU, or 0 for the CPU slot."""
    return [gpu.index for gpu in _gpus()[0]] or [0]


def usable_cores() -> int:
    """Logical cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else psutil.cpu_count() or 1


def _cpu_slot(memory: int) -> DeviceFacts:
    return DeviceFacts(index=0, device=Gpu.Device.CPU, product=_cpu_model(), memory_bytes=memory)


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    named = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    return (named or platform.machine() or "CPU")[:120]


def _gpus() -> tuple[tuple[DeviceFacts, ...], str]:
    """GPUs and the driver's version; nothing where NVML is not there or does not answer."""
    try:
        import pynvml
    except ImportError:
        return (), ""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return (), ""
    try:
        driver = _text(pynvml.nvmlSystemGetDriverVersion())
        count = int(pynvml.nvmlDeviceGetCount())
        return tuple(_gpu(pynvml, index) for index in range(count)), driver
    except pynvml.NVMLError:
        return (), ""
    finally:
        pynvml.nvmlShutdown()


def _gpu(nvml: Any, index: int) -> DeviceFacts:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    major, minor = nvml.nvmlDeviceGetCudaComputeCapability(handle)
    return DeviceFacts(
        index=index,
        device=Gpu.Device.GPU,
        product=_text(nvml.nvmlDeviceGetName(handle))[:120],
        memory_bytes=int(nvml.nvmlDeviceGetMemoryInfo(handle).total),
        uuid=_text(nvml.nvmlDeviceGetUUID(handle)),
        compute_capability=f"{major}.{minor}",
    )


def _text(value: str | bytes) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
