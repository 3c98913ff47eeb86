"""Walking forward through a GGUF header within bounds. Standard library alone (see gguf_reader)."""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import BinaryIO

from apps.core.exceptions import InvalidInput
from apps.registry.domain.regular_files import clean_text

# Bounds on what one header may ask for. The largest known headers (256k tokens, thousands of expert tensors) stay
# an order of magnitude below.
MAX_METADATA = 16_384
MAX_TENSORS = 32_768
MAX_KEY_BYTES = 65_535  # the specification's own limit
MAX_STRING_BYTES = 4 * 1024 * 1024
MAX_NAME_BYTES = 255  # llama.cpp keeps 64, others more
MAX_ARRAY = 16 * 1024 * 1024
MAX_ARRAY_DEPTH = 4
MAX_DIMENSIONS = 4
MAX_HEADER_BYTES = 64 * 1024 * 1024
# Strings and inner arrays over the whole header: tokens and merges of the largest vocabularies are 0.7 M.
MAX_WALKED = 1_500_000
# Texts and numbers that stay in memory, over the whole header; a kept number counts as so many bytes.
MAX_KEPT_BYTES = 16 * 1024 * 1024
NUMBER_BYTES = 48
MAX_ALIGNMENT = 1024 * 1024
# Numeric arrays up to this length are kept whole (per-layer head counts); longer ones give a sample.
KEPT_NUMBERS = 1024
SAMPLE = 8
CHUNK = 1024 * 1024


def refuse(code: str, sentence: str, remedy: str = "") -> InvalidInput:
    """The error for a file that is not to be used."""
    return InvalidInput(
        code,
        clean_text(sentence),
        field="source",
        remedy=remedy
        or "Fetch the file again from where it came; it is damaged or was made by a faulty program.",
    )


@dataclass(slots=True)
class Cursor:
    """Reads forward through the header; no read goes past the file's end or the header's bound."""

    file: BinaryIO
    size: int
    where: str
    at: int = 0
    walked: int = 0
    kept: int = 0
    hash: Callable[[bytes], None] = field(default=lambda _: None)

    def take(self, count: int, what: str) -> bytes:
        if count > self.size - self.at:
            raise refuse(
                "gguf_truncated",
                f"{self.where} ends inside its header: {what} needs {count} bytes at {self.at}, "
                f"the file has {self.size}.",
                "The download was cut off: fetch the file again.",
            )
        if self.at + count > MAX_HEADER_BYTES:
            raise refuse("gguf_header_too_large", f"The header of {self.where} is larger than 64 MiB.")
        found = self.file.read(count)
        if len(found) != count:
            raise refuse(
                "gguf_truncated",
                f"{self.where} became shorter while it was read.",
                "Wait until the copy has finished, then inspect it again.",
            )
        self.at += count
        self.hash(found)
        return found

    def skip(self, count: int, what: str) -> None:
        """Pass over bytes, a piece at a time; they count for the digest."""
        while count > 0:
            count -= len(self.take(min(count, CHUNK), what))

    def walk(self, key: str, count: int = 1) -> None:
        """Count strings or inner arrays against the header's budget."""
        self.walked += count
        if self.walked > MAX_WALKED:
            raise refuse(
                "gguf_hostile_size", f"{self.where}: the arrays up to {key} hold more than 1.5 M strings."
            )

    def keep(self, count: int, key: str) -> None:
        """Count bytes that stay in memory against the header's budget."""
        self.kept += count
        if self.kept > MAX_KEPT_BYTES:
            raise refuse("gguf_hostile_size", f"{self.where}: the values up to {key} take more than 16 MiB.")

    def strings(self, count: int, what: str, wanted: Collection[int] = ()) -> dict[int, str]:
        """Pass over so many strings; those at the wanted indices come back."""
        found: dict[int, str] = {}
        buffer, at, unpack = b"", 0, struct.Struct("<Q").unpack_from
        for index in range(count):
            if len(buffer) - at < 8:
                buffer, at = self._refill(buffer, at, 8, what), 0
            (length,) = unpack(buffer, at)
            if length > MAX_STRING_BYTES:
                raise refuse(
                    "gguf_hostile_size",
                    f"{self.where} claims {length} bytes for {what}; at most {MAX_STRING_BYTES} make sense.",
                )
            if len(buffer) - at - 8 < length:
                buffer, at = self._refill(buffer, at, 8 + length, what), 0
            if index in wanted:
                found[index] = buffer[at + 8 : at + 8 + length].decode("utf-8", "replace")
            at += 8 + length
        self._refill(buffer, at, 0, what)
        self.file.seek(self.at)
        return found

    def _refill(self, buffer: bytes, at: int, need: int, what: str) -> bytes:
        """The rest of a buffer, with at least `need` bytes; what was passed counts for position and digest."""
        self.hash(buffer[:at])
        self.at += at
        rest = buffer[at:]
        if not need:
            return rest
        if need > self.size - self.at:
            raise refuse(
                "gguf_truncated",
                f"{self.where} ends inside its header: {what} needs {need} bytes at {self.at}, "
                f"the file has {self.size}.",
                "The download was cut off: fetch the file again.",
            )
        if self.at + need > MAX_HEADER_BYTES:
            raise refuse("gguf_header_too_large", f"The header of {self.where} is larger than 64 MiB.")
        rest += self.file.read(max(CHUNK, need) - len(rest))
        if len(rest) < need:
            raise refuse(
                "gguf_truncated",
                f"{self.where} became shorter while it was read.",
                "Wait until the copy has finished, then inspect it again.",
            )
        return rest

    def number(self, code: str, what: str) -> int:
        """One little-endian number in struct's code."""
        return int(struct.unpack("<" + code, self.take(struct.calcsize("<" + code), what))[0])

    def text(self, limit: int, what: str) -> str:
        """A string of at most `limit` bytes. Bytes that are no UTF-8 come out as U+FFFD."""
        length = self.number("Q", f"the length of {what}")
        if length > limit:
            raise refuse(
                "gguf_hostile_size",
                f"{self.where} claims {length} bytes for {what}; at most {limit} make sense.",
            )
        return self.take(length, what).decode("utf-8", "replace")
