"""What this host says about its own devices and the servers' processes: psutil and NVML.

Everything here is quick but blocking; the scraper calls it in a thread. What cannot be told is None.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping

import psutil
import pynvml

from apps.fleet.processes import identify

log = logging.getLogger(__name__)

# Seconds between two attempts to reach NVML: no driver now may be a driver later, but not every second.
NVML_RETRY_SECONDS = 60.0


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

    def read(self) -> dict[str, float | None]:
        """`cpu_use` (share of all cores since the last read; None at the first) and `rss_bytes`."""
        seconds: dict[tuple[int, float], float] = {}
        rss = 0.0
        for process in self._tree():
            try:
                with process.oneshot():
                    times = process.cpu_times()
                    seconds[process.pid, process.create_time()] = times.user + times.system
                    rss += process.memory_info().rss
            except psutil.Error:
                continue
        now = time.monotonic()
        use = self._use(seconds, now) if self._at is not None and seconds else None
        self._seconds, self._at = seconds, now
        return {"cpu_use": use, "rss_bytes": rss if seconds else None}

    def _use(self, seconds: Mapping[tuple[int, float], float], now: float) -> float | None:
        passed = now - (self._at or now)
        if passed <= 0:
            return None
        # A child that is new since the last read counts from its start; one that ended is lost with its last second.
        used = sum(value - self._seconds.get(key, 0.0) for key, value in seconds.items())
        return max(0.0, used / passed / (psutil.cpu_count() or 1))

    def _tree(self) -> list[psutil.Process]:
        try:
            process = psutil.Process(self._pid)
            found = identify(self._pid)
            if found is None or self._created not in (None, found.created):
                return []
            return [process, *process.children(recursive=True)]
        except psutil.Error:
            return []


class Gpus:
    """Readings of GPUs by UUID; nothing where NVML is not there."""

    def __init__(self) -> None:
        self._ready = False
        self._tried_at = float("-inf")

    def read(self, uuids: set[str]) -> dict[str, dict[str, float | None]]:
        """`gpu_use`, `gpu_memory_used_bytes` and `gpu_power_watts` of each GPU that answers."""
        if not uuids or not self._start():
            return {}
        return {uuid: reading for uuid in uuids if (reading := self._one(uuid))}

    def _start(self) -> bool:
        if not self._ready and time.monotonic() - self._tried_at >= NVML_RETRY_SECONDS:
            self._tried_at = time.monotonic()
            try:
                pynvml.nvmlInit()
                self._ready = True
            except pynvml.NVMLError as error:
                log.info("GPU readings are not available: %s", error)
        return self._ready

    def _one(self, uuid: str) -> dict[str, float | None]:
        try:
            handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
        except pynvml.NVMLError as error:
            log.debug("NVML does not know %s: %s", uuid, error)
            return {}
        return {
            "gpu_use": _told(lambda: pynvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100),
            "gpu_memory_used_bytes": _told(lambda: float(pynvml.nvmlDeviceGetMemoryInfo(handle).used)),
            "gpu_power_watts": _told(lambda: pynvml.nvmlDeviceGetPowerUsage(handle) / 1000),
        }


def _told(ask: Callable[[], float]) -> float | None:
    try:
        return float(ask())
    except pynvml.NVMLError:
        return None


def merged(
    processes: list[dict[str, float | None]], gpus: list[dict[str, float | None]]
) -> dict[str, float | None]:
    """Readings of several servers and of the distinct GPUs under them as one.

    CPU use, memory and power are added; GPU use is the mean of the GPUs.
    """
    found: dict[str, float | None] = {
        name: _sum(reading.get(name) for reading in processes) for name in ("cpu_use", "rss_bytes")
    }
    for name in ("gpu_memory_used_bytes", "gpu_power_watts"):
        found[name] = _sum(reading.get(name) for reading in gpus)
    uses = [reading["gpu_use"] for reading in gpus if reading.get("gpu_use") is not None]
    found["gpu_use"] = sum(use for use in uses if use is not None) / len(uses) if uses else None
    return found


def _sum(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None
