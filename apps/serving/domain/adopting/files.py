"""What lies in a repository's folder, and of what an instance's is made: links, and changed configurations."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from apps.core.exceptions import InvalidInput
from apps.serving.domain import pbtxt
from apps.serving.domain.adopting import settings
from apps.serving.domain.adopting.plan import Plan, read_models
from apps.serving.domain.repository import RepositoryFile

MOST_FILES = 20_000
# Larger files are told by size and time alone: reading a hundred gigabytes takes minutes.
HASHED_BYTES = 32 * 1024 * 1024
CODE_ENDINGS = (".py", ".so", ".tar", ".tar.gz", ".tgz", ".zip", ".sh")


@dataclass(frozen=True, slots=True)
class Listed:
    """One file of a repository, by its path inside it."""

    path: str
    size_bytes: int
    sha256: str | None
    modified_ns: int

    def as_dict(self) -> dict[str, Any]:
        """JSON form."""
        return {
            "path": self.path,
            "size_bytes": self.size_bytes,
            "sha256": self.sha256,
            "modified_ns": self.modified_ns,
        }

    @property
    def is_code(self) -> bool:
        """Whether the file runs, or holds something that does."""
        return self.path.lower().endswith(CODE_ENDINGS)


def listing(root: Path, allowed: Iterable[Path]) -> list[Listed]:
    """Every file below `root`, links followed. Raises InvalidInput for what leads out of the allowed folders."""
    roots = [root.resolve(), *(path.resolve() for path in allowed)]
    found: list[Listed] = []
    for folder, folders, names in os.walk(root):
        folders.sort()
        for name in folders:
            if (Path(folder) / name).is_symlink():
                raise _refused(f"{name} is a link to a folder", "Copy what it points at into the repository.")
        for name in sorted(names):
            found.append(_listed(root, Path(folder) / name, roots))
            if len(found) > MOST_FILES:
                raise _refused(f"it holds more than {MOST_FILES:,} files", "Name the repository itself.")
    return found


def _listed(root: Path, path: Path, roots: list[Path]) -> Listed:
    place = str(path.relative_to(root))
    real = path.resolve()
    if not any(real.is_relative_to(allowed) for allowed in roots):
        raise _refused(
            f"{place} leads to {real}", "Add its folder to INFLIGHT_CHECKPOINT_ROOTS, or copy the file."
        )
    if not real.is_file():
        raise _refused(f"{place} is no regular file", "Remove it.")
    stat = real.stat()
    small = stat.st_size <= HASHED_BYTES
    digest = hashlib.sha256(real.read_bytes()).hexdigest() if small else None
    return Listed(place, stat.st_size, digest, stat.st_mtime_ns)


def _refused(what: str, remedy: str) -> InvalidInput:
    return InvalidInput(
        "repository_refused", f"The repository is not taken: {what}.", field="source", remedy=remedy
    )


def fingerprint(files: Iterable[Listed]) -> str:
    """SHA-256 over paths and contents; a large file's content is told by its size and time."""
    digest = hashlib.sha256()
    for one in files:
        content = one.sha256 or f"{one.size_bytes}:{one.modified_ns}"
        digest.update(f"{one.path}\0{content}\n".encode())
    return digest.hexdigest()


def rendered(
    root: Path, plan: Plan, name: str, profile: Mapping[str, Any], defaults: Mapping[str, Any]
) -> dict[str, str]:
    """Text of each config.pbtxt that Triton will read, by its path in the repository.

    The model that answers is called `name`. A configuration that neither that nor the profile changes stays as it is,
    letter for letter.
    """
    models = read_models(root)
    found = {}
    for model in plan.needed:
        read, shown = models[model].read, name if model == plan.entry else model
        text = read.text
        if read.config is not None:
            config = pbtxt.ModelConfig()
            config.CopyFrom(read.config)
            if model == plan.tuned:
                settings.apply(config, models[model].kind, profile, defaults)
            if config.name and config.name != shown:
                config.name = shown
            text = text if config == read.config else pbtxt.render(config)
        found[f"{shown}/{pbtxt.FILE_NAME}"] = text
    return found


def instance_files(
    root: Path, plan: Plan, name: str, profile: Mapping[str, Any], defaults: Mapping[str, Any]
) -> tuple[RepositoryFile, ...]:
    """The files of an instance's repository: its configurations, and links to everything else."""
    texts = rendered(root, plan, name, profile, defaults)
    files = [RepositoryFile(path, text.encode()) for path, text in texts.items()]
    for model in plan.needed:
        shown = name if model == plan.entry else model
        for folder, folders, names in os.walk(root / model):
            inside = Path(folder).relative_to(root / model)
            if not names and not folders:
                files.append(RepositoryFile(str(Path(shown) / inside) + "/", b""))
            files += [
                RepositoryFile(str(Path(shown) / inside / one), b"", link=str((Path(folder) / one).resolve()))
                for one in sorted(names)
                if inside != Path() or one != pbtxt.FILE_NAME
            ]
    return tuple(files)
