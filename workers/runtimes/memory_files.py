"""Shared memory that servers leave in /dev/shm: names begin with their instance's id."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - the kernel's, not a temporary file of ours
PROC = Path("/proc")


def regions(prefix: str, folder: Path = SHARED_MEMORY) -> list[Path]:
    """Regions whose names begin with `prefix`."""
    return sorted(path for path in folder.glob(f"{prefix}*") if path.is_file()) if folder.is_dir() else []


def remove_unmapped(prefix: str, folder: Path = SHARED_MEMORY) -> list[Path]:
    """Remove the regions of a prefix that no process maps; returns those that stay because one does."""
    found = regions(prefix, folder)
    if not found:
        return []
    mapped = _mapped(found)
    for path in found:
        if path not in mapped:
            path.unlink(missing_ok=True)
    return sorted(mapped)


def _mapped(paths: list[Path]) -> set[Path]:
    wanted = {str(path): path for path in paths}
    found: set[Path] = set()
    for entry in os.listdir(PROC):
        if not entry.isdecimal():
            continue
        with contextlib.suppress(OSError):
            text = (PROC / entry / "maps").read_text(errors="replace")
            found.update(path for name, path in wanted.items() if name in text)
    return found
