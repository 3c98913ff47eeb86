"""What a step takes of its host while it runs: memory of its whole tree, and what it leaves of the disk."""

from __future__ import annotations

import contextlib
import json
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
    """Highest memory of the step's tree, lowest free disk and largest work folder seen, in bytes; None: not seen.

    `memory_was_low`: at the last look but one or the last, the host had next to nothing left.
    """

    peak_bytes: int | None = None
    disk_left_bytes: int | None = None
    disk_bytes: int | None = None
    memory_was_low: bool = False

    def as_dict(self) -> dict[str, int]:
        """What is known, for the stage's row and the manifest."""
        known = {
            "peak_bytes": self.peak_bytes,
            "disk_left_bytes": self.disk_left_bytes,
            "disk_bytes": self.disk_bytes,
        }
        return {name: value for name, value in known.items() if value is not None}


class Samples:
    """Appends what was measured to a file beside the log, ever more seldom: a build of a day makes some thousand."""

    def __init__(self, path: Path, stage: str) -> None:
        self._path, self._stage = path, stage
        self._began = self._at = float("-inf")

    def keep(self, memory_bytes: int, disk_bytes: int) -> None:
        """Append, unless the last one is younger than a hundredth of the step's time so far."""
        now = clock.monotonic()
        if self._began == float("-inf"):
            self._began = now
        if now - self._at < (now - self._began) / 100:
            return
        self._at = now
        line = {
            "at": round(clock.now().timestamp(), 1),
            "stage": self._stage,
            "memory_bytes": memory_bytes,
            "disk_bytes": disk_bytes,
        }
        # A chart is worth no build.
        with contextlib.suppress(OSError), self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


class Meter:
    """Measures a step's tree every two seconds; `look` is called from the loop that waits for the step.

    `work` is the folder whose size is measured, `samples` keeps the course for a chart.
    """

    def __init__(
        self,
        mark: str,
        identity: ProcessIdentity | None,
        folder: Path,
        work: Path | None = None,
        samples: Samples | None = None,
    ) -> None:
        self.usage = Usage()
        self._work, self._samples = work, samples
        self._mark, self._identity, self._folder = mark, identity, folder
        self._at = float("-inf")

    def look(self) -> bool:
        """Measure if it is time. False where the disk has run low and the step must end."""
        now = clock.monotonic()
        if now - self._at < EVERY_SECONDS:
            return True
        self._at = now
        usage = self.usage
        tree, disk = self._tree_bytes(), size_of(self._work)
        usage.peak_bytes = max(usage.peak_bytes or 0, tree) or None
        if disk is not None:
            usage.disk_bytes = max(usage.disk_bytes or 0, disk)
        if self._samples is not None:
            self._samples.keep(tree, disk or 0)
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


def size_of(folder: Path | None) -> int | None:
    """Bytes of all files below a folder; None where there is none. What vanishes meanwhile counts for nothing."""
    if folder is None or not folder.is_dir():
        return None
    total = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(OSError):
            total += path.stat(follow_symlinks=False).st_size if not path.is_dir() else 0
    return total
