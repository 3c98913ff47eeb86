"""Keys that NVML, the DCGM exporter, Triton's nv_gpu_* and the host tell."""

from __future__ import annotations

from apps.telemetry.domain.key import Area, Key, Kind

_DEVICE = "All processes of the device are counted, not only this deployment's."


def _keys(area: Area, *rows: tuple[str, str, Kind, str, str, str]) -> tuple[Key, ...]:
    return tuple(Key(*row, area) for row in rows)


_PROCESS = _keys(
    "process",
    (
        "cpu_use",
        "1",
        "ratio",
        "CPU use",
        "psutil: CPU time of the server's processes",
        "Share of all cores of the host that this server's processes used.",
    ),
    (
        "rss_bytes",
        "By",
        "gauge",
        "Memory (RSS)",
        "psutil: resident memory of the server's processes",
        "Pages that its processes share are counted once for each.",
    ),
)

_GPU = _keys(
    "gpu",
    (
        "gpu_use",
        "1",
        "ratio",
        "GPU use",
        "NVML utilization.gpu; DCGM_FI_DEV_GPU_UTIL; nv_gpu_utilization",
        f"A kernel ran, not how well it filled the GPU. {_DEVICE}",
    ),
    (
        "gpu_memory_bandwidth_use",
        "1",
        "ratio",
        "GPU memory busy",
        "NVML utilization.memory; DCGM_FI_DEV_MEM_COPY_UTIL",
        "Share of time in which memory was read or written, not of its bandwidth.",
    ),
    (
        "gpu_memory_used_bytes",
        "By",
        "gauge",
        "GPU memory",
        "NVML memory.used; DCGM_FI_DEV_FB_USED; nv_gpu_memory_used_bytes",
        f"Engines take their memory in advance. {_DEVICE}",
    ),
    (
        "gpu_memory_total_bytes",
        "By",
        "gauge",
        "GPU memory, total",
        "NVML memory.total; DCGM_FI_DEV_FB_TOTAL, else used + free; nv_gpu_memory_total_bytes",
        "Null where CPU and GPU share one memory (see host_memory_total_bytes).",
    ),
    (
        "gpu_power_watts",
        "W",
        "gauge",
        "GPU power",
        "NVML power; DCGM_FI_DEV_POWER_USAGE; nv_gpu_power_usage",
        f"Some GPUs tell the mean of the last second. {_DEVICE}",
    ),
    (
        "gpu_power_limit_watts",
        "W",
        "gauge",
        "GPU power limit",
        "NVML enforced limit; DCGM_FI_DEV_POWER_MGMT_LIMIT; nv_gpu_power_limit",
        "",
    ),
    (
        "gpu_energy_joules",
        "J",
        "amount",
        "GPU energy",
        "NVML total energy; DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION; nv_energy_consumption",
        "Used in the step: its length matters. Null on GPUs without the counter.",
    ),
    (
        "gpu_temperature_celsius",
        "Cel",
        "gauge",
        "GPU temperature",
        "NVML; DCGM_FI_DEV_GPU_TEMP",
        "The hottest.",
    ),
    (
        "gpu_memory_temperature_celsius",
        "Cel",
        "gauge",
        "GPU memory temperature",
        "NVML; DCGM_FI_DEV_MEMORY_TEMP",
        "The hottest. Only HBM cards tell it.",
    ),
    (
        "gpu_sm_clock_hertz",
        "Hz",
        "gauge",
        "SM clock",
        "NVML; DCGM_FI_DEV_SM_CLOCK",
        "The lowest of the GPUs.",
    ),
    ("gpu_memory_clock_hertz", "Hz", "gauge", "Memory clock", "NVML; DCGM_FI_DEV_MEM_CLOCK", "The lowest."),
    ("gpu_sm_clock_max_hertz", "Hz", "gauge", "Highest SM clock", "NVML", "What the board allows."),
    (
        "gpu_throttle_power",
        "1",
        "flag",
        "Slowed by power",
        "NVML clocks event reasons: SW power cap, HW power brake",
        "1 where any of the GPUs is. A GPU at its power limit is normal under full load.",
    ),
    (
        "gpu_throttle_thermal",
        "1",
        "flag",
        "Slowed by heat",
        "NVML clocks event reasons: SW and HW thermal slowdown; DCGM_FI_DEV_CLOCK_THROTTLE_REASONS",
        "1 where any of the GPUs is.",
    ),
    (
        "gpu_throttle_hardware",
        "1",
        "flag",
        "Slowed by the hardware",
        "NVML clocks event reasons: HW slowdown",
        "1 where any of the GPUs is.",
    ),
    (
        "gpu_ecc_corrected",
        "1",
        "gauge",
        "ECC errors corrected",
        "NVML volatile counter; DCGM_FI_DEV_ECC_SBE_VOL_TOTAL",
        "Since the driver was loaded. Null where ECC is off.",
    ),
    (
        "gpu_ecc_uncorrected",
        "1",
        "gauge",
        "ECC errors not corrected",
        "NVML volatile counter; DCGM_FI_DEV_ECC_DBE_VOL_TOTAL",
        "Since the driver was loaded. Null where ECC is off.",
    ),
    (
        "gpu_xid_errors",
        "1",
        "amount",
        "Xid errors",
        "NVML events of type XidCriticalError; DCGM_FI_DEV_XID_ERRORS changed",
        "Seen while telemetry runs. Xid 13, 31, 43 and 45 are faults of a program, not of the GPU.",
    ),
    (
        "gpu_xid_last",
        "1",
        "gauge",
        "Last Xid",
        "NVML events; DCGM_FI_DEV_XID_ERRORS",
        "Null until one is seen.",
    ),
    (
        "gpu_pcie_sent_bytes_per_second",
        "By/s",
        "rate",
        "PCIe sent",
        "NVML; DCGM_FI_PROF_PCIE_TX_BYTES",
        "NVML measures 20 ms, so it is asked every fifth second only.",
    ),
    (
        "gpu_pcie_received_bytes_per_second",
        "By/s",
        "rate",
        "PCIe received",
        "NVML; DCGM_FI_PROF_PCIE_RX_BYTES",
        "NVML measures 20 ms, so it is asked every fifth second only.",
    ),
    (
        "gpu_sm_active",
        "1",
        "ratio",
        "SM active",
        "DCGM_FI_PROF_SM_ACTIVE",
        "Only from a DCGM exporter with profiling fields.",
    ),
    (
        "gpu_tensor_active",
        "1",
        "ratio",
        "Tensor cores active",
        "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE",
        "Only from a DCGM exporter with profiling fields.",
    ),
)

_HOST = _keys(
    "host",
    (
        "host_cpu_use",
        "1",
        "ratio",
        "Host CPU use",
        "psutil; nv_cpu_utilization",
        "All processes of the host or container.",
    ),
    (
        "host_memory_used_bytes",
        "By",
        "gauge",
        "Host memory",
        "psutil: total - available; nv_cpu_memory_used_bytes",
        "",
    ),
    ("host_memory_total_bytes", "By", "gauge", "Host memory, total", "psutil; nv_cpu_memory_total_bytes", ""),
    (
        "shm_used_bytes",
        "By",
        "gauge",
        "Shared memory used",
        "statvfs of /dev/shm",
        "All users of /dev/shm; each python backend instance takes its region at load.",
    ),
    (
        "shm_total_bytes",
        "By",
        "gauge",
        "Shared memory, total",
        "statvfs of /dev/shm",
        "Containers often have 64 MiB.",
    ),
)

DEVICE_KEYS: tuple[Key, ...] = (*_PROCESS, *_GPU, *_HOST)
