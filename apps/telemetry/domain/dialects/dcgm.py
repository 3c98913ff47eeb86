"""The DCGM exporter: families `DCGM_FI_*`, one line a GPU (or a MIG slice).

Units are DCGM's own: percent, MiB, MHz, millijoules. A field that the GPU does not support holds one of DCGM's blank
values, which are no values. Lines of a MIG slice carry GPU_I_ID and share their GPU's UUID: they are parts of it and
are not added to it.
"""

from __future__ import annotations

from collections.abc import Callable

from apps.telemetry.domain.figures import Figures
from apps.telemetry.domain.prometheus import Exposition, Sample

_MIB = 1_048_576.0
# DCGM's blank values: 0x7ffffff0 (32 bit), 0x7ffffffffffffff0 (64 bit) and 140737488355328.0 (floating point);
# "not found", "not supported" and "not permitted" lie up to 15 above.
_BLANKS = ((2147483632.0, 2147483647.0), (140737488355328.0, 140737488355343.0))
_BLANK_64 = 9.22e18

_FIELDS: dict[str, tuple[str, float]] = {
    "DCGM_FI_DEV_GPU_UTIL": ("gpu_use", 0.01),
    "DCGM_FI_DEV_MEM_COPY_UTIL": ("gpu_memory_bandwidth_use", 0.01),
    "DCGM_FI_DEV_FB_USED": ("gpu_memory_used_bytes", _MIB),
    "DCGM_FI_DEV_FB_FREE": ("memory_free_bytes", _MIB),
    "DCGM_FI_DEV_FB_RESERVED": ("memory_reserved_bytes", _MIB),
    "DCGM_FI_DEV_FB_TOTAL": ("gpu_memory_total_bytes", _MIB),
    "DCGM_FI_DEV_POWER_USAGE": ("gpu_power_watts", 1.0),
    "DCGM_FI_DEV_POWER_MGMT_LIMIT": ("gpu_power_limit_watts", 1.0),
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": ("energy_total_joules", 1e-3),
    "DCGM_FI_DEV_GPU_TEMP": ("gpu_temperature_celsius", 1.0),
    "DCGM_FI_DEV_MEMORY_TEMP": ("gpu_memory_temperature_celsius", 1.0),
    "DCGM_FI_DEV_SM_CLOCK": ("gpu_sm_clock_hertz", 1e6),
    "DCGM_FI_DEV_MEM_CLOCK": ("gpu_memory_clock_hertz", 1e6),
    "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL": ("gpu_ecc_corrected", 1.0),
    "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": ("gpu_ecc_uncorrected", 1.0),
    "DCGM_FI_DEV_XID_ERRORS": ("gpu_xid_last", 1.0),
    "DCGM_FI_PROF_PCIE_TX_BYTES": ("gpu_pcie_sent_bytes_per_second", 1.0),
    "DCGM_FI_PROF_PCIE_RX_BYTES": ("gpu_pcie_received_bytes_per_second", 1.0),
    "DCGM_FI_PROF_SM_ACTIVE": ("gpu_sm_active", 1.0),
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": ("gpu_tensor_active", 1.0),
}
_REASONS = ("DCGM_FI_DEV_CLOCKS_EVENT_REASONS", "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS")

WANTED = frozenset({*_FIELDS, *_REASONS})

# NVML's clocks event reasons, a bit mask (nvml.h).
THROTTLE: dict[str, int] = {
    "gpu_throttle_power": 0x04 | 0x80,
    "gpu_throttle_thermal": 0x20 | 0x40,
    "gpu_throttle_hardware": 0x08,
}


def throttling(mask: int) -> dict[str, float]:
    """The vocabulary's throttle flags of a mask of NVML's clocks event reasons."""
    return {name: float(bool(mask & bits)) for name, bits in THROTTLE.items()}


def read(exposition: Exposition) -> Figures | None:
    """Device figures by UUID; None where no DCGM family is there."""
    if not any(name.startswith("DCGM_FI_") for name in exposition.samples):
        return None
    found = Figures()
    for family, (name, scale) in _FIELDS.items():
        _each(exposition, family, _setter(found, name, scale))
    for family in _REASONS:
        _each(
            exposition,
            family,
            lambda uuid, value: found.gpus.setdefault(uuid, {}).update(throttling(int(value))),
        )
    for gpu in found.gpus.values():
        parts = [gpu.pop(name, None) for name in ("memory_free_bytes", "memory_reserved_bytes")]
        used = gpu.get("gpu_memory_used_bytes")
        if "gpu_memory_total_bytes" not in gpu and used is not None and parts[0] is not None:
            gpu["gpu_memory_total_bytes"] = used + parts[0] + (parts[1] or 0.0)
        if gpu.get("gpu_xid_last") == 0:  # no Xid yet
            del gpu["gpu_xid_last"]
    return found


def _setter(found: Figures, name: str, scale: float) -> Callable[[str, float], None]:
    def put(uuid: str, value: float) -> None:
        found.gpus.setdefault(uuid, {})[name] = value * scale

    return put


def _each(exposition: Exposition, family: str, put: Callable[[str, float], None]) -> None:
    for sample in exposition.samples.get(family, ()):
        if not is_blank(sample.value) and not _is_slice(sample):
            uuid = sample.labels.get("UUID") or sample.labels.get("uuid") or sample.labels.get("gpu", "")
            put(uuid, sample.value)


def _is_slice(sample: Sample) -> bool:
    return bool(sample.labels.get("GPU_I_ID") or sample.labels.get("GPU_I_PROFILE"))


def is_blank(value: float) -> bool:
    """Whether a DCGM value means that there is none."""
    return value != value or value >= _BLANK_64 or any(low <= value <= high for low, high in _BLANKS)
