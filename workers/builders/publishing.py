"""What every builder's last step does: hash, write the manifest, sync, and make the engine visible by one rename."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from workers.builders.llamacpp_steps.events import Progress, StepFailed, say, send

MANIFEST = "manifest.json"
# A kept stage's own manifest, which may lie in the folder that is published.
STAGE = "stage.json"
CHUNK = 4 * 1024 * 1024


def publish(
    artefact: Path, plan: dict[str, Any], engines: Path, fingerprint: str, versions: dict[str, str]
) -> None:
    """Give the folder its manifest and its place; where somebody was first, theirs is used."""
    engines.mkdir(parents=True, exist_ok=True)
    place = engines / fingerprint
    if whole(place, fingerprint):
        say("The same engine was published meanwhile; it is used.")
        send("result", facts={"reused": True})
        return
    files = _hashed(artefact)
    manifest = {
        **plan,
        "format": 1,
        "fingerprint": fingerprint,
        "files": files,
        "versions": {**plan.get("versions", {}), **versions},
        "built_at": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    _write_synced(artefact / MANIFEST, json.dumps(manifest, indent=2, sort_keys=True) + "\n")
    reused = not _move(artefact, place, fingerprint)
    _sync_folder(engines)
    (place / STAGE).unlink(missing_ok=True)
    say(f"{'Used' if reused else 'Published'} {place}")
    send("result", facts={"reused": reused})


def whole(place: Path, fingerprint: str) -> bool:
    """Whether an engine lies there with its manifest and all files at their sizes."""
    try:
        manifest = json.loads((place / MANIFEST).read_text())
        return bool(manifest["fingerprint"] == fingerprint) and all(
            (place / file["name"]).stat().st_size == file["size_bytes"] for file in manifest["files"]
        )
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _move(artefact: Path, place: Path, fingerprint: str) -> bool:
    """Rename into place; False where a whole engine is there already. A broken one is put aside first."""
    for _try in range(2):
        try:
            artefact.rename(place)
            return True
        except OSError as error:
            if error.errno == errno.EXDEV:
                artefact = _carry_over(artefact, place)
                continue
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                raise
            if whole(place, fingerprint):
                return False
            broken = place.with_name(f".broken-{fingerprint[:12]}-{os.getpid()}")
            place.rename(broken)
            shutil.rmtree(broken, ignore_errors=True)
    raise StepFailed(
        "publish_contended",
        f"{place} is being written by somebody else.",
        "Try again; look for a second installation that uses the same folder.",
    )


def _carry_over(artefact: Path, place: Path) -> Path:
    """Copy to the engines' own disk under a hidden name; only then one rename makes it visible."""
    hidden = place.with_name(f".incoming-{place.name[:12]}-{os.getpid()}")
    try:
        shutil.copytree(artefact, hidden)
        for file in _files(hidden):
            with file.open("rb") as opened:
                os.fsync(opened.fileno())
    except BaseException:
        shutil.rmtree(hidden, ignore_errors=True)
        raise
    return hidden


def _hashed(folder: Path) -> list[dict[str, object]]:
    paths = _files(folder)
    progress = Progress(sum(path.stat().st_size for path in paths))
    found: list[dict[str, object]] = []
    for path in paths:
        digest = hashlib.sha256()
        with path.open("rb") as file:
            while chunk := file.read(CHUNK):
                digest.update(chunk)
                progress.add(len(chunk))
            os.fsync(file.fileno())
        name = path.relative_to(folder).as_posix()
        found.append({"name": name, "size_bytes": path.stat().st_size, "sha256": digest.hexdigest()})
    return found


def _files(folder: Path) -> list[Path]:
    own = {folder / MANIFEST, folder / STAGE}
    return sorted(path for path in folder.rglob("*") if path.is_file() and path not in own)


def _write_synced(path: Path, text: str) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
