"""CPU time and memory of all processes of this host, in one pass over /proc that every server's gauge shares."""

from __future__ import annotations

import os
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")

# A pass this recent is not repeated: servers of one second share it.
FRESH_SECONDS = 0.4


@dataclass(frozen=True, slots=True)
class Process:
    """One process: CPU seconds of its own so far, resident bytes, start in seconds since boot."""

    pid: int
    cpu_seconds: float
    rss: int
    created: float


@dataclass(slots=True)
class Table:
    """All processes at `at` (monotonic)."""

    at: float
    processes: dict[int, Process] = field(default_factory=dict)
    children: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))

    def tree(self, pid: int, created: float | None) -> Iterator[Process]:
        """A process and all below it; nothing where the pid belongs to a process of another start."""
        root = self.processes.get(pid)
        if root is None or (created is not None and abs(root.created - created) > 1.5 / _TICKS):
            return
        seen = set()
        waiting = [pid]
        while waiting:
            current = waiting.pop()
            process = self.processes.get(current)
            if process is not None and current not in seen:
                seen.add(current)
                yield process
                waiting += self.children.get(current, ())


_lock = threading.Lock()
_latest: list[Table] = []


def table() -> Table:
    """The processes of now, or of FRESH_SECONDS ago at most."""
    with _lock:
        if not _latest or time.monotonic() - _latest[0].at > FRESH_SECONDS:
            _latest[:] = [_read()]
        return _latest[0]


def _read() -> Table:
    found = Table(time.monotonic())
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                # The name in brackets may hold anything; what follows the last bracket are numbers.
                fields = file.read().rpartition(b")")[2].split()
            process = Process(
                int(name),
                (int(fields[11]) + int(fields[12])) / _TICKS,
                int(fields[21]) * _PAGE,
                int(fields[19]) / _TICKS,
            )
        except (OSError, ValueError, IndexError):
            continue  # it ended meanwhile
        found.processes[process.pid] = process
        found.children[int(fields[1])].append(process.pid)
    return found
