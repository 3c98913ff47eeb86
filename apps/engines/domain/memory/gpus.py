"""The usual GPUs: memory as a CUDA program sees it, compute capability times ten.

`memory_bytes` is what cudaMemGetInfo gives as total where it is known (`seen`), else the nominal memory less the
share that the driver of the same family keeps (ECC and firmware): a little less than is printed on the box.
"""

from __future__ import annotations

from dataclasses import dataclass

from apps.engines.domain.memory.units import GIB


@dataclass(frozen=True, slots=True)
class GpuKind:
    """One row of the table. `seen` is true where the memory was read from a running card or from its log."""

    key: str
    label: str
    memory_bytes: int
    sm: int
    seen: bool = False


def _gpu(key: str, label: str, gib: float, sm: int, seen: bool = False) -> GpuKind:
    return GpuKind(key, label, int(gib * GIB), sm, seen)


GPUS: tuple[GpuKind, ...] = (
    GpuKind("h200", "H200 SXM 141 GB", 150_109_880_320, 90, seen=True),
    _gpu("h200-nvl", "H200 NVL 141 GB", 139.8, 90),
    _gpu("h100-sxm", "H100 SXM 80 GB", 79.10, 90, seen=True),
    _gpu("h100-pcie", "H100 PCIe 80 GB", 79.10, 90),
    _gpu("h100-nvl", "H100 NVL 94 GB", 93.0, 90),
    _gpu("h20", "H20 96 GB", 95.0, 90),
    _gpu("gh200-96", "GH200 96 GB", 94.5, 90),
    _gpu("gh200-144", "GH200 144 GB", 139.8, 90),
    _gpu("b200", "B200 180 GB", 178.3, 100),
    _gpu("gb200", "GB200 186 GB", 184.0, 100),
    _gpu("b300", "B300 288 GB", 267.0, 103),
    _gpu("gb300", "GB300 288 GB", 276.0, 103),
    _gpu("a100-80", "A100 80 GB", 79.10, 80),
    _gpu("a100-40", "A100 40 GB", 39.40, 80),
    _gpu("a30", "A30 24 GB", 23.5, 80),
    _gpu("a40", "A40 48 GB", 44.4, 86),
    _gpu("a10", "A10 / A10G 24 GB", 22.0, 86),
    _gpu("a16", "A16 16 GB (one of four)", 14.5, 86),
    _gpu("a2", "A2 16 GB", 14.5, 86),
    _gpu("l40s", "L40S 48 GB", 44.4, 89),
    _gpu("l40", "L40 48 GB", 44.4, 89),
    _gpu("l4", "L4 24 GB", 22.0, 89),
    _gpu("rtx-pro-6000", "RTX PRO 6000 Blackwell 96 GB", 94.9, 120),
    _gpu("rtx-6000-ada", "RTX 6000 Ada 48 GB", 47.5, 89, seen=True),
    _gpu("rtx-a6000", "RTX A6000 48 GB", 47.5, 86),
    _gpu("rtx-5090", "RTX 5090 32 GB", 31.3, 120),
    _gpu("rtx-5080", "RTX 5080 16 GB", 15.4, 120),
    _gpu("rtx-4090", "RTX 4090 24 GB", 23.5, 89),
    _gpu("rtx-3090", "RTX 3090 24 GB", 23.6, 86),
    _gpu("t4", "T4 16 GB", 14.6, 75),
    _gpu("v100-32", "V100 32 GB", 31.7, 70),
    _gpu("v100-16", "V100 16 GB", 15.7, 70),
)
BY_KEY = {gpu.key: gpu for gpu in GPUS}


def find_gpu(name: str) -> GpuKind | None:
    """The row of a key (`h100-sxm`), or of a product line whose rows are of one architecture (`h100`)."""
    wanted = name.strip().lower().replace(" ", "-")
    return BY_KEY.get(wanted) or next((row for row in GPUS if row.key.split("-")[0] == wanted), None)
