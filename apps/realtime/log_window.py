"""One window of a log file by byte offset, for the REST API; the live log topic has a reader of its own."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

MAX_WINDOW = 1024 * 1024


@dataclass(frozen=True, slots=True)
class LogWindow:
    """Text from byte `start` to byte `offset` of a file that is `size` bytes long now."""

    text: str
    start: int
    offset: int
    size: int

    def as_dict(self) -> dict[str, str | int]:
        """JSON form."""
        return {"text": self.text, "start": self.start, "offset": self.offset, "size": self.size}


def read_window(path: str, offset: int, limit: int) -> LogWindow:
    """Read at most `limit` bytes from `offset` (negative: that many bytes before the end).

    Characters are never cut: a window ends before one that is not whole yet. A file that is not there reads as
    empty. An offset beyond the end is answered from the end: the file may have begun anew.
    """
    limit = min(limit, MAX_WINDOW)
    try:
        with Path(path).open("rb") as file:
            size = file.seek(0, 2)
            start = max(0, size + offset) if offset < 0 else min(offset, size)
            file.seek(start)
            data = file.read(limit)
    except (FileNotFoundError, IsADirectoryError):
        return LogWindow("", 0, 0, 0)
    whole = data if start + len(data) < size and len(data) < 4 else _whole(data)
    return LogWindow(whole.decode("utf-8", "replace"), start, start + len(whole), size)


def _whole(data: bytes) -> bytes:
    """The data without the beginning of a last character that is cut."""
    for back in range(1, min(4, len(data) + 1)):
        byte = data[-back]
        if byte & 0b1100_0000 == 0b1000_0000:
            continue
        needed = 4 if byte >= 0xF0 else 3 if byte >= 0xE0 else 2 if byte >= 0xC0 else 1
        return data[:-back] if needed > back else data
    return data
