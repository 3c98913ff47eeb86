"""The slots that a report about a host's GPUs makes: whole GPUs, MIG slices, and those that cannot be used now."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from apps.fleet.domain.gpu_facts import GpuFacts, GpuReport, MigSlice

# Numbers of slices lie above those of GPUs: at most 8 slices on each of at most 16 GPUs (nvml.h, MIG profiles).
SLICES_FROM = 100
SLICES_OF_A_GPU = 16
LOST_NOTE = (
    "The driver knows of it and cannot talk to it. Look for Xid messages in the kernel's log; reset it."
)


@dataclass(frozen=True, slots=True)
class Link:
    """What joins GPUs: `nvlink_group` numbers those that reach each other over NVLink, `numa_node` the PCIe root's.

    Null where the driver does not tell.
    """

    nvlink_group: int | None = None
    numa_node: int | None = None


@dataclass(frozen=True, slots=True)
class SlotFacts:
    """One slot as it was found. `memory_bytes` of unified memory is the host's; `condition` ok or lost."""

    index: int
    device: str
    product: str
    memory_bytes: int | None
    uuid: str = ""
    compute_capability: str = ""
    condition: str = "ok"
    condition_note: str = ""
    unified_memory: bool = False
    pci_bus_id: str = ""
    mig_parent: int | None = None
    mig_profile: str = ""
    nvlink_group: int | None = None
    numa_node: int | None = None


def slice_index(gpu: int, number: int) -> int:
    """Number of the slot of slice `number` of a GPU."""
    return SLICES_FROM + gpu * SLICES_OF_A_GPU + number


def slots_of(
    report: GpuReport, host_memory: int, links: Mapping[int, Link] | None = None
) -> tuple[SlotFacts, ...]:
    """Slots of all GPUs of a report, by number; none for a host without GPUs.

    A GPU in MIG mode is no slot itself, its slices are; one that is not yet cut into slices has none. A GPU that does
    not answer stays a slot, marked lost, so that whoever holds it is still seen.
    """
    found: list[SlotFacts] = []
    for position, gpu in enumerate(report.gpus):
        index = gpu.index if gpu.index is not None else position
        link = (links or {}).get(index, Link())
        if gpu.mig_enabled and gpu.state == "ok":
            found += [_slice(gpu, index, part, link) for part in gpu.mig_devices if part.uuid]
        else:
            found.append(_whole(gpu, index, host_memory, link))
    return tuple(sorted(_distinct(found), key=lambda slot: slot.index))


def _distinct(slots: Iterable[SlotFacts]) -> list[SlotFacts]:
    """Each number once. A lost GPU often tells no number: one whose number another has keeps no slot."""
    by_index: dict[int, SlotFacts] = {}
    for slot in slots:
        known = by_index.get(slot.index)
        if known is None or (known.condition == "lost" and slot.condition == "ok"):
            by_index[slot.index] = slot
    return list(by_index.values())


def _whole(gpu: GpuFacts, index: int, host_memory: int, link: Link) -> SlotFacts:
    lost = gpu.state == "lost"
    unified = gpu.unified_memory and not lost
    return SlotFacts(
        index=index,
        device="gpu",
        product=(gpu.product or "GPU")[:120],
        memory_bytes=host_memory if unified else gpu.memory_total_bytes,
        uuid=gpu.uuid or "",
        compute_capability=gpu.compute_capability or "",
        condition="lost" if lost else "ok",
        condition_note=LOST_NOTE if lost else "",
        unified_memory=unified,
        pci_bus_id=gpu.pci_bus_id or "",
        nvlink_group=link.nvlink_group,
        numa_node=link.numa_node,
    )


def _slice(gpu: GpuFacts, index: int, part: MigSlice, link: Link) -> SlotFacts:
    named = f"{gpu.product or 'GPU'} MIG {part.profile}" if part.profile else f"{gpu.product or 'GPU'} MIG"
    return SlotFacts(
        index=slice_index(index, part.index),
        device="gpu",
        product=named[:120],
        memory_bytes=part.memory_total_bytes,
        uuid=part.uuid or "",
        compute_capability=gpu.compute_capability or "",
        pci_bus_id=gpu.pci_bus_id or "",
        mig_parent=index,
        mig_profile=part.profile or "",
        # Slices reach neither each other nor another GPU over NVLink.
        numa_node=link.numa_node,
    )


def merged(first: GpuReport, second: GpuReport) -> GpuReport:
    """One report out of two sources: the first one's GPUs, with what only the second tells; the second where the
    first has none. Findings of both are kept, each once."""
    if not first.gpus and second.gpus:
        second.findings += [item for item in first.findings if item.id not in {f.id for f in second.findings}]
        return second
    by_uuid = {gpu.uuid: gpu for gpu in second.gpus if gpu.uuid}
    for gpu in first.gpus:
        other = by_uuid.get(gpu.uuid) if gpu.uuid else None
        if other is not None:
            _complete(gpu, other)
    first.driver_version = first.driver_version or second.driver_version
    first.cuda_version = first.cuda_version or second.cuda_version
    known = {(item.id, item.where) for item in first.findings}
    first.findings += [item for item in second.findings if (item.id, item.where) not in known]
    return first


def _complete(gpu: GpuFacts, other: GpuFacts) -> None:
    """Profiles of slices are in the list of nvidia-smi only, memory of slices in NVML only."""
    gpu.compute_capability = gpu.compute_capability or other.compute_capability
    gpu.memory_total_bytes = gpu.memory_total_bytes or other.memory_total_bytes
    parts = {part.uuid: part for part in other.mig_devices if part.uuid}
    gpu.mig_devices = [
        MigSlice(
            **{
                **{name: getattr(part, name) for name in MigSlice.__slots__},
                "profile": part.profile or (parts[part.uuid].profile if part.uuid in parts else None),
            }
        )
        for part in gpu.mig_devices
    ]
