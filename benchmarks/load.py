"""How much of the machine other programs use while something is measured: a figure is worth no more than that."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import psutil


@dataclass(frozen=True, slots=True)
class Reading:
    """CPU seconds so far: of the whole machine, idle ones apart, and of our own processes."""

    busy: float
    total: float
    own: float


def read() -> Reading:
    """Take a reading; ours are this process and all that it started."""
    ticks = [int(value) for value in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    second = os.sysconf("SC_CLK_TCK")
    total, idle = sum(ticks) / second, (ticks[3] + ticks[4]) / second
    root = psutil.Process()
    return Reading(total - idle, total, sum(map(_seconds_of, (root, *root.children(recursive=True)))))


def others(before: Reading, after: Reading) -> float:
    """Share of all cores' time that went to programs that are not ours, 0 to 1."""
    total = after.total - before.total
    foreign = (after.busy - before.busy) - (after.own - before.own)
    return max(foreign / total, 0.0) if total > 0 else 0.0


def _seconds_of(process: psutil.Process) -> float:
    try:
        times = process.cpu_times()
    except psutil.NoSuchProcess:
        return 0.0
    # What has ended and was waited for counts with who waited: servers end before the last reading is taken.
    return float(times.user + times.system + times.children_user + times.children_system)
