"""A model repository on disk as Triton's poll sees it: which folders are models, their files and versions."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from apps.core.exceptions import InvalidInput
from apps.serving.domain import pbtxt

# Triton reads the digits at the beginning of a version folder's name, whatever follows.
_VERSION = re.compile(r"\d+")
LARGEST_TEXT = 4 * 1024 * 1024
MOST_MODELS = 2000


@dataclass(frozen=True, slots=True)
class ModelFolder:
    """One subfolder. `versions` maps a version's number to its folder; `odd_versions` are names such as 1.bak.

    `text` is config.pbtxt, None where there is none; `problem` says why it could not be read.
    """

    name: str
    path: Path
    text: str | None = None
    problem: str = ""
    versions: dict[int, Path] = field(default_factory=dict)
    odd_versions: tuple[str, ...] = ()

    @property
    def is_model(self) -> bool:
        """Whether Triton could make a model of it."""
        return self.text is not None or bool(self.problem) or bool(self.versions)

    @property
    def newest(self) -> Path | None:
        """The folder of the highest version."""
        return self.versions[max(self.versions)] if self.versions else None

    def file(self, name: str) -> Path | None:
        """A file of the newest version; None where it is missing."""
        found = self.newest / name if self.newest else None
        return found if found is not None and found.is_file() else None


def read_repository(path: Path) -> tuple[list[ModelFolder], bool]:
    """Every subfolder of a repository, by name, and whether it is a repository (False: one model's own folder).

    A file config.pbtxt, or the folder of one model, is read as a repository of that one. Raises InvalidInput where
    there is nothing to read.
    """
    if path.is_file():
        return [_lone_file(path)], False
    if not path.is_dir():
        raise InvalidInput(
            "repository_missing",
            f"{path} is neither a folder nor a file.",
            field="path",
            remedy="Name the folder that is given to tritonserver as --model-repository.",
        )
    if (path / pbtxt.FILE_NAME).exists():
        return [_read(path)], False
    with os.scandir(path) as entries:
        names = sorted(entry.name for entry in entries if entry.is_dir())
    if not names:
        raise InvalidInput(
            "repository_empty",
            f"{path} has no subfolder, so there is no model in it.",
            field="path",
            remedy="A repository holds one folder for each model, with config.pbtxt and a version folder.",
        )
    if len(names) > MOST_MODELS:
        raise InvalidInput(
            "repository_too_large",
            f"{path} has {len(names)} subfolders; at most {MOST_MODELS} are checked.",
            field="path",
            remedy="Name the model repository itself, not a folder above it.",
        )
    return [_read(path / name) for name in names], True


def read_text(path: Path) -> str:
    """Text of a small regular file. Raises OSError or ValueError saying why not."""
    if not path.is_file():
        raise ValueError("it is not a regular file")
    if path.stat().st_size > LARGEST_TEXT:
        raise ValueError(f"it is larger than {LARGEST_TEXT} bytes")
    try:
        return path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"it is not UTF-8 (byte {error.start})") from error


def _lone_file(path: Path) -> ModelFolder:
    name = path.parent.name if path.name == pbtxt.FILE_NAME else ""
    return _with_text(ModelFolder(name, path.parent), path)


def _read(path: Path) -> ModelFolder:
    versions: dict[int, Path] = {}
    odd: list[str] = []
    for name in _subfolders(path):
        if name in pbtxt.NOT_A_MODEL or (digits := _VERSION.match(name)) is None:
            continue
        if digits[0] != name or name.startswith("0"):
            odd.append(name)
        versions.setdefault(int(digits[0]), path / name)
    folder = ModelFolder(path.name, path, versions=versions, odd_versions=tuple(odd))
    config = path / pbtxt.FILE_NAME
    return _with_text(folder, config) if config.exists() or config.is_symlink() else folder


def _subfolders(path: Path) -> Iterator[str]:
    try:
        with os.scandir(path) as entries:
            yield from sorted(entry.name for entry in entries if entry.is_dir())
    except OSError:
        return


def _with_text(folder: ModelFolder, path: Path) -> ModelFolder:
    text, problem = None, ""
    try:
        text = read_text(path)
    except (OSError, ValueError) as error:
        problem = (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
    return ModelFolder(folder.name, folder.path, text, problem, folder.versions, folder.odd_versions)
