"""One window of a log file by byte offset, for the REST API; the live log topic has a reader of its own."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from apps.realtime.logtail import whole_characters

MIN_WINDOW = 1024
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
    limit = max(MIN_WINDOW, min(limit, MAX_WINDOW))
    try:
        with Path(path).open("rb") as file:
            size = file.seek(0, 2)
            start = max(0, size + offset) if offset < 0 else min(offset, size)
            file.seek(start)
            data = file.read(limit)
    except (FileNotFoundError, IsADirectoryError, PermissionError):
        return LogWindow("", 0, 0, 0)
    whole = whole_characters(data)
    return LogWindow(data[:whole].decode("utf-8", "replace"), start, start + whole, size)
