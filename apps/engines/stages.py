"""Outputs of finished stages, kept by what they were made from, so that a later attempt or build need not make them.

    <home>/stages/<key>/          what the stage left
    <home>/stages/<key>/stage.json  its completion manifest, written last

A folder without a whole manifest counts for nothing. `key` is a hash of the stage's inputs, so that a quantised
checkpoint serves every build that asks for the same one. The manifest's time is its last use.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from django.conf import settings

from apps.engines.domain.build_spec import canonical

MANIFEST = "stage.json"
PINNED = "pinned"
FORMAT = 1
# Long enough for a person to come back to a failed build, short enough that disks do not fill with checkpoints.
KEPT_SECONDS = 7 * 86_400.0
# A stage in use is touched when its build begins; a build runs a day at most.
IN_USE_SECONDS = 2 * 86_400.0


@dataclass(frozen=True, slots=True)
class Stage:
    """A finished stage. `size_bytes` is of its files, `used_at` its last use in seconds since 1970."""

    key: str
    path: Path
    name: str
    size_bytes: int
    used_at: float
    pinned: bool
    build: int | None
    facts: dict[str, Any]
    seconds: float | None


def stages_folder() -> Path:
    """Folder of all kept stages."""
    return Path(settings.INFLIGHT_HOME) / "stages"


def stage_folder(key: str) -> Path:
    """Folder of one stage."""
    return stages_folder() / key


def stage_key(inputs: Mapping[str, Any]) -> str:
    """Name of the stage that has these inputs."""
    return hashlib.sha256(canonical(dict(inputs)).encode()).hexdigest()


def find_stage(key: str) -> Stage | None:
    """The stage if it is there and whole: its manifest can be read and every file has its size."""
    folder = stage_folder(key)
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        files = {str(file["name"]): int(file["size_bytes"]) for file in manifest["files"]}
        whole = manifest["key"] == key and all(
            (folder / name).stat().st_size == size for name, size in files.items()
        )
        if not whole:
            return None
        return Stage(
            key=key,
            path=folder,
            name=str(manifest["name"]),
            size_bytes=sum(files.values()),
            used_at=(folder / MANIFEST).stat().st_mtime,
            pinned=(folder / PINNED).exists(),
            build=manifest.get("build"),
            facts=dict(manifest.get("facts") or {}),
            seconds=manifest.get("seconds"),
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None


def use_stage(key: str) -> Stage | None:
    """The stage, marked as used now."""
    found = find_stage(key)
    if found is not None:
        with contextlib.suppress(OSError):
            os.utime(found.path / MANIFEST)
    return found


def keep_stage(
    key: str, name: str, made: Path, *, build: int, facts: Mapping[str, Any], seconds: float
) -> Stage:
    """Move a finished stage's folder to its place, synced and with its manifest; another's that was first is used.

    Raises OSError.
    """
    place = stage_folder(key)
    place.parent.mkdir(parents=True, exist_ok=True)
    files = [
        {"name": path.relative_to(made).as_posix(), "size_bytes": path.stat().st_size}
        for path in _files(made)
    ]
    for path in _files(made):
        _sync(path)
    manifest = {
        "format": FORMAT,
        "key": key,
        "name": name,
        "build": build,
        "files": files,
        "facts": dict(facts),
        "seconds": seconds,
        "finished_at": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    (made / MANIFEST).write_text(json.dumps(manifest, indent=1), encoding="utf-8")
    _sync(made / MANIFEST)
    _sync(made)
    _place(made, place, key)
    _sync(place.parent)
    kept = find_stage(key)
    if kept is None:
        raise OSError(errno.EIO, "the stage that was just kept is not whole", str(place))
    return kept


def kept_stages() -> list[Stage]:
    """All whole stages, longest unused first."""
    folder = stages_folder()
    keys = [path.name for path in folder.iterdir() if path.is_dir()] if folder.is_dir() else []
    found = [stage for stage in map(find_stage, keys) if stage is not None]
    return sorted(found, key=lambda stage: stage.used_at)


def remove_stage(key: str) -> bool:
    """Remove a stage, whole or not: out of the way by one rename first. False where there was none."""
    place = stage_folder(key)
    doomed = place.with_name(f".removed-{key[:12]}-{os.getpid()}")
    try:
        place.rename(doomed)
    except OSError:
        return False
    shutil.rmtree(doomed, ignore_errors=True)
    return True


def set_pinned(key: str, pinned: bool) -> None:
    """Keep a stage from clean-ups, or let it go. Raises OSError where there is none."""
    mark = stage_folder(key) / PINNED
    if pinned:
        mark.touch()
    else:
        mark.unlink(missing_ok=True)


def sweep_stages(now: float | None = None) -> int:
    """Remove what is unused for a week and not pinned, and remains of whoever died while they moved something."""
    folder = stages_folder()
    if not folder.is_dir():
        return 0
    moment = time.time() if now is None else now
    removed = 0
    for path in folder.iterdir():
        age = moment - _used_at(path)
        if path.name.startswith("."):
            if age > IN_USE_SECONDS:
                shutil.rmtree(path, ignore_errors=True)
        elif age > KEPT_SECONDS and not (path / PINNED).exists():
            removed += remove_stage(path.name)
    return removed


def _used_at(path: Path) -> float:
    for candidate in (path / MANIFEST, path):
        with contextlib.suppress(OSError):
            return candidate.stat().st_mtime
    return time.time()


def _place(made: Path, place: Path, key: str) -> None:
    for _try in range(2):
        try:
            made.rename(place)
            return
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                raise
            if find_stage(key) is not None:
                shutil.rmtree(made, ignore_errors=True)
                return
            remove_stage(key)
    raise OSError(errno.EBUSY, "the stage is being written by somebody else", str(place))


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != MANIFEST)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
