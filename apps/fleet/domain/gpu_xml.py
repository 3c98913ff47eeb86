"""`nvidia-smi -q -x`: XML, whose elements were renamed and moved several times; all known names are tried."""

from __future__ import annotations

import re
from xml.etree import ElementTree

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

_DOCUMENT = re.compile(r"<nvidia_smi_log\b.*?</nvidia_smi_log>", re.DOTALL)
_REASON = re.compile(r"^clocks_(?:throttle|event)_reasons?_")


def is_xml(text: str) -> bool:
    """Whether a text holds such a document, or its beginning."""
    return "<nvidia_smi_log" in text


def read(text: str, report: GpuReport) -> None:
    """Put the GPUs of a document into a report; text around the document is passed over."""
    match = _DOCUMENT.search(text)
    if match is None:
        report.findings.append(_broken("it ends before </nvidia_smi_log>"))
        return
    if "<!ENTITY" in match.group():
        report.findings.append(_broken("it defines entities"))
        return
    try:
        # The document is taken without its DOCTYPE and has no entities: nothing in it expands.
        root = ElementTree.fromstring(match.group())  # noqa: S314
    except ElementTree.ParseError as error:
        report.findings.append(_broken(str(error)))
        return
    report.driver_version = text_of(root.findtext("driver_version"))
    report.cuda_version = text_of(root.findtext("cuda_version"))
    for index, element in enumerate(root.findall("gpu")):
        report.gpus.append(_gpu(index, element, report))


def _broken(why: str) -> Finding:
    return Finding(
        "gpu_xml_unreadable",
        "error",
        "xml",
        f"The XML of nvidia-smi cannot be read: {why}.",
        "Ask again; an answer that is cut off means that the tool was killed or its output limited.",
    )


def _first(element: ElementTree.Element, *paths: str) -> str | None:
    """Text of the first path that has a value; the last path's word where none has."""
    told = None
    for path in paths:
        value = element.findtext(path)
        if value is not None:
            told = value
            if text_of(value) is not None:
                return value
    return told


def _gpu(index: int, element: ElementTree.Element, report: GpuReport) -> GpuFacts:
    total = whole_of(element.findtext("fb_memory_usage/total"), "MiB")
    product = text_of(element.findtext("product_name"))
    ecc = element.find("ecc_errors/volatile")
    facts = GpuFacts(
        # The order is that of the PCI bus; minor_number is that of /dev/nvidiaN and can differ.
        index=index,
        uuid=text_of(element.findtext("uuid")),
        product=product,
        pci_bus_id=normal_bus(element.get("id") or element.findtext("pci/pci_bus_id") or "") or None,
        architecture=text_of(element.findtext("product_architecture")),
        memory_total_bytes=total or None,
        memory_used_bytes=whole_of(element.findtext("fb_memory_usage/used"), "MiB"),
        memory_free_bytes=whole_of(element.findtext("fb_memory_usage/free"), "MiB"),
        memory_reserved_bytes=whole_of(element.findtext("fb_memory_usage/reserved"), "MiB"),
        unified_memory=not total,
        utilization=number_of(element.findtext("utilization/gpu_util"), "%"),
        memory_utilization=number_of(element.findtext("utilization/memory_util"), "%"),
        temperature_celsius=number_of(element.findtext("temperature/gpu_temp"), "C"),
        memory_temperature_celsius=number_of(element.findtext("temperature/memory_temp"), "C"),
        power_watts=number_of(
            _first(
                element,
                "gpu_power_readings/instant_power_draw",
                "gpu_power_readings/power_draw",
                "gpu_power_readings/average_power_draw",
                "power_readings/power_draw",
            ),
            "W",
        ),
        power_limit_watts=number_of(
            _first(
                element,
                "gpu_power_readings/current_power_limit",
                "gpu_power_readings/power_limit",
                "power_readings/enforced_power_limit",
                "power_readings/current_power_limit",
                "power_readings/power_limit",
            ),
            "W",
        ),
        sm_clock_hertz=number_of(element.findtext("clocks/sm_clock"), "MHz"),
        sm_clock_max_hertz=number_of(element.findtext("max_clocks/sm_clock"), "MHz"),
        memory_clock_hertz=number_of(element.findtext("clocks/mem_clock"), "MHz"),
        throttle_reasons=_reasons(element),
        ecc_enabled=switch_of(element.findtext("ecc_mode/current_ecc")),
        ecc_uncorrected=_errors(ecc, "uncorrectable", "double_bit"),
        ecc_corrected=_errors(ecc, "correctable", "single_bit"),
        mig_enabled=switch_of(element.findtext("mig_mode/current_mig")),
        mig_devices=[
            _slice(number, each) for number, each in enumerate(element.findall("mig_devices/mig_device"))
        ],
        persistence=switch_of(element.findtext("persistence_mode")),
        pcie_generation=whole_of(element.findtext("pci/pci_gpu_link_info/pcie_gen/current_link_gen")),
        pcie_width=whole_of(
            (element.findtext("pci/pci_gpu_link_info/link_widths/current_link_width") or "").rstrip("x")
        ),
    )
    _note_trouble(element, facts, report)
    return facts


def _reasons(element: ElementTree.Element) -> list[str] | None:
    group = element.find("clocks_event_reasons")
    group = element.find("clocks_throttle_reasons") if group is None else group
    if group is None:
        return None
    return [_REASON.sub("", each.tag) for each in group if (each.text or "").strip().lower() == "active"]


def _errors(volatile: ElementTree.Element | None, *kinds: str) -> int | None:
    """ECC errors of one kind: SRAM and DRAM of newer drivers, the total of older ones."""
    if volatile is None:
        return None
    direct = [whole_of(each.text) for each in volatile if _is_kind(each.tag, kinds[0])]
    older = [whole_of(each.text) for each in volatile.findall(f"{kinds[-1]}/total")]
    known = [value for value in (*direct, *older) if value is not None]
    return sum(known) if known else None


def _is_kind(tag: str, kind: str) -> bool:
    # sram_uncorrectable_parity and _secded are parts of what older drivers call sram_uncorrectable.
    return re.fullmatch(rf"(?:sram|dram)_{kind}(?:_parity|_secded)?", tag) is not None


def _slice(number: int, element: ElementTree.Element) -> MigSlice:
    return MigSlice(
        index=whole_of(element.findtext("index")) if element.findtext("index") else number,  # type: ignore[arg-type]
        uuid=text_of(element.findtext("uuid")),
        gpu_instance_id=whole_of(element.findtext("gpu_instance_id")),
        compute_instance_id=whole_of(element.findtext("compute_instance_id")),
        multiprocessors=whole_of(element.findtext("device_attributes/shared/multiprocessor_count")),
        memory_total_bytes=whole_of(element.findtext("fb_memory_usage/total"), "MiB"),
        memory_used_bytes=whole_of(element.findtext("fb_memory_usage/used"), "MiB"),
    )


def _note_trouble(element: ElementTree.Element, facts: GpuFacts, report: GpuReport) -> None:
    wrong = [each.tag for each in element.iter() if is_trouble(each.text)]
    if wrong:
        report.findings.append(
            Finding(
                "gpu_in_trouble",
                "warning",
                facts.pci_bus_id or facts.uuid or "",
                f"The GPU answers some questions with an error: {', '.join(sorted(set(wrong))[:5])}.",
                "Look at the kernel's log for Xid messages; it may need a reset (nvidia-smi -r) or a reboot.",
            )
        )
