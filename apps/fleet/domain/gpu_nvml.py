"""GPUs by NVML. The module (pynvml) is handed in, so that a test can hand in one that fails in any place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from apps.fleet.domain.gpu_errors import normal_bus
from apps.fleet.domain.gpu_facts import Finding, GpuFacts, GpuReport, MigSlice

# Names of NVML's clocks event reasons (nvml.h) as nvidia-smi writes them.
_REASONS: dict[int, str] = {
    0x01: "gpu_idle",
    0x02: "applications_clocks_setting",
    0x04: "sw_power_cap",
    0x08: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake_slowdown",
    0x100: "display_clocks_setting",
}


def read(nvml: Any) -> GpuReport:
    """All GPUs of this host. What one GPU does not support is None; a GPU that does not answer at all is lost."""
    report = GpuReport(source="nvml")
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        _note_start(nvml, error, report)
        return report
    try:
        report.driver_version = _text(_asked(nvml, nvml.nvmlSystemGetDriverVersion))
        report.nvml_version = _text(_asked(nvml, nvml.nvmlSystemGetNVMLVersion))
        version = _asked(nvml, nvml.nvmlSystemGetCudaDriverVersion)
        report.cuda_version = None if version is None else f"{version // 1000}.{version % 1000 // 10}"
        count = int(nvml.nvmlDeviceGetCount())
        for index in range(count):
            report.gpus.append(_gpu(nvml, index, report))
        if not count:
            report.status = "no_gpus"
    except nvml.NVMLError as error:
        _note_start(nvml, error, report)
    finally:
        _asked(nvml, nvml.nvmlShutdown)
    return report


def _note_start(nvml: Any, error: Any, report: GpuReport) -> None:
    from apps.fleet.domain.gpu_errors import note_failure

    # The same words that nvidia-smi prints, so that there is one set of rules.
    ids = {
        getattr(
            nvml, "NVML_ERROR_LIB_RM_VERSION_MISMATCH", 18
        ): "Failed to initialize NVML: Driver/library version mismatch",
        getattr(nvml, "NVML_ERROR_DRIVER_NOT_LOADED", 9): "Failed to initialize NVML: Driver not loaded",
        getattr(nvml, "NVML_ERROR_LIBRARY_NOT_FOUND", 12): "NVML Shared Library Not Found",
        getattr(nvml, "NVML_ERROR_NO_PERMISSION", 4): "Failed to initialize NVML: Insufficient Permissions",
        getattr(nvml, "NVML_ERROR_UNKNOWN", 999): "Failed to initialize NVML: Unknown Error",
    }
    note_failure(report, ids.get(getattr(error, "value", None), f"Failed to initialize NVML: {error}"), None)


def _gpu(nvml: Any, index: int, report: GpuReport) -> GpuFacts:
    try:
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
    except nvml.NVMLError as error:
        report.findings.append(
            Finding(
                "gpu_lost",
                "error",
                f"GPU {index}",
                f"GPU {index} does not answer ({error}). The others are not concerned.",
                "Look for Xid 79 in the kernel's log; reset it or reboot, and check power and seat.",
            )
        )
        return GpuFacts(index=index, state="lost")

    def ask(function: str, *args: Any) -> Any:
        return _asked(nvml, lambda: getattr(nvml, function)(handle, *args))

    memory = ask("nvmlDeviceGetMemoryInfo")
    use = ask("nvmlDeviceGetUtilizationRates")
    capability = ask("nvmlDeviceGetCudaComputeCapability")
    ecc, mig = ask("nvmlDeviceGetEccMode"), ask("nvmlDeviceGetMigMode")
    pci = ask("nvmlDeviceGetPciInfo")
    total = int(memory.total) if memory is not None and memory.total else None
    facts = GpuFacts(
        index=index,
        uuid=_text(ask("nvmlDeviceGetUUID")),
        product=_text(ask("nvmlDeviceGetName")),
        pci_bus_id=None if pci is None else normal_bus(_text(pci.busId) or ""),
        compute_capability=None if capability is None else f"{capability[0]}.{capability[1]}",
        memory_total_bytes=total,
        memory_used_bytes=int(memory.used) if total else None,
        memory_free_bytes=int(memory.free) if total else None,
        unified_memory=total is None,
        utilization=None if use is None else use.gpu / 100,
        memory_utilization=None if use is None else use.memory / 100,
        temperature_celsius=_number(ask("nvmlDeviceGetTemperature", 0)),
        power_watts=_number(ask("nvmlDeviceGetPowerUsage"), 1e-3),
        power_limit_watts=_number(ask("nvmlDeviceGetEnforcedPowerLimit"), 1e-3),
        sm_clock_hertz=_number(ask("nvmlDeviceGetClockInfo", 1), 1e6),
        sm_clock_max_hertz=_number(ask("nvmlDeviceGetMaxClockInfo", 1), 1e6),
        memory_clock_hertz=_number(ask("nvmlDeviceGetClockInfo", 2), 1e6),
        throttle_reasons=_reasons(_clock_reasons(nvml, handle)),
        ecc_enabled=None if ecc is None else bool(ecc[0]),
        ecc_corrected=_whole(ask("nvmlDeviceGetTotalEccErrors", 0, 0)),
        ecc_uncorrected=_whole(ask("nvmlDeviceGetTotalEccErrors", 1, 0)),
        mig_enabled=None if mig is None else bool(mig[0]),
        persistence=_switch(ask("nvmlDeviceGetPersistenceMode")),
        pcie_generation=_whole(ask("nvmlDeviceGetCurrPcieLinkGeneration")),
        pcie_width=_whole(ask("nvmlDeviceGetCurrPcieLinkWidth")),
    )
    if facts.mig_enabled:
        facts.mig_devices = _slices(nvml, handle)
    return facts


def _slices(nvml: Any, handle: Any) -> list[MigSlice]:
    found = []
    for number in range(int(_asked(nvml, lambda: nvml.nvmlDeviceGetMaxMigDeviceCount(handle)) or 0)):
        part = _asked(nvml, lambda at=number: nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, at))  # type: ignore[misc]
        if part is None:
            continue
        memory = _asked(nvml, lambda: nvml.nvmlDeviceGetMemoryInfo(part))  # noqa: B023  asked at once
        found.append(
            MigSlice(
                index=number,
                uuid=_text(_asked(nvml, lambda: nvml.nvmlDeviceGetUUID(part))),  # noqa: B023
                gpu_instance_id=_whole(_asked(nvml, lambda: nvml.nvmlDeviceGetGpuInstanceId(part))),  # noqa: B023
                compute_instance_id=_whole(_asked(nvml, lambda: nvml.nvmlDeviceGetComputeInstanceId(part))),  # noqa: B023
                memory_total_bytes=None if memory is None else int(memory.total),
                memory_used_bytes=None if memory is None else int(memory.used),
            )
        )
    return found


def _clock_reasons(nvml: Any, handle: Any) -> int | None:
    for name in ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"):
        function = getattr(nvml, name, None)
        mask = _asked(nvml, lambda: function(handle)) if function is not None else None  # noqa: B023  asked at once
        if mask is not None:
            return int(mask)
    return None


def _reasons(mask: int | None) -> list[str] | None:
    return None if mask is None else [name for bit, name in _REASONS.items() if mask & bit]


def _asked(nvml: Any, ask: Callable[[], Any]) -> Any:
    try:
        return ask()
    except nvml.NVMLError:
        return None


def _number(value: Any, factor: float = 1.0) -> float | None:
    return None if value is None else float(value) * factor


def _whole(value: Any) -> int | None:
    return None if value is None else int(value)


def _switch(value: Any) -> bool | None:
    return None if value is None else bool(value)


def _text(value: Any) -> str | None:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
