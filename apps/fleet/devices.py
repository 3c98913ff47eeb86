"""What this host has: GPUs by NVML and nvidia-smi, else one CPU slot. Never raises."""

from __future__ import annotations

import os
import platform
import shutil
import socket
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from django.conf import settings

from apps.fleet import programs
from apps.fleet.domain import gpu_links, gpu_query
from apps.fleet.domain.gpu_facts import GpuReport
from apps.fleet.domain.slots import Link, SlotFacts, merged, slots_of
from apps.fleet.models import Gpu

DeviceFacts = SlotFacts
# nvidia-smi answers in a second; one that hangs does so in the driver.
SMI_SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class Folder:
    """A place where Inflight writes. Null sizes: it cannot be looked at."""

    name: str
    path: str
    total_bytes: int | None
    free_bytes: int | None
    writable: bool

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return {name: getattr(self, name) for name in Folder.__slots__}


@dataclass(frozen=True, slots=True)
class HostFacts:
    """The host and its slots. `versions` holds what is known: python, kernel, driver, cuda, aiperf; `cores` logical.

    `report` is what the driver said, `keep_known` that it said so little that slots known before stay.
    """

    hostname: str
    cores: int
    memory_bytes: int
    versions: dict[str, str]
    devices: tuple[DeviceFacts, ...]
    folders: tuple[Folder, ...] = ()
    report: dict[str, Any] = field(default_factory=dict)
    keep_known: bool = False


def probe() -> HostFacts:
    """Look at this host."""
    versions = {"python": platform.python_version(), "kernel": platform.release()}
    report, links = ask_driver()
    told = {"driver": report.driver_version, "cuda": report.cuda_version, "nvml": report.nvml_version}
    versions |= {name: version for name, version in told.items() if version}
    program = programs.aiperf()
    if program is not None:
        versions["aiperf"] = program.version
    memory = psutil.virtual_memory().total
    slots = slots_of(report, memory, links)
    return HostFacts(
        hostname=socket.gethostname(),
        cores=usable_cores(),
        memory_bytes=memory,
        versions=versions,
        devices=slots or (_cpu_slot(memory),),
        folders=folders(),
        report=told_by(report),
        keep_known=report.keep_last_known,
    )


def told_by(report: GpuReport) -> dict[str, Any]:
    """A report as the node's row keeps it."""
    found = report.as_dict()
    kept = ("status", "source", "driver_version", "cuda_version", "nvml_version", "findings")
    return {name: found[name] for name in kept}


def ask_driver() -> tuple[GpuReport, dict[int, Link]]:
    """What NVML says; where it says nothing, or GPUs are cut into slices, what nvidia-smi says besides."""
    report, nvlink = _by_nvml()
    sliced = any(gpu.mig_enabled for gpu in report.gpus)
    if not report.gpus or sliced:
        second = _by_smi(sliced)
        report = merged(report, second) if second is not None else report
    numa = {gpu.index: _numa_node(gpu.pci_bus_id) for gpu in report.gpus if gpu.index is not None}
    joined = gpu_links.joined(nvlink or _topology(len(report.gpus)), numa)
    return report, {index: Link(*each) for index, each in joined.items()}


def _by_nvml() -> tuple[GpuReport, dict[int, int]]:
    try:
        import pynvml
    except ImportError:
        return GpuReport(status="nvml_missing", source="nvml"), {}
    report = gpu_query.from_nvml(pynvml)
    if len(report.gpus) < 2:
        return report, {}
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return report, {}
    try:
        return report, gpu_links.from_nvml(pynvml, len(report.gpus))
    finally:
        pynvml.nvmlShutdown()


def _by_smi(sliced: bool) -> GpuReport | None:
    """nvidia-smi's answer; null where it is not installed. The list alone names the profiles of slices."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return None
    first = gpu_query.read(_run([program, "-q", "-x"]))
    if not sliced and not any(gpu.mig_enabled for gpu in first.gpus):
        return first
    return merged(gpu_query.read(_run([program, "-L"])), first)


def _topology(gpus: int) -> dict[int, int]:
    program = shutil.which("nvidia-smi") if gpus > 1 else None
    return gpu_links.from_topology(_run([program, "topo", "-m"]).stdout) if program else {}


def _run(argv: list[str]) -> gpu_query.Run:
    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=SMI_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return gpu_query.Run("", f"nvidia-smi did not answer within {SMI_SECONDS:.0f} s", None)
    except OSError as error:
        return gpu_query.Run("", f"nvidia-smi: {error.strerror}", None)
    return gpu_query.Run(
        done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8", "replace"), done.returncode
    )


def _numa_node(bus: str | None) -> int | None:
    """The NUMA node of a PCI device; null where the kernel has none (-1) or does not know the device."""
    if not bus:
        return None
    # sysfs writes a domain of four digits, NVML one of eight.
    short = bus.lower()[-12:]
    try:
        number = int(Path(f"/sys/bus/pci/devices/{short}/numa_node").read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None
    return number if number >= 0 else None


def folders() -> tuple[Folder, ...]:
    """The places that builds and servers write to, and the room that they have."""
    home = Path(settings.INFLIGHT_HOME)
    named = {
        "home": home,
        "engines": home / "engines",
        "checkpoints": home / "checkpoints",
        "shared memory": Path("/dev/shm"),  # noqa: S108 - where Triton's Python models share memory
    }
    return tuple(_folder(name, path) for name, path in named.items() if name == "home" or path.exists())


def _folder(name: str, path: Path) -> Folder:
    try:
        usage = shutil.disk_usage(path)
    except OSError:
        return Folder(name, str(path), None, None, False)
    return Folder(name, str(path), usage.total, usage.free, os.access(path, os.W_OK))


def slot_indices() -> list[int]:
    """Indices of this host's worker slots: one for each GPU or slice, or 0 for the CPU slot."""
    report, _links = ask_driver()
    return [slot.index for slot in slots_of(report, psutil.virtual_memory().total)] or [0]


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
