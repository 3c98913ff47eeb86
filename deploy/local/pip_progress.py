"""Reads pip's own output and the files it is writing, and says how far it is."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

# Downloads and unpacking take about the same time on two cores with a near mirror.
DOWNLOAD_WEIGHT = 0.6
MEGABYTE = 1000 * 1000
UNITS = {"bytes": 1, "kB": 1000, "MB": MEGABYTE, "GB": 1000 * MEGABYTE}
REQUIREMENT = re.compile(r"^([A-Za-z0-9._-]+)==[^ ;]+ ?(;[^\\]*)?", re.MULTILINE)
FETCH = re.compile(r"^\s*(?:Downloading|Using cached) (\S+)(?: \(([\d.]+) (bytes|kB|MB|GB)\))?")


def names_in(lock_text: str) -> set[str]:
    """Distribution names of a lock file that apply on Linux."""
    found = set()
    for match in REQUIREMENT.finditer(lock_text):
        if "sys_platform == 'win32'" not in (match[2] or ""):
            found.add(re.sub(r"[-_.]+", "-", match[1]).lower())
    return found


@dataclass(slots=True)
class PipProgress:
    """State of one pip run. `expected` is the number of distributions that it handles."""

    expected: int
    collected: int = 0
    fetching: str = ""
    fetching_bytes: int = 0
    fetched_bytes: int = 0
    installing: bool = False
    installed: int = 0
    errors: list[str] = field(default_factory=list)

    def feed(self, lines: Iterable[str]) -> None:
        """Take new lines of pip's output."""
        for line in lines:
            fetch = FETCH.match(line)
            if line.startswith(("Collecting ", "Requirement already satisfied")):
                self._close_fetch()
                self.collected += 1
            elif fetch:
                self._close_fetch()
                self.fetching = fetch[1]
                self.fetching_bytes = round(float(fetch[2]) * UNITS[fetch[3]]) if fetch[2] else 0
            elif line.startswith(("Installing collected packages", "Saved ")):
                self._close_fetch()
                self.installing = True
            elif line.startswith("ERROR: "):
                self.errors.append(line.removeprefix("ERROR: ").strip())

    def _close_fetch(self) -> None:
        self.fetched_bytes += self.fetching_bytes
        self.fetching, self.fetching_bytes = "", 0

    def share(self, partial_bytes: int) -> float:
        """From 0 to 1; `partial_bytes` is what the file being fetched has reached."""
        total = max(self.expected, self.collected, 1)
        within = min(partial_bytes / self.fetching_bytes, 1.0) if self.fetching_bytes else 0.0
        done = (max(self.collected - 1, 0) + within) / total if self.fetching else self.collected / total
        if self.installing:
            done = 1.0
        return DOWNLOAD_WEIGHT * min(done, 1.0) + (1 - DOWNLOAD_WEIGHT) * min(self.installed / total, 1.0)

    def detail(self, partial_bytes: int) -> str:
        """What it is at, in words."""
        if self.installing:
            return f"installing {self.installed} of {max(self.expected, self.installed)} packages"
        text = f"package {self.collected} of {max(self.expected, self.collected)}"
        if self.fetching_bytes > MEGABYTE:
            whole = self.fetching_bytes / MEGABYTE
            have = min(partial_bytes / MEGABYTE, whole)
            return f"{text}, {self.fetching.split('-')[0]} {have:.0f} of {whole:.0f} MB"
        return text


def partial_bytes(folder: Path) -> int:
    """Bytes of the newest archive that pip is writing under its temporary folder."""
    newest, size = 0.0, 0
    for path in _files_below(folder):
        try:
            found = path.stat()
        except FileNotFoundError:
            continue
        if path.suffix in {".whl", ".gz"} and found.st_mtime >= newest:
            newest, size = found.st_mtime, found.st_size
    return size


def _files_below(folder: Path) -> list[Path]:
    """What lies in pip's temporary folders; pip removes them at any moment, while they are being read too."""
    found: list[Path] = []
    for name in _names(folder):
        if name.startswith("pip-"):
            found += [folder / name / inner for inner in _names(folder / name)]
    return found


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []
