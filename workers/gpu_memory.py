"""What a GPU says of its memory: kept with each crash, and compared around each load."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from apps.fleet.models import Gpu


def state_of(gpu: Gpu | None) -> list[dict[str, Any]] | None:
    """The slot's GPU now, as CrashReport.gpus keeps it; null for a CPU slot and where NVML does not answer."""
    handle_of = _opened(gpu)
    if handle_of is None:
        return None
    nvml, handle = handle_of
    try:
        memory = nvml.nvmlDeviceGetMemoryInfo(handle)
        found: dict[str, Any] = {
            "index": gpu.index if gpu else None,
            "uuid": gpu.uuid if gpu else "",
            "used_bytes": int(memory.used),
            "total_bytes": int(memory.total),
            "temperature": _told(nvml, lambda: int(nvml.nvmlDeviceGetTemperature(handle, 0))),
            "processes": _processes(nvml, handle),
        }
    except nvml.NVMLError:
        return None
    finally:
        nvml.nvmlShutdown()
    return [found]


def used_bytes(gpu: Gpu | None, pids: Iterable[int] | None = None) -> int | None:
    """Memory in use on the slot's GPU, by these processes where NVML tells that apart; null where unknown."""
    told = state_of(gpu)
    if not told:
        return None
    if pids is not None and told[0]["processes"]:
        mine = set(pids)
        sizes = [each["used_bytes"] for each in told[0]["processes"] if each["pid"] in mine]
        if sizes and all(size is not None for size in sizes):
            return int(sum(sizes))
    return int(told[0]["used_bytes"])


def _opened(gpu: Gpu | None) -> tuple[Any, Any] | None:
    if gpu is None or gpu.device != Gpu.Device.GPU:
        return None
    try:
        import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    try:
        if gpu.uuid:
            return pynvml, pynvml.nvmlDeviceGetHandleByUUID(gpu.uuid)
        return pynvml, pynvml.nvmlDeviceGetHandleByIndex(gpu.index)
    except pynvml.NVMLError:
        pynvml.nvmlShutdown()
        return None


def _processes(nvml: Any, handle: Any) -> list[dict[str, Any]]:
    rows = _told(nvml, lambda: nvml.nvmlDeviceGetComputeRunningProcesses(handle)) or []
    return [
        {"pid": int(each.pid), "used_bytes": int(each.usedGpuMemory) if each.usedGpuMemory else None}
        for each in rows
    ]


def _told(nvml: Any, ask: Any) -> Any:
    try:
        return ask()
    except nvml.NVMLError:
        return None
