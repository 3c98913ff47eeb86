"""Unpack an archive that nobody trusts: every entry is checked before a byte of it is written, all within bounds.

Refused: absolute names and steps upwards, links of both kinds, devices and pipes, encrypted and repeated entries,
more entries or more bytes than the bounds say. The content appears under its hash by one rename, or not at all.
"""

from __future__ import annotations

import hashlib
import re
import resource
import shutil
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any, BinaryIO, cast

from apps.registry.hub.folders import MANIFEST, archive_folder, partial_of
from workers.builders.llamacpp_steps.events import StepFailed, run, say, send
from workers.fetching.common import CHUNK, LOCK, Meter, alone, publish, read_plan, require_room

LONGEST_NAME, DEEPEST = 255, 16
ANOTHER = "Do not use this archive; pack the files anew, or get it from somebody you trust."
_CONTROL = re.compile(r"[\x00-\x1f\x7f\\]")
# Bit 0 of a ZIP entry's general purpose flag (APPNOTE 4.4.4).
ENCRYPTED = 0x1
# What the readers raise for an archive that is cut off, of another kind, or packed in a way that they do not know.
DAMAGE = (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError)


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
    """Entries in the order of the archive. Raises StepFailed at the first hostile one, DAMAGE where it is broken."""
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
    """The name as a relative path. Raises StepFailed for one that leads anywhere else."""
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if name.startswith("/") or ".." in parts or re.match(r"^[A-Za-z]:", name):
        raise _hostile("archive_traversal", name, "leads out of the folder")
    if _CONTROL.search(name) or len(name) > LONGEST_NAME * 4 or len(parts) > DEEPEST:
        raise _hostile("archive_name", name, "has a name that cannot be used")
    if any(len(part.encode("utf-8", "surrogateescape")) > LONGEST_NAME for part in parts):
        raise _hostile("archive_name", name, "has a name that is too long")
    if parts and parts[-1] in (MANIFEST, LOCK):
        raise _hostile("archive_name", name, "has a name that Inflight uses itself")
    return PurePosixPath(*parts)


def unpack(archive: BinaryIO, packed_bytes: int, into: Path, bounds: Bounds, meter: Meter) -> int:
    """Write all files below `into`, which is new and empty; returns bytes written. Raises StepFailed."""
    try:
        return _unpack(archive, packed_bytes, into, bounds, meter)
    except DAMAGE as error:
        raise StepFailed(
            "archive_damaged",
            f"The archive cannot be read: {error}.",
            "Pack it as .tar, .tar.gz or .zip, and see that all of it was copied.",
        ) from error


def _unpack(archive: BinaryIO, packed_bytes: int, into: Path, bounds: Bounds, meter: Meter) -> int:
    most, written, read_before = bounds.of(packed_bytes), 0, 0
    for number, entry in enumerate(entries(archive), start=1):
        if number > bounds.entries:
            raise StepFailed(
                "archive_too_many_entries",
                f"The archive holds more than {bounds.entries:,} entries.",
                "Pack the checkpoint's own files only.",
            )
        if written + entry.size > most:
            raise _bomb(most)
        target = into / entry.path
        if entry.folder or entry.content is None:
            target.mkdir(parents=True, exist_ok=True)
            continue
        written += _write(entry, target, most - written)
        position = min(archive.tell(), packed_bytes)
        meter.add(position - read_before)
        read_before = position
    meter.add(packed_bytes - read_before)
    if not written:
        raise StepFailed("archive_empty", "The archive holds no files.", "Pack the checkpoint's files.")
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


def _hostile(reason: str, name: str, what: str) -> StepFailed:
    return StepFailed(reason, f"{name[:120]!r} in the archive {what}.", ANOTHER)


def _bomb(most: int) -> StepFailed:
    return StepFailed(
        "archive_bomb",
        f"The archive unpacks to more than {most / 1e9:.1f} GB, which is more than one of its size may.",
        ANOTHER,
    )


def content_root(folder: Path) -> Path:
    """The folder itself, or the only folder that is in it: archives are often made of one folder."""
    inside = [path for path in folder.iterdir() if path.name != LOCK]
    return inside[0] if len(inside) == 1 and inside[0].is_dir() else folder


def main() -> None:
    """Command line of the step."""
    plan = read_plan(__doc__)
    resource.setrlimit(resource.RLIMIT_AS, (plan["memory_bytes"], plan["memory_bytes"]))
    source = Path(plan["archive"])
    size = source.stat().st_size
    with Meter(2 * size) as meter:
        _work(plan, source, size, meter)


def _work(plan: dict[str, Any], source: Path, size: int, meter: Meter) -> None:
    sha256 = _hash(source, meter)
    place = archive_folder(Path(plan["checkpoints"]), sha256)
    facts = {"folder": str(place), "sha256": sha256, "size_bytes": size}
    if (place / MANIFEST).is_file():
        say("The same archive is unpacked already.")
        send("result", facts={**facts, "reused": True})
        return
    partial = partial_of(place)
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    try:
        _unpack_into(partial, source, plan, meter)
        publish(partial, place, {"archive": source.name, "sha256": sha256, "size_bytes": size})
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    say(f"Published {place}")
    send("result", facts=facts)


def _unpack_into(partial: Path, source: Path, plan: dict[str, Any], meter: Meter) -> None:
    bounds = Bounds(plan["max_entries"], plan["max_bytes"], plan["max_ratio"], plan["ratio_free_bytes"])
    size = source.stat().st_size
    with alone(partial):
        require_room(partial, size, plan["margin_bytes"])
        fits = Bounds(
            bounds.entries,
            min(bounds.total, _room(partial, plan["margin_bytes"])),
            bounds.ratio,
            bounds.ratio_free,
        )
        inner = partial / "content"
        inner.mkdir()
        try:
            with source.open("rb") as archive:
                written = unpack(archive, size, inner, fits, meter)
        except MemoryError as error:
            raise StepFailed(
                "archive_bomb", "A header of the archive asks for more memory than one may need.", ANOTHER
            ) from error
        say(f"{written:,} bytes unpacked from {size:,}")
        root = content_root(inner)
        for path in sorted(root.iterdir()):
            path.rename(partial / path.name)
        shutil.rmtree(inner, ignore_errors=True)


def _room(folder: Path, margin: int) -> int:
    return max(0, shutil.disk_usage(folder).free - margin)


def _hash(path: Path, meter: Meter) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            digest.update(chunk)
            meter.add(len(chunk))
    return digest.hexdigest()


if __name__ == "__main__":
    run(main)
