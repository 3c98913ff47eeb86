"""What is known of one GPU, whoever told it, and readers of the values that the tools write."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

MIB = 1_048_576

Severity = Literal["error", "warning", "info"]
State = Literal["ok", "lost"]

# Ways in which nvidia-smi says that it has no value, with or without brackets.
_NO_VALUE = re.compile(
    r"^\[?\s*(?:n/?a|not supported|not available|unknown error|unknown|insufficient permissions|gpu requires reset|"
    r"gpu is lost|requested functionality has been deprecated|none)?\s*\]?$",
    re.IGNORECASE,
)
# Those among them that say that something is wrong.
_TROUBLE = re.compile(r"unknown error|requires reset|gpu is lost|insufficient permissions", re.IGNORECASE)
_NUMBER = re.compile(r"^([+-]?\d+(?:\.\d+)?)\s*(\S.*)?$")
_UNITS: dict[str, float] = {
    "": 1.0,
    "b": 1.0,
    "kib": 1024.0,
    "kb": 1024.0,
    "mib": MIB,
    "mb": MIB,
    "gib": 1024.0 * MIB,
    "w": 1.0,
    "mw": 1e-3,
    "%": 0.01,
    "c": 1.0,
    "mhz": 1e6,
    "hz": 1.0,
    "j": 1.0,
    "mj": 1e-3,
}
# Products whose CPU and GPU share one memory, so that the GPU tells none of its own.
_UNIFIED = re.compile(r"\b(GB10|DGX Spark|Orin|Xavier|Thor|Tegra|Jetson|GH200.*unified)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class MigSlice:
    """One MIG device. `uuid` and `profile` are None where the source does not tell them (XML tells neither)."""

    index: int
    uuid: str | None = None
    profile: str | None = None
    gpu_instance_id: int | None = None
    compute_instance_id: int | None = None
    multiprocessors: int | None = None
    memory_total_bytes: int | None = None
    memory_used_bytes: int | None = None


@dataclass(slots=True)
class GpuFacts:
    """One GPU. Bytes, watts, degrees Celsius, hertz, shares of 1; None where it is not told.

    `state` lost: the driver knows that it is there and cannot talk to it. `unified_memory`: it shares the host's
    memory, so `memory_total_bytes` is None and the host's figure counts.
    """

    index: int | None = None
    uuid: str | None = None
    product: str | None = None
    state: State = "ok"
    pci_bus_id: str | None = None
    architecture: str | None = None
    compute_capability: str | None = None
    memory_total_bytes: int | None = None
    memory_used_bytes: int | None = None
    memory_free_bytes: int | None = None
    memory_reserved_bytes: int | None = None
    unified_memory: bool = False
    utilization: float | None = None
    memory_utilization: float | None = None
    temperature_celsius: float | None = None
    memory_temperature_celsius: float | None = None
    power_watts: float | None = None
    power_limit_watts: float | None = None
    sm_clock_hertz: float | None = None
    sm_clock_max_hertz: float | None = None
    memory_clock_hertz: float | None = None
    throttle_reasons: list[str] | None = None
    ecc_enabled: bool | None = None
    ecc_uncorrected: int | None = None
    ecc_corrected: int | None = None
    mig_enabled: bool | None = None
    mig_devices: list[MigSlice] = field(default_factory=list)
    persistence: bool | None = None
    pcie_generation: int | None = None
    pcie_width: int | None = None

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Finding:
    """Something worth saying about an answer. `where` names the GPU, line or field."""

    id: str
    severity: Severity
    where: str
    message: str
    remedy: str = ""


@dataclass(slots=True)
class GpuReport:
    """An answer about the GPUs of one host.

    `status` is "ok" or the id of what is wrong with all of it. `keep_last_known`: GPUs exist but cannot be reached
    now; whoever had a list keeps it, marked stale, and unregisters nothing.
    """

    status: str = "ok"
    source: str = ""
    gpus: list[GpuFacts] = field(default_factory=list)
    driver_version: str | None = None
    cuda_version: str | None = None
    nvml_version: str | None = None
    keep_last_known: bool = False
    findings: list[Finding] = field(default_factory=list)

    @property
    def good(self) -> bool:
        """Whether the answer can be believed and nothing in it is broken."""
        return all(finding.severity != "error" for finding in self.findings)

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return asdict(self)


def text_of(value: str | None) -> str | None:
    """A text value; None where the tool says that there is none."""
    return None if value is None or _NO_VALUE.match(value.strip()) else value.strip()


def number_of(value: str | None, unit: str = "") -> float | None:
    """A number with its unit ("143771 MiB", "35 %", "1980 MHz", "N/A"), in the base unit; `unit` where none is
    written.

    None where the tool says that there is none, or where what it says is no number with a known unit.
    """
    text = text_of(value)
    match = _NUMBER.match(text.replace(",", "")) if text else None
    if match is None:
        return None
    factor = _UNITS.get((match.group(2) or unit).strip().lower())
    return None if factor is None else float(match.group(1)) * factor


def whole_of(value: str | None, unit: str = "") -> int | None:
    """The same as an integer."""
    number = number_of(value, unit)
    return None if number is None else round(number)


def switch_of(value: str | None) -> bool | None:
    """Enabled/Disabled, Active/Not Active, On/Off, Yes/No; None otherwise."""
    text = (text_of(value) or "").lower()
    if text in ("enabled", "active", "on", "yes"):
        return True
    return False if text in ("disabled", "not active", "off", "no") else None


def is_trouble(value: str | None) -> bool:
    """Whether a missing value says that something is wrong, rather than not there."""
    return bool(value and _TROUBLE.search(value))


def shares_memory(product: str | None, memory_told: bool) -> bool:
    """Whether a GPU has no memory of its own: it says so by telling none, or by its name."""
    return not memory_told and (product is None or bool(_UNIFIED.search(product)) or not memory_told)
