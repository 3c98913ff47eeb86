"""`nvidia-smi --query-gpu=… --format=csv`, `nvidia-smi -L`, and the table that nvidia-smi prints by itself."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from apps.fleet.domain.gpu_errors import normal_bus
from apps.fleet.domain.gpu_facts import (
    Finding,
    GpuFacts,
    GpuReport,
    MigSlice,
    is_trouble,
    number_of,
    switch_of,
    text_of,
    whole_of,
)

# Query fields (nvidia-smi --help-query-gpu) by their fact, reader and unit where "nounits" left it out.
_Reader = Callable[[str], Any]
_FIELDS: dict[str, tuple[str, _Reader]] = {
    "index": ("index", whole_of),
    "uuid": ("uuid", text_of),
    "gpu_uuid": ("uuid", text_of),
    "name": ("product", text_of),
    "gpu_name": ("product", text_of),
    "pci.bus_id": ("pci_bus_id", lambda text: normal_bus(text) if text_of(text) else None),
    "gpu_bus_id": ("pci_bus_id", lambda text: normal_bus(text) if text_of(text) else None),
    "compute_cap": ("compute_capability", text_of),
    "memory.total": ("memory_total_bytes", lambda text: whole_of(text, "MiB") or None),
    "memory.used": ("memory_used_bytes", lambda text: whole_of(text, "MiB")),
    "memory.free": ("memory_free_bytes", lambda text: whole_of(text, "MiB")),
    "memory.reserved": ("memory_reserved_bytes", lambda text: whole_of(text, "MiB")),
    "utilization.gpu": ("utilization", lambda text: number_of(text, "%")),
    "utilization.memory": ("memory_utilization", lambda text: number_of(text, "%")),
    "temperature.gpu": ("temperature_celsius", lambda text: number_of(text, "C")),
    "temperature.memory": ("memory_temperature_celsius", lambda text: number_of(text, "C")),
    "power.draw": ("power_watts", lambda text: number_of(text, "W")),
    "power.draw.instant": ("power_watts", lambda text: number_of(text, "W")),
    "power.draw.average": ("power_watts", lambda text: number_of(text, "W")),
    "power.limit": ("power_limit_watts", lambda text: number_of(text, "W")),
    "enforced.power.limit": ("power_limit_watts", lambda text: number_of(text, "W")),
    "clocks.sm": ("sm_clock_hertz", lambda text: number_of(text, "MHz")),
    "clocks.current.sm": ("sm_clock_hertz", lambda text: number_of(text, "MHz")),
    "clocks.max.sm": ("sm_clock_max_hertz", lambda text: number_of(text, "MHz")),
    "clocks.mem": ("memory_clock_hertz", lambda text: number_of(text, "MHz")),
    "clocks.current.memory": ("memory_clock_hertz", lambda text: number_of(text, "MHz")),
    "ecc.mode.current": ("ecc_enabled", switch_of),
    "ecc.errors.uncorrected.volatile.total": ("ecc_uncorrected", whole_of),
    "ecc.errors.corrected.volatile.total": ("ecc_corrected", whole_of),
    "mig.mode.current": ("mig_enabled", switch_of),
    "persistence_mode": ("persistence", switch_of),
    "pcie.link.gen.current": ("pcie_generation", whole_of),
    "pcie.link.width.current": ("pcie_width", whole_of),
}
_REPORT_FIELDS = {"driver_version": "driver_version"}
_HEADING = re.compile(r"^([a-z_.]+)(?:\s*\[[^\]]*\])?$")

_LISTED = re.compile(
    r"^GPU (?P<index>\d+): (?P<name>.+?) \(UUID: (?P<uuid>GPU-[0-9a-f-]+)\)\s*$", re.IGNORECASE
)
_SLICE = re.compile(
    r"^\s+MIG (?P<profile>\S+)\s+Device\s+(?P<index>\d+): \(UUID: (?P<uuid>MIG-[^)\s]+)\)\s*$", re.IGNORECASE
)


def headings(line: str) -> list[str] | None:
    """Field names of a CSV's first line; None where it is none. Unknown fields are allowed beside known ones."""
    matches = [_HEADING.match(part.strip()) for part in line.split(",")]
    names = [match.group(1) for match in matches if match is not None]
    known = [name for name in names if name in _FIELDS or name in _REPORT_FIELDS]
    return names if len(names) == len(matches) and known else None


