"""Server-sent events out of bytes, in whatever pieces they come."""

from __future__ import annotations

MAX_EVENT_BYTES = 4 * 1024 * 1024


class EventTooLong(ValueError):
    """One event is longer than MAX_EVENT_BYTES."""


class EventReader:
    """Feed it bytes; it gives the data of each complete event. Comments and other fields are passed over."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[bytes]:
        """Data of the events that are complete now. Raises EventTooLong."""
        if self._rest:
            data = self._rest + data
        # What most servers send: lines that end in \n alone, one line of data an event.
        if b"\r" in data:
            held = data.endswith(b"\r")
            data = data.replace(b"\r\n", b"\n")
            data = data[:-1].replace(b"\r", b"\n") + b"\r" if held else data.replace(b"\r", b"\n")
        *events, self._rest = data.split(b"\n\n")
        if len(self._rest) > MAX_EVENT_BYTES:
            raise EventTooLong(f"an event is longer than {MAX_EVENT_BYTES} bytes")
        found: list[bytes] = []
        for event in events:
            if event.startswith(b"data: ") and b"\n" not in event:
                found.append(event[6:])
            else:
                lines = [_value(line) for line in event.split(b"\n") if line.startswith(b"data:")]
                if lines:
                    found.append(b"\n".join(lines))
        return found

    def flush(self) -> list[bytes]:
        """An event that the end of the stream completes, for servers that leave out its empty line."""
        rest, self._rest = self._rest, b""
        return self.feed(rest + b"\n\n") if rest.strip() else []


def _value(line: bytes) -> bytes:
    value = line[5:]
    return value[1:] if value.startswith(b" ") else value
