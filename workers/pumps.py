"""Threads that drain a child's pipes: its output into the log file, its events to whoever watches."""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

log = logging.getLogger(__name__)
READ_BYTES = 65_536
# A longer line is cut, so that a child that prints without line breaks fills neither memory nor browser.
MAX_LINE_BYTES = 8_192
MAX_LOG_BYTES = 64 * 1024 * 1024
CUT = " ... [line cut]\n"


class LogFile:
    """Appends to one attempt's log, flushed at once so that a reader by offset sees whole lines. Bounded."""

    def __init__(self, path: Path, limit: int = MAX_LOG_BYTES) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self._file: BinaryIO = path.open("ab", buffering=0)
        self._left = limit - self._file.tell()
        self._lock = threading.Lock()

    def write(self, data: bytes) -> None:
        """Append; past the limit nothing more is kept. A full disk loses the line, never the build's own error."""
        with self._lock:
            if self._left <= 0:
                return
            self._left -= len(data)
            if self._left <= 0:
                data += b"[the log is longer than its limit; the rest is left out]\n"
            try:
                self._file.write(data)
            except OSError as error:
                log.warning("%s cannot be written: %s", self.path, error)

    def say(self, text: str) -> None:
        """Append one line of our own."""
        self.write(f"[inflight] {text}\n".encode())

    def close(self) -> None:
        """Close the file; a late write is lost quietly."""
        with self._lock:
            self._left = 0
            self._file.close()

    def tail(self, size: int = READ_BYTES) -> str:
        """The last `size` bytes as text, beginning with a whole line."""
        return self.numbered_tail(size)[1]

    def numbered_tail(self, size: int) -> tuple[int, str]:
        """The same, with how many lines stand before it."""
        with self.path.open("rb") as file:
            start = max(0, file.seek(0, os.SEEK_END) - size)
            file.seek(0)
            before = sum(
                file.read(min(READ_BYTES, start - at)).count(b"\n") for at in range(0, start, READ_BYTES)
            )
            text = file.read().decode("utf-8", "replace")
        return (before + 1, text.partition("\n")[2]) if start else (before, text)


class Pump(threading.Thread):
    """Reads a pipe to its end and hands over whole lines, each at most 8 KiB, with their line break."""

    def __init__(self, descriptor: int, name: str, take: Callable[[bytes], None]) -> None:
        super().__init__(name=name, daemon=True)
        self._descriptor = descriptor
        self._take = take
        self._held = b""
        self._cutting = False

    def run(self) -> None:
        """Drain until the last writer has closed its end."""
        try:
            while data := os.read(self._descriptor, READ_BYTES):
                self._feed(data)
            if self._held:
                self._take(self._held + b"\n")
        except OSError as error:
            log.warning("%s stopped: %s", self.name, error)
        finally:
            os.close(self._descriptor)

    def _feed(self, data: bytes) -> None:
        *lines, rest = (self._held + data).split(b"\n")
        for line in lines:
            self._line(line)
        if len(rest) > MAX_LINE_BYTES:
            self._line(rest)
            self._cutting, rest = True, b""
        self._held = rest

    def _line(self, line: bytes) -> None:
        if self._cutting:
            # The end of a line whose beginning was handed over already.
            self._cutting = False
            return
        self._take(line + b"\n" if len(line) <= MAX_LINE_BYTES else line[:MAX_LINE_BYTES] + CUT.encode())


def event_reader(take: Callable[[dict[str, Any]], None]) -> Callable[[bytes], None]:
    """Turn JSON lines into calls with their mapping; what is no such line is logged and passed over."""

    def read(line: bytes) -> None:
        try:
            event = json.loads(line)
        except ValueError:
            event = None
        if not isinstance(event, dict) or not isinstance(event.get("event"), str):
            log.warning("A step sent no event: %.200r", line)
            return
        try:
            take(event)
        except (ValueError, TypeError, AttributeError) as error:
            # A field of another kind than agreed; the pipe is drained on.
            log.warning("A step's event cannot be used (%s): %.200r", error, line)

    return read