def read_csv(text: str, report: GpuReport, fields: Sequence[str] | None = None) -> bool:
    """Put the rows into a report; False where the text is no CSV of ours. `fields`: of a CSV without headings."""
    lines = [line for line in text.splitlines() if line.strip()]
    first = next((number for number, line in enumerate(lines) if headings(line)), None)
    if first is not None:
        names: Sequence[str] = headings(lines[first]) or ()
        rows = lines[first + 1 :]
    elif fields:
        names, rows = fields, lines
    else:
        return False
    for line in rows:
        values = [part.strip() for part in line.split(",")]
        if len(values) != len(names):
            report.findings.append(_not_a_row(line, len(names), len(values)))
            continue
        report.gpus.append(_row(dict(zip(names, values, strict=True)), report, len(report.gpus)))
    return True


def _not_a_row(line: str, expected: int, found: int) -> Finding:
    return Finding(
        "gpu_row_unreadable",
        "warning",
        line.strip()[:120],
        f"This line has {found} values where {expected} are expected; it is no GPU.",
        "Messages of the driver can come between the rows; look at what it says.",
    )


def _row(values: dict[str, str], report: GpuReport, number: int) -> GpuFacts:
    facts = GpuFacts()
    for name, text in values.items():
        if name in _REPORT_FIELDS:
            setattr(report, _REPORT_FIELDS[name], text_of(text) or report.driver_version)
        elif name in _FIELDS:
            attribute, reader = _FIELDS[name]
            setattr(facts, attribute, reader(text))
    if facts.index is None:
        facts.index = number
    facts.unified_memory = "memory.total" in values and facts.memory_total_bytes is None
    wrong = sorted(name for name, text in values.items() if is_trouble(text))
    if wrong:
        report.findings.append(
            Finding(
                "gpu_in_trouble",
                "warning",
                facts.pci_bus_id or facts.uuid or f"GPU {facts.index}",
                f"The GPU answers some questions with an error: {', '.join(wrong[:5])}.",
                "Look at the kernel's log for Xid messages; it may need a reset or a reboot.",
            )
        )
    return facts


def read_list(text: str, report: GpuReport) -> bool:
    """Put the GPUs and MIG devices of `nvidia-smi -L` into a report; False where it is none."""
    found = False
    for line in text.splitlines():
        gpu = _LISTED.match(line)
        if gpu is not None:
            found = True
            report.gpus.append(
                GpuFacts(index=int(gpu.group("index")), uuid=gpu.group("uuid"), product=gpu.group("name"))
            )
            continue
        part = _SLICE.match(line)
        if part is not None and report.gpus:
            gpu_facts = report.gpus[-1]
            gpu_facts.mig_enabled = True
            gpu_facts.mig_devices.append(
                MigSlice(int(part.group("index")), part.group("uuid"), part.group("profile"))
            )
    return found


_TOP = re.compile(r"Driver Version:\s*(\S+)(?:\s+CUDA Version:\s*(\S+))?")
_CARD = re.compile(
    r"^\|\s*(?P<index>\d+)\s+(?P<name>\S.*?)\s+(?P<persistence>On|Off|N/A)\s*\|\s*(?P<bus>[0-9A-F]{8}:[0-9A-F:.]+)\s+\S+\s*\|",
    re.IGNORECASE,
)
_FIGURES = re.compile(
    r"^\|\s*\S+\s+(?P<temp>\S+)\s+\S+\s+(?P<power>\S+)\s*/\s*(?P<limit>\S+)\s*\|\s*"
    r"(?P<used>\S+)\s*/\s*(?P<total>\S+)\s*\|\s*(?P<use>\S+)",
)


def read_table(text: str, report: GpuReport) -> bool:
    """Put the GPUs of the table that plain `nvidia-smi` prints into a report; False where it is none.

    The table cuts long names and has no UUIDs: -q -x or --query-gpu say more.
    """
    top = _TOP.search(text)
    if top is None:
        return False
    report.driver_version, report.cuda_version = text_of(top.group(1)), text_of(top.group(2))
    card: GpuFacts | None = None
    for line in text.splitlines():
        head = _CARD.match(line)
        if head is not None:
            card = GpuFacts(
                index=int(head.group("index")),
                product=head.group("name").removesuffix("...").strip(),
                pci_bus_id=normal_bus(head.group("bus")),
                persistence=switch_of(head.group("persistence")),
            )
            report.gpus.append(card)
            continue
        figures = _FIGURES.match(line) if card is not None else None
        if figures is not None and card is not None:
            _fill(card, figures)
            card = None
    return True


def _fill(card: GpuFacts, figures: re.Match[str]) -> None:
    card.temperature_celsius = number_of(figures.group("temp"))
    card.power_watts = number_of(figures.group("power"), "W")
    card.power_limit_watts = number_of(figures.group("limit"), "W")
    card.memory_used_bytes = whole_of(figures.group("used"), "MiB")
    card.memory_total_bytes = whole_of(figures.group("total"), "MiB")
    card.unified_memory = card.memory_total_bytes is None
    card.utilization = number_of(figures.group("use"), "%")
