"""What nvidia-smi and NVML say when they fail: it comes on standard output, with any exit code."""

from __future__ import annotations

import re
from dataclasses import dataclass

from apps.fleet.domain.gpu_facts import Finding, GpuFacts, GpuReport, Severity

_I = re.IGNORECASE


@dataclass(frozen=True, slots=True)
class _Rule:
    id: str
    pattern: re.Pattern[str]
    severity: Severity
    keep: bool
    message: str
    remedy: str


# In this order: the first that matches is the cause.
_RULES: tuple[_Rule, ...] = (
    _Rule(
        "driver_library_mismatch",
        re.compile(r"driver/library version mismatch", _I),
        "error",
        True,
        "The NVIDIA kernel module and the driver's libraries are of different versions.",
        "The driver was updated while the old module is loaded: reboot, or unload and load the nvidia modules again. "
        "In a container, start it anew.",
    ),
    _Rule(
        "nvml_unreachable_in_container",
        re.compile(r"failed to initialize nvml:\s*unknown error", _I),
        "error",
        True,
        "The GPUs are there, but this container has lost access to them.",
        "Restart the container. It happens when systemd reloads on the host while Docker uses the systemd cgroup "
        "driver: use the cgroupfs driver, or pass the /dev/nvidia* devices with --device.",
    ),
    _Rule(
        "driver_not_loaded",
        re.compile(
            r"couldn't communicate with the nvidia driver|failed to initialize nvml:\s*driver not loaded|"
            r"failed to initialize nvml:\s*(?:driver is )?not loaded",
            _I,
        ),
        "error",
        True,
        "The NVIDIA driver is not loaded.",
        "Load the nvidia module (after a kernel update the driver must be built for it), then ask again.",
    ),
    _Rule(
        "nvml_missing",
        re.compile(
            r"couldn't find libnvidia-ml|libnvidia-ml\.so[.\d]* ?: ?cannot open shared object|"
            r"nvml shared library not found|"
            r"failed to initialize nvml:\s*(?:shared )?library not found",
            _I,
        ),
        "error",
        False,
        "The driver's library libnvidia-ml.so is not there.",
        "Install the NVIDIA driver; for a container, give it the GPUs (--gpus all, NVIDIA container toolkit).",
    ),
    _Rule(
        "gpu_permission_denied",
        re.compile(r"failed to initialize nvml:\s*insufficient permissions|insufficient permissions", _I),
        "error",
        True,
        "This account may not use the GPUs.",
        "Give it access to /dev/nvidia* (group video or render), or run as another account.",
    ),
    _Rule(
        "nvidia_smi_missing",
        re.compile(r"nvidia-smi['\"]?: (?:command )?not found|no such file or directory.*nvidia-smi", _I),
        "info",
        False,
        "There is no nvidia-smi on this host.",
        "Without an NVIDIA driver the host has CPU slots only.",
    ),
    _Rule(
        "no_gpus",
        re.compile(r"no devices were found|no nvidia gpu found", _I),
        "info",
        False,
        "The driver runs and finds no GPU.",
        "If there should be one, look at the kernel's log (dmesg) and at the cabling.",
    ),
    _Rule(
        "nvml_failed",
        re.compile(r"failed to initialize nvml", _I),
        "error",
        True,
        "NVML does not start.",
        "Look at the text that follows and at the kernel's log (dmesg).",
    ),
)

# nvidia-smi(1), RETURN VALUE; for answers without a text that says more.
_BY_CODE: dict[int, str] = {
    4: "gpu_permission_denied",
    6: "no_gpus",
    9: "driver_not_loaded",
    12: "nvml_missing",
    18: "driver_library_mismatch",
    127: "nvidia_smi_missing",
}
_BY_ID = {rule.id: rule for rule in _RULES}

_LOST = re.compile(
    r"unable to determine the device handle for gpu\s*"
    r"(?P<bus>[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f])\s*:\s*(?P<why>[^\n]*)"
    r"|gpu\s*(?P<bus2>[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f])\s*:?\s*"
    r"(?P<why2>[^\n]*(?:lost|fallen off)[^\n]*)",
    _I,
)
_NVML_VERSION = re.compile(r"nvml library version:\s*(\S+)", _I)


def classify(text: str, code: int | None) -> _Rule | None:
    """What is wrong with all of an answer; None where nothing is known to be."""
    for rule in _RULES:
        if rule.pattern.search(text):
            return rule
    return _BY_ID.get(_BY_CODE.get(code, "")) if code is not None else None


def note_failure(report: GpuReport, text: str, code: int | None) -> None:
    """Put into a report without GPUs why there are none."""
    version = _NVML_VERSION.search(text)
    report.nvml_version = version.group(1).rstrip(".") if version else report.nvml_version
    rule = classify(text, code)
    if rule is not None:
        report.status, report.keep_last_known = rule.id, rule.keep
        report.findings.append(Finding(rule.id, rule.severity, "", rule.message, rule.remedy))
        return
    report.status, report.keep_last_known = "gpu_query_failed", True
    first = next((line.strip() for line in text.splitlines() if line.strip()), "")
    report.findings.append(
        Finding(
            "gpu_query_failed",
            "error",
            f"exit code {code}" if code is not None else "",
            f"The answer is none that is known: {first[:200]!r}" if first else "The answer is empty.",
            "Run nvidia-smi by hand on that host and look at the kernel's log (dmesg).",
        )
    )


def take_lost(text: str, report: GpuReport) -> str:
    """Note each GPU that the driver cannot talk to, and give the text back without those lines."""
    kept = []
    for line in text.splitlines():
        match = _LOST.search(line)
        if match is None:
            kept.append(line)
            continue
        bus = normal_bus(match.group("bus") or match.group("bus2"))
        why = (match.group("why") or match.group("why2") or "").strip(" .")
        report.gpus.append(GpuFacts(state="lost", pci_bus_id=bus))
        report.findings.append(
            Finding(
                "gpu_lost",
                "error",
                bus,
                f"The GPU at {bus} does not answer ({why or 'no reason told'}). The others are not concerned.",
                "Look for Xid 79 in the kernel's log; reset it (nvidia-smi -r -i) or reboot; check power and seat.",
            )
        )
    return "\n".join(kept)


def normal_bus(text: str) -> str:
    """A PCI address as domain:bus:device.function with a domain of eight digits, as the driver writes it."""
    domain, _colon, rest = text.strip().upper().removeprefix("GPU").partition(":")
    return f"{domain.zfill(8)}:{rest}" if rest else text
