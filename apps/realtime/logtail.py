"""Reading what was appended to a log file, by byte offset, never cutting a character."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

# Bytes of one read; at four reads a second one socket takes at most 256 KiB/s of a log.
CHUNK = 65_536
# What a first look at a log shows of its end.
FIRST_LOOK = 262_144
# Further behind than this, the middle is passed over.
MOST_BEHIND = 4_194_304


@dataclass(frozen=True, slots=True)
class Chunk:
    """Text of a log from byte `start` to byte `offset`."""

    text: str
    start: int
    offset: int


class LogTail:
    """Follows one file. Synchronous and cheap; call it from a thread.

    `offset` is where to begin; None shows the last FIRST_LOOK bytes, from the beginning of a line. A file that
    became shorter, or was replaced by another one, is read from its beginning.
    """

    def __init__(self, path: Path, offset: int | None) -> None:
        self._path = path
        self._position = offset
        self._identity: tuple[int, int] | None = None

    def read(self) -> Chunk | None:
        """The next piece of text; None where there is nothing new or no file (yet)."""
        try:
            with self._path.open("rb") as file:
                status = os.fstat(file.fileno())
                start = self._start(status)
                file.seek(start)
                data = file.read(CHUNK)
        except (FileNotFoundError, PermissionError, IsADirectoryError):
            return None
        whole = whole_characters(data)
        moved = start != self._position
        self._position = start + whole
        if not whole and not moved:
            return None
        return Chunk(data[:whole].decode("utf-8", errors="replace"), start, self._position)

    def _start(self, status: os.stat_result) -> int:
        identity = (status.st_dev, status.st_ino)
        replaced = self._identity is not None and identity != self._identity
        self._identity = identity
        size = status.st_size
        if self._position is None:
            return self._line_after(max(0, size - FIRST_LOOK))
        if replaced or size < self._position:
            return 0
        if size - self._position > MOST_BEHIND:
            return self._line_after(size - FIRST_LOOK)
        return self._position

    def _line_after(self, position: int) -> int:
        """Byte after the first line end from `position` on; `position` itself at the beginning of the file."""
        if position == 0:
            return 0
        with self._path.open("rb") as file:
            file.seek(position)
            return position + len(file.readline(CHUNK))


def whole_characters(data: bytes) -> int:
    """Length of `data` without a UTF-8 sequence that is cut at its end; bytes that are no UTF-8 count as whole."""
    for back in range(1, min(4, len(data)) + 1):
        byte = data[-back]
        if byte & 0b1100_0000 == 0b1000_0000:
            continue
        length = 4 if byte >= 0xF0 else 3 if byte >= 0xE0 else 2 if byte >= 0xC0 else 1
        return len(data) - back if length > back else len(data)
    return len(data)
