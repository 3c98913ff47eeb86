"""How the GPUs of a host are joined: NVLink groups, out of NVML or out of `nvidia-smi topo -m`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

# nvml.h: nvmlGpuP2PCapsIndex_t NVLINK, nvmlGpuP2PStatus_t OK.
P2P_CAPS_NVLINK = 2
P2P_STATUS_OK = 0
_ROW = re.compile(r"^GPU(?P<index>\d+)\s+(?P<cells>.+)$")
_ESCAPES = re.compile(r"\x1b\[[0-9;]*m")
_NVLINK = re.compile(r"^NV\d+$")


def groups(pairs: Iterable[tuple[int, int]]) -> dict[int, int]:
    """{GPU: number of its group} of GPUs that pairs join; a group has the number of its first GPU."""
    root: dict[int, int] = {}

    def of(one: int) -> int:
        while root.setdefault(one, one) != one:
            one = root[one]
        return one

    for first, second in pairs:
        low, high = sorted((of(first), of(second)))
        root[high] = low
    return {one: of(one) for one in root}


def from_nvml(nvml: Any, count: int) -> dict[int, int]:
    """NVLink groups by NVML, whose module is handed in and started; empty where it does not tell."""
    pairs = []
    try:
        handles = {index: nvml.nvmlDeviceGetHandleByIndex(index) for index in range(count)}
    except nvml.NVMLError:
        return {}
    for first in range(count):
        for second in range(first + 1, count):
            try:
                status = nvml.nvmlDeviceGetP2PStatus(handles[first], handles[second], P2P_CAPS_NVLINK)
            except (nvml.NVMLError, AttributeError):
                continue
            if _value(status) == P2P_STATUS_OK:
                pairs.append((first, second))
    return groups(pairs)


def _value(status: Any) -> int:
    """pynvml gives the status as a number or as ctypes' one."""
    return int(getattr(status, "value", status))


def from_topology(text: str) -> dict[int, int]:
    """NVLink groups out of the matrix of `nvidia-smi topo -m`; empty for a text that is none."""
    rows: dict[int, list[str]] = {}
    for line in _ESCAPES.sub("", text).splitlines():
        match = _ROW.match(line.strip())
        if match is not None and "X" in match.group("cells").split():
            rows[int(match.group("index"))] = match.group("cells").split()
    order = sorted(rows)
    return groups(
        (first, order[column])
        for first, cells in rows.items()
        for column, cell in enumerate(cells[: len(order)])
        if _NVLINK.match(cell)
    )


def joined(
    nvlink: Mapping[int, int], numa: Mapping[int, int | None]
) -> dict[int, tuple[int | None, int | None]]:
    """{GPU: (NVLink group, NUMA node)} of all GPUs that either names."""
    return {index: (nvlink.get(index), numa.get(index)) for index in {*nvlink, *numa}}
