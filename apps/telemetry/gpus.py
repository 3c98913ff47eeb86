"""GPU figures of this host by NVML. Quick but blocking; what a GPU does not tell is None."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from typing import Any

import pynvml

from apps.telemetry.domain.dialects.dcgm import throttling

log = logging.getLogger(__name__)

Device = dict[str, float | None]

# Seconds between two attempts to reach NVML: no driver now may be a driver later, but not every second.
NVML_RETRY_SECONDS = 60.0
# NVML measures PCIe traffic for 20 ms and lets the caller wait; so it is asked only now and then.
PCIE_SECONDS = 5.0


class Gpus:
    """Readings of GPUs by UUID; nothing where NVML is not there. Use it from one thread at a time."""

    def __init__(self) -> None:
        self._ready = False
        self._tried_at = float("-inf")
        self._energy: dict[str, float] = {}
        self._pcie_at: dict[str, float] = {}
        self._xid = _Xids()

    def read(self, uuids: set[str]) -> dict[str, Device]:
        """The vocabulary's gpu_ keys of each GPU that answers."""
        if not uuids or not self._start():
            return {}
        xids = self._xid.poll(uuids)
        found = {}
        for uuid in uuids:
            reading = self._one(uuid)
            if reading:
                seen = xids.get(uuid, [])
                reading["gpu_xid_errors"] = float(len(seen)) if self._xid.listening else None
                reading["gpu_xid_last"] = self._xid.last.get(uuid)
                found[uuid] = reading
        return found

    def _start(self) -> bool:
        if not self._ready and time.monotonic() - self._tried_at >= NVML_RETRY_SECONDS:
            self._tried_at = time.monotonic()
            try:
                pynvml.nvmlInit()
                self._ready = True
            except pynvml.NVMLError as error:
                log.info("GPU readings are not available: %s", error)
        return self._ready

    def _one(self, uuid: str) -> Device:
        try:
            handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
        except pynvml.NVMLError as error:
            log.debug("NVML does not know %s: %s", uuid, error)
            return {}
        found = _state(handle) | _errors(handle)
        found["gpu_energy_joules"] = self._energy_used(uuid, handle)
        if time.monotonic() - self._pcie_at.get(uuid, float("-inf")) >= PCIE_SECONDS:
            self._pcie_at[uuid] = time.monotonic()
            found["gpu_pcie_sent_bytes_per_second"] = _pcie(handle, pynvml.NVML_PCIE_UTIL_TX_BYTES)
            found["gpu_pcie_received_bytes_per_second"] = _pcie(handle, pynvml.NVML_PCIE_UTIL_RX_BYTES)
        return found

    def _energy_used(self, uuid: str, handle: Any) -> float | None:
        """Joules since the last reading; None at the first, and where the counter began anew."""
        total = _told(lambda: pynvml.nvmlDeviceGetTotalEnergyConsumption(handle) / 1000)
        before = self._energy.get(uuid)
        if total is None:
            return None
        self._energy[uuid] = total
        return None if before is None or total < before else total - before


class _Xids:
    """NVML's critical Xid events, polled without waiting."""

    def __init__(self) -> None:
        self.last: dict[str, float] = {}
        self.listening = False
        self._set: Any = None
        self._known: set[str] = set()

    def poll(self, uuids: Iterable[str]) -> dict[str, list[int]]:
        """Xids since the last call by UUID."""
        found: dict[str, list[int]] = {}
        try:
            if self._set is None:
                self._set = pynvml.nvmlEventSetCreate()
            for uuid in set(uuids) - self._known:
                self._known.add(uuid)
                handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
                pynvml.nvmlDeviceRegisterEvents(handle, pynvml.nvmlEventTypeXidCriticalError, self._set)
                self.listening = True
            while self.listening:
                event = pynvml.nvmlEventSetWait_v2(self._set, 0)
                uuid = _text(pynvml.nvmlDeviceGetUUID(event.device))
                found.setdefault(uuid, []).append(int(event.eventData))
                self.last[uuid] = float(event.eventData)
        except pynvml.NVMLError as error:
            if error.value != pynvml.NVML_ERROR_TIMEOUT:  # no event is no error
                log.debug("Xid events are not available: %s", error)
        return found


def _state(handle: Any) -> Device:
    memory = _asked(lambda: pynvml.nvmlDeviceGetMemoryInfo(handle))
    use = _asked(lambda: pynvml.nvmlDeviceGetUtilizationRates(handle))
    reasons = _asked(lambda: _reasons(handle))
    found: Device = {
        "gpu_use": None if use is None else use.gpu / 100,
        "gpu_memory_bandwidth_use": None if use is None else use.memory / 100,
        "gpu_memory_used_bytes": None if memory is None else float(memory.used),
        "gpu_memory_total_bytes": None if memory is None or not memory.total else float(memory.total),
        "gpu_power_watts": _told(lambda: pynvml.nvmlDeviceGetPowerUsage(handle) / 1000),
        "gpu_power_limit_watts": _told(lambda: pynvml.nvmlDeviceGetEnforcedPowerLimit(handle) / 1000),
        "gpu_temperature_celsius": _told(
            lambda: pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU)
        ),
        "gpu_memory_temperature_celsius": _told(lambda: _memory_temperature(handle)),
        "gpu_sm_clock_hertz": _told(
            lambda: pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM) * 1e6
        ),
        "gpu_sm_clock_max_hertz": _told(
            lambda: pynvml.nvmlDeviceGetMaxClockInfo(handle, pynvml.NVML_CLOCK_SM) * 1e6
        ),
        "gpu_memory_clock_hertz": _told(
            lambda: pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_MEM) * 1e6
        ),
    }
    flags: Device = dict(throttling(int(reasons))) if reasons is not None else dict.fromkeys(throttling(0))
    return found | flags


def _pcie(handle: Any, counter: int) -> float | None:
    return _told(lambda: pynvml.nvmlDeviceGetPcieThroughput(handle, counter) * 1024)  # KiB/s


def _errors(handle: Any) -> Device:
    def count(kind: int) -> float | None:
        return _told(lambda: pynvml.nvmlDeviceGetTotalEccErrors(handle, kind, pynvml.NVML_VOLATILE_ECC))

    return {
        "gpu_ecc_corrected": count(pynvml.NVML_MEMORY_ERROR_TYPE_CORRECTED),
        "gpu_ecc_uncorrected": count(pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED),
    }


def _reasons(handle: Any) -> int:
    # Renamed in driver 535; older libraries know the old name only.
    ask = getattr(pynvml, "nvmlDeviceGetCurrentClocksEventReasons", None)
    return int((ask or pynvml.nvmlDeviceGetCurrentClocksThrottleReasons)(handle))


def _memory_temperature(handle: Any) -> float:
    fields = pynvml.nvmlDeviceGetFieldValues(handle, [pynvml.NVML_FI_DEV_MEMORY_TEMP])
    if fields[0].nvmlReturn != pynvml.NVML_SUCCESS:
        raise pynvml.NVMLError(fields[0].nvmlReturn)
    return float(fields[0].value.uiVal)


def _asked(ask: Callable[[], Any]) -> Any:
    try:
        return ask()
    except pynvml.NVMLError:
        return None


def _told(ask: Callable[[], float]) -> float | None:
    value = _asked(ask)
    return None if value is None else float(value)


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
