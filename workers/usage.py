"""What a step takes of its host while it runs: memory of its whole tree, and what it leaves of the disk."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import psutil

from apps.core import clock
from apps.fleet.processes import ProcessIdentity, ours

EVERY_SECONDS = 2.0
# Below this the database and Redis on the same disk would soon fail too, so the step ends while they still work.
DISK_FLOOR_BYTES = 64 * 1024 * 1024
# A host below this share of its memory is about to kill something.
MEMORY_FLOOR_SHARE = 0.03


@dataclass(slots=True)
class Usage:
    """Highest memory of the step's tree and lowest free disk seen, in bytes; None while nothing was seen.

    `memory_was_low`: at the last look but one or the last, the host had next to nothing left.
    """

    peak_bytes: int | None = None
    disk_left_bytes: int | None = None
    memory_was_low: bool = False

    def as_dict(self) -> dict[str, int]:
        """What is known, for the stage's row and the manifest."""
        known = {"peak_bytes": self.peak_bytes, "disk_left_bytes": self.disk_left_bytes}
        return {name: value for name, value in known.items() if value is not None}


class Meter:
    """Measures a step's tree every two seconds; `look` is called from the loop that waits for the step."""

    def __init__(self, mark: str, identity: ProcessIdentity | None, folder: Path) -> None:
        self.usage = Usage()
        self._mark, self._identity, self._folder = mark, identity, folder
        self._at = float("-inf")

    def look(self) -> bool:
        """Measure if it is time. False where the disk has run low and the step must end."""
        now = clock.monotonic()
        if now - self._at < EVERY_SECONDS:
            return True
        self._at = now
        usage = self.usage
        usage.peak_bytes = max(usage.peak_bytes or 0, self._tree_bytes()) or None
        memory = psutil.virtual_memory()
        usage.memory_was_low = memory.available < memory.total * MEMORY_FLOOR_SHARE
        try:
            left = shutil.disk_usage(self._folder).free
        except OSError:
            return True
        usage.disk_left_bytes = min(
            left, usage.disk_left_bytes if usage.disk_left_bytes is not None else left
        )
        return left >= DISK_FLOOR_BYTES

    def _tree_bytes(self) -> int:
        total = 0
        for process in ours(self._mark, self._identity):
            try:
                total += process.memory_info().rss
            except psutil.Error:
                continue
        return total
