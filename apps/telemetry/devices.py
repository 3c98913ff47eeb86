"""What this host says about itself, its devices and the servers' processes.

Everything here is quick but blocking; the scraper calls it in a thread. What cannot be told is None.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

import psutil

from apps.telemetry import processes
from apps.telemetry.domain.derive import Amounts
from apps.telemetry.domain.vocabulary_device import DEVICE_KEYS
from apps.telemetry.gpus import Device, Gpus

__all__ = ["Device", "Gpus", "ProcessGauge", "host", "merged"]

# Of several GPUs: added, the mean, the highest, the lowest.
_ADDED = (
    "gpu_memory_used_bytes",
    "gpu_memory_total_bytes",
    "gpu_power_watts",
    "gpu_power_limit_watts",
    "gpu_energy_joules",
    "gpu_ecc_corrected",
    "gpu_ecc_uncorrected",
    "gpu_xid_errors",
    "gpu_pcie_sent_bytes_per_second",
    "gpu_pcie_received_bytes_per_second",
)
_MEAN = ("gpu_use", "gpu_memory_bandwidth_use", "gpu_sm_active", "gpu_tensor_active")
_LOWEST = ("gpu_sm_clock_hertz", "gpu_memory_clock_hertz", "gpu_sm_clock_max_hertz")
_GPU_KEYS = tuple(key.name for key in DEVICE_KEYS if key.area == "gpu")


class ProcessGauge:
    """CPU and memory of one server: its process and all that it started.

    The process is known by pid and create time (seconds since boot, as on the instance row), so that a reused pid
    is never measured.
    """

    def __init__(self, pid: int, created: float | None) -> None:
        self._pid = pid
        self._created = created
        self._seconds: dict[tuple[int, float], float] = {}
        self._at: float | None = None
        self._latest: float | None = None

    def read(self) -> dict[str, float | None]:
        """`cpu_use` (share of all cores since the last read; None at the first) and `rss_bytes`."""
        table = processes.table()
        tree = list(table.tree(self._pid, self._created))
        seconds = {(each.pid, each.created): each.cpu_seconds for each in tree}
        if self._at is not None and table.at > self._at:
            self._latest = self._use(seconds, table.at - self._at) if seconds else None
        self._seconds, self._at = seconds, table.at
        return {"cpu_use": self._latest, "rss_bytes": float(sum(each.rss for each in tree)) if tree else None}

    def _use(self, seconds: Mapping[tuple[int, float], float], passed: float) -> float:
        # A child that is new since the last read counts from its start; one that ended is lost with its last second.
        used = sum(value - self._seconds.get(key, 0.0) for key, value in seconds.items())
        return max(0.0, used / passed / (psutil.cpu_count() or 1))


def host(shm: str = "/dev/shm") -> Device:  # noqa: S108  this is what is measured
    """The vocabulary's host_ and shm_ keys of this host; CPU use since the last call (None at the first)."""
    memory = psutil.virtual_memory()
    found: Device = {
        "host_cpu_use": _cpu_use(),
        "host_memory_used_bytes": float(memory.total - memory.available),
        "host_memory_total_bytes": float(memory.total),
        "shm_used_bytes": None,
        "shm_total_bytes": None,
    }
    try:
        facts = os.statvfs(shm)
    except OSError:
        return found
    found["shm_total_bytes"] = float(facts.f_blocks * facts.f_frsize)
    found["shm_used_bytes"] = float((facts.f_blocks - facts.f_bfree) * facts.f_frsize)
    return found


_cpu_asked: list[bool] = []


def _cpu_use() -> float | None:
    percent = psutil.cpu_percent(None)
    if not _cpu_asked:  # psutil's first answer is a 0 that means nothing
        _cpu_asked.append(True)
        return None
    return percent / 100


def merged(readings: list[Device], gpus: list[Mapping[str, float | None]]) -> dict[str, float | None]:
    """Readings of several servers and of the distinct GPUs under them as one.

    CPU use, memory, power, energy and errors are added; uses are means over the GPUs; of temperatures and throttle
    flags the highest counts, of clocks the lowest.
    """
    found: dict[str, float | None] = {
        name: _sum(reading.get(name) for reading in readings) for name in ("cpu_use", "rss_bytes")
    }
    for name in _GPU_KEYS:
        values = [value for gpu in gpus if (value := gpu.get(name)) is not None]
        found[name] = _joined(name, values) if values else None
    return found


def _joined(name: str, values: list[float]) -> float:
    if name in _ADDED:
        return sum(values)
    if name in _MEAN:
        return sum(values) / len(values)
    return min(values) if name in _LOWEST else max(values)


def _sum(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def told_by_servers(told: Iterable[Mapping[str, Amounts]]) -> dict[str, Device]:
    """GPU figures that servers tell of their own GPUs, by UUID: for hosts whose NVML cannot be asked from here."""
    found: dict[str, Device] = {}
    for gpus in told:
        for uuid, values in gpus.items():
            found.setdefault(uuid, {}).update({name: values[name] for name in _GPU_KEYS if name in values})
    return found
