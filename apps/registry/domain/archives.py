"""Unpack an archive that nobody trusts: every entry is checked before a byte of it is written, all within bounds.

Refused: absolute names and steps upwards, links of both kinds, devices and pipes, encrypted and repeated entries,
more entries or more bytes than the bounds say.
"""

from __future__ import annotations

import re
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any, BinaryIO, cast

CHUNK = 4 * 1024 * 1024
LONGEST_NAME, DEEPEST = 255, 16
ANOTHER = "Do not use this archive; pack the files anew, or get it from somebody you trust."
_CONTROL = re.compile(r"[\x00-\x1f\x7f\\]")
# Bit 0 of a ZIP entry's general purpose flag (APPNOTE 4.4.4).
ENCRYPTED = 0x1
# Names of files that Inflight itself writes into folders of what it fetched (hub/folders.py, workers/fetching).
KEPT_NAMES = frozenset({".inflight.json", ".inflight.lock"})
# What the readers raise for an archive that is cut off, of another kind, or packed in a way that they do not know.
DAMAGE = (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError)


class ArchiveRefused(Exception):
    """The archive is not unpacked: a stable reason, a sentence and a remedy."""

    def __init__(self, reason: str, sentence: str, remedy: str) -> None:
        super().__init__(sentence)
        self.reason, self.sentence, self.remedy = reason, sentence, remedy


@dataclass(frozen=True, slots=True)
class Bounds:
    """What an archive may be: entries, bytes in all, and bytes unpacked for each packed one beyond `ratio_free`."""

    entries: int
    total: int
    ratio: int
    ratio_free: int

    def of(self, packed: int) -> int:
        """Bytes that an archive of this size may become."""
        return min(self.total, max(self.ratio_free, packed * self.ratio))


@dataclass(frozen=True, slots=True)
class Entry:
    """One file or folder of an archive. `size` is what its header says; what comes is counted again."""

    path: PurePosixPath
    folder: bool
    size: int
    content: IO[bytes] | None


def entries(archive: BinaryIO) -> Iterator[Entry]:
    """Entries in order. Raises ArchiveRefused at the first hostile one, DAMAGE where the archive is broken."""
    magic = archive.read(4)
    archive.seek(0)
    if magic[:2] == b"PK":
        yield from _zip(archive)
    elif magic[:2] == b"\x1f\x8b":
        yield from _tar(archive, "r|gz")
    else:
        yield from _tar(archive, "r|")


def _tar(archive: BinaryIO, mode: str) -> Iterator[Entry]:
    with tarfile.open(fileobj=archive, mode=cast(Any, mode)) as tar:
        for member in tar:
            path = safe_path(member.name)
            if member.issym() or member.islnk():
                raise _hostile("archive_link", member.name, "is a link")
            if not member.isdir() and (not member.isreg() or member.issparse()):
                raise _hostile("archive_device", member.name, "is neither a file nor a folder")
            yield Entry(
                path, member.isdir(), member.size, None if member.isdir() else tar.extractfile(member)
            )


def _zip(archive: BinaryIO) -> Iterator[Entry]:
    with zipfile.ZipFile(archive) as packed:
        for info in packed.infolist():
            path = safe_path(info.filename)
            kind = stat.S_IFMT(info.external_attr >> 16)
            if kind == stat.S_IFLNK:
                raise _hostile("archive_link", info.filename, "is a link")
            if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
                raise _hostile("archive_device", info.filename, "is neither a file nor a folder")
            if info.flag_bits & ENCRYPTED:
                raise _hostile("archive_encrypted", info.filename, "is encrypted")
            if info.is_dir():
                yield Entry(path, True, 0, None)
                continue
            with packed.open(info) as content:
                yield Entry(path, False, info.file_size, content)


def safe_path(name: str) -> PurePosixPath:
    """The name as a relative path. Raises ArchiveRefused for one that leads anywhere else."""
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if name.startswith("/") or ".." in parts or re.match(r"^[A-Za-z]:", name):
        raise _hostile("archive_traversal", name, "leads out of the folder")
    if _CONTROL.search(name) or len(name) > LONGEST_NAME * 4 or len(parts) > DEEPEST:
        raise _hostile("archive_name", name, "has a name that cannot be used")
    if any(len(part.encode("utf-8", "surrogateescape")) > LONGEST_NAME for part in parts):
        raise _hostile("archive_name", name, "has a name that is too long")
    if parts and parts[-1] in KEPT_NAMES:
        raise _hostile("archive_name", name, "has a name that Inflight uses itself")
    return PurePosixPath(*parts)


def unpack(
    archive: BinaryIO, packed_bytes: int, into: Path, bounds: Bounds, count: Callable[[int], None]
) -> int:
    """Write all files below `into`, which is new and empty; returns bytes written. Raises ArchiveRefused."""
    try:
        return _unpack(archive, packed_bytes, into, bounds, count)
    except DAMAGE as error:
        raise ArchiveRefused(
            "archive_damaged",
            f"The archive cannot be read: {error}.",
            "Pack it as .tar, .tar.gz or .zip, and see that all of it was copied.",
        ) from error


def _unpack(
    archive: BinaryIO, packed_bytes: int, into: Path, bounds: Bounds, count: Callable[[int], None]
) -> int:
    most, written, read_before = bounds.of(packed_bytes), 0, 0
    for number, entry in enumerate(entries(archive), start=1):
        if number > bounds.entries:
            raise ArchiveRefused(
                "archive_too_many_entries",
                f"The archive holds more than {bounds.entries:,} entries.",
                "Pack only the files that are needed.",
            )
        if written + entry.size > most:
            raise _bomb(most)
        target = into / entry.path
        if entry.folder or entry.content is None:
            target.mkdir(parents=True, exist_ok=True)
            continue
        written += _write(entry, target, most - written)
        position = min(archive.tell(), packed_bytes)
        count(position - read_before)
        read_before = position
    count(packed_bytes - read_before)
    if not written:
        raise ArchiveRefused("archive_empty", "The archive holds no files.", "Pack the files that are meant.")
    return written


def _write(entry: Entry, target: Path, most: int) -> int:
    target.parent.mkdir(parents=True, exist_ok=True)
    written = 0
    assert entry.content is not None  # noqa: S101 - files have content
    try:
        file = target.open("xb")
    except FileExistsError as error:
        raise _hostile("archive_duplicate", str(entry.path), "is there twice") from error
    with file:
        while chunk := entry.content.read(CHUNK):
            written += len(chunk)
            if written > most:
                raise _bomb(most)
            file.write(chunk)
    return written


def _hostile(reason: str, name: str, what: str) -> ArchiveRefused:
    return ArchiveRefused(reason, f"{name[:120]!r} in the archive {what}.", ANOTHER)


def _bomb(most: int) -> ArchiveRefused:
    return ArchiveRefused(
        "archive_bomb",
        f"The archive unpacks to more than {most / 1e9:.1f} GB, which is more than one of its size may.",
        ANOTHER,
    )


def content_root(folder: Path, without: str = "") -> Path:
    """The folder itself, or the only folder that is in it: archives are often made of one folder."""
    inside = [path for path in folder.iterdir() if path.name != without]
    return inside[0] if len(inside) == 1 and inside[0].is_dir() else folder
