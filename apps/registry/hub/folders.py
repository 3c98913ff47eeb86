"""Folders of what was fetched: the published one, and the hidden one in which it grows. Plain Python."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterable
from pathlib import Path

# Written into each published folder, and what proves that a folder is ours to remove.
MANIFEST = ".inflight.json"
PARTIAL = ".partial"


def hub_folder(checkpoints: Path, repo: str, commit: str, files: Iterable[str]) -> Path:
    """Where files of a repository at a commit lie; the same request gives the same folder."""
    key = hashlib.sha256("\n".join(sorted(files)).encode()).hexdigest()[:8]
    return checkpoints / f"{repo.replace('/', '--')}--{commit[:12]}-{key}"


def archive_folder(checkpoints: Path, sha256: str) -> Path:
    """Where the content of an archive lies."""
    return checkpoints / f"archive--{sha256[:20]}"


def partial_of(folder: Path) -> Path:
    """The hidden folder beside it, on the same disk, in which it grows."""
    return folder.with_name(f".{folder.name}{PARTIAL}")


def remove_fetched(folder: Path, whole: bool) -> None:
    """Remove what was fetched in part, and with `whole` the published folder too, if its manifest says it is ours."""
    shutil.rmtree(partial_of(folder), ignore_errors=True)
    if whole and (folder / MANIFEST).is_file():
        # Hidden first, so that nobody reads a folder that is being removed.
        hidden = folder.with_name(f".{folder.name}.removed")
        shutil.rmtree(hidden, ignore_errors=True)
        folder.rename(hidden)
        shutil.rmtree(hidden, ignore_errors=True)
