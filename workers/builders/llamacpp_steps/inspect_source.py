"""First stage: the checkpoint is still what was registered, it is sound, and its engine fits on the disk."""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
from pathlib import Path

from apps.registry.domain.gguf_reader import Header, read_header
from workers.builders.llamacpp_steps.events import Progress, StepFailed, fail_disk_full, run, say, send
from workers.builders.llamacpp_steps.plan import plan_tensors

CHUNK = 4 * 1024 * 1024
# Left free beside the engine for logs and the database.
RESERVE_BYTES = 256 * 1024 * 1024


def main() -> None:
    """Command line of the stage."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--source", type=Path, required=True)
    parser.add_argument("--identity", required=True, help="JSON: what the registered content is known by")
    parser.add_argument("--type", required=True)
    parser.add_argument("--work", type=Path, required=True)
    options = parser.parse_args()
    inspect(options.source, json.loads(options.identity), options.type, options.work)


def inspect(source: Path, identity: dict[str, str | int], kind: str, work: Path) -> None:
    """Check header, identity and disk; sends sha256 and size of the source."""
    found = source.stat()
    if not identity.get("sha256"):
        _compare("size", identity.get("size"), found.st_size, source)
        _compare("time of change", identity.get("mtime_ns"), found.st_mtime_ns, source)
    header = read_header(source)
    targets = plan_tensors(header, kind)
    needed = sum(target.size for target in targets) + header.data_start
    work.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(work).free
    say(
        f"GGUF {header.version}, {len(targets)} tensors, {found.st_size} bytes; the engine takes {needed} bytes"
    )
    if free < needed + RESERVE_BYTES:
        fail_disk_full(work, needed + RESERVE_BYTES, free)
    digest = _sha256(source, found.st_size)
    if identity.get("sha256"):
        _compare("SHA-256", identity["sha256"], digest, source)
    send(
        "result",
        facts={"sha256": digest, "size_bytes": found.st_size, "engine_bytes": needed, **_names(header)},
    )


def _compare(what: str, registered: object, found: object, source: Path) -> None:
    if registered != found:
        raise StepFailed(
            "checkpoint_changed",
            f"{source.name} is no longer what was registered: its {what} is {found}, not {registered}.",
            "Inspect the checkpoint again, then start a new build.",
        )


def _names(header: Header) -> dict[str, object]:
    return {"architecture": header.get("general.architecture"), "gguf_version": header.version}


def _sha256(path: Path, size: int) -> str:
    digest, progress = hashlib.sha256(), Progress(size)
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            digest.update(chunk)
            progress.add(len(chunk))
    return digest.hexdigest()


if __name__ == "__main__":
    run(main)
