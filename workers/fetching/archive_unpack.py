"""The step that unpacks an archive of a checkpoint. The content appears under its hash by one rename, or not at all.

What is refused, and how it is unpacked, lies in registry/domain/archives.py.
"""

from __future__ import annotations

import hashlib
import resource
import shutil
from pathlib import Path
from typing import Any, BinaryIO

from apps.registry.domain import archives
from apps.registry.domain.archives import Bounds
from apps.registry.hub.folders import MANIFEST, archive_folder, partial_of
from workers.builders.llamacpp_steps.events import StepFailed, run, say, send
from workers.fetching.common import CHUNK, LOCK, Meter, alone, publish, read_plan, require_room


def unpack(archive: BinaryIO, packed_bytes: int, into: Path, bounds: Bounds, meter: Meter) -> int:
    """Write all files below `into`, which is new and empty; returns bytes written. Raises StepFailed."""
    try:
        return archives.unpack(archive, packed_bytes, into, bounds, meter.add)
    except archives.ArchiveRefused as refused:
        raise StepFailed(refused.reason, refused.sentence, refused.remedy) from refused


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
                "archive_bomb",
                "A header of the archive asks for more memory than one may need.",
                archives.ANOTHER,
            ) from error
        say(f"{written:,} bytes unpacked from {size:,}")
        root = archives.content_root(inner, LOCK)
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
