"""Logs that lie elsewhere: an address with a scheme instead of a path, and who reads such an address.

Every log is named by a text. `/home/.../triton.log` is a file here; `door://node/instance/uid` is read by whoever
registered the scheme `door`. A reader is blocking, returns a LogWindow, and raises InflightError where it cannot.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from apps.realtime.log_window import MAX_WINDOW, LogWindow, read_window
from apps.realtime.logtail import FIRST_LOOK, MOST_BEHIND, Chunk

# (address, offset, limit): `offset` negative counts from the end, as in read_window.
WindowReader = Callable[[str, int, int], LogWindow]

_readers: dict[str, WindowReader] = {}


def register(scheme: str, reader: WindowReader) -> None:
    """Read addresses that begin with `scheme://` with this function."""
    _readers[scheme] = reader


def is_elsewhere(address: str) -> bool:
    """Whether the text names a log that is no file here."""
    scheme, separator, _rest = address.partition("://")
    return bool(separator) and scheme in _readers


def window(address: str, offset: int, limit: int) -> LogWindow:
    """A window of any log. Raises what the reader of another place raises; a missing file reads as empty."""
    if is_elsewhere(address):
        return _readers[address.partition("://")[0]](address, offset, limit)
    return read_window(address, offset, limit)


def pieces(address: str, offset: int = 0) -> Iterator[str]:
    """The log from `offset` to its present end, window by window."""
    while True:
        found = window(address, offset, MAX_WINDOW)
        if not found.text:
            return
        yield found.text
        if found.offset <= offset:
            return
        offset = found.offset


class ElsewhereTail:
    """Follows a log that lies elsewhere, as logtail.LogTail follows a file. Blocking; call it from a thread."""

    def __init__(self, address: str, offset: int | None) -> None:
        self._address = address
        self._position = offset

    def read(self) -> Chunk | None:
        """The next piece of text; None where there is nothing new."""
        at = -FIRST_LOOK if self._position is None else self._position
        found = window(self._address, at, FIRST_LOOK)
        if found.size - found.offset > MOST_BEHIND:
            found = window(self._address, -FIRST_LOOK, FIRST_LOOK)
        moved = self._position is not None and found.start != self._position
        self._position = found.offset
        if not found.text and not moved:
            return None
        return Chunk(found.text, found.start, found.offset)
