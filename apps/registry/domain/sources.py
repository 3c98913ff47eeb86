"""Where a checkpoint comes from: the `source` of its row and of its YAML document, and the file that it means."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from apps.core.exceptions import InvalidInput

# A file of a repository, or a pattern of names (fnmatch); only compared with names, never used as a path.
FILE = r"^[^\\\x00-\x1f]{1,255}$"
MAX_FILES = 64
KINDS = ("demo", "path", "huggingface", "archive")
# One path segment of letters, digits, dot, dash and underscore.
SEGMENT = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,95}$"

ARCHIVE_ENDINGS = (".tar", ".tar.gz", ".tgz", ".zip")
# Endings under which weights are published as pickles; .pt and .pth are PyTorch's own.
PICKLES = frozenset({".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle"})


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, str_strip_whitespace=True)


class HuggingFace(_Strict):
    """A repository of a hub, `owner/name`, at a revision. `files`: names or patterns; empty: what its form needs."""

    repo: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,95}/[A-Za-z0-9][A-Za-z0-9._-]{0,95}$")]
    revision: Annotated[str, Field(pattern=r"^[A-Za-z0-9._/-]{1,100}$")] = "main"
    files: Annotated[list[Annotated[str, Field(pattern=FILE)]], Field(max_length=MAX_FILES)] = Field(
        default_factory=list
    )


class Source(_Strict):
    """Exactly one of the four. `pickle`: weights in pickle files (.bin, .pt), which can run code, are accepted."""

    demo: Annotated[str, Field(pattern=SEGMENT)] | None = None
    path: Annotated[str, Field(min_length=1, max_length=900)] | None = None
    huggingface: HuggingFace | None = None
    archive: Annotated[str, Field(min_length=1, max_length=900)] | None = None
    pickle: bool = False

    @model_validator(mode="after")
    def _one_only(self) -> Source:
        given = [name for name in KINDS if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError("give exactly one of demo, path, huggingface and archive")
        return self

    def as_dict(self) -> dict[str, Any]:
        """The form that rows and YAML documents keep: without what was not given."""
        kept = self.model_dump(exclude_none=True)
        if not self.pickle:
            del kept["pickle"]
        if self.huggingface is not None and not self.huggingface.files:
            del kept["huggingface"]["files"]
        return kept


@dataclass(frozen=True, slots=True)
class Located:
    """The file or folder that a source means. `form` is "gguf" or "hf"."""

    path: Path
    form: str


def parse_source(data: object) -> Source:
    """Check the `source` of a checkpoint. Raises InvalidInput naming the part that is wrong."""
    if not isinstance(data, Mapping):
        raise _invalid("it is not a mapping")
    try:
        return Source.model_validate(dict(data))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise _invalid(f"{where}: {first['msg']}" if where else str(first["msg"]), where) from error


def _invalid(why: str, where: str = "") -> InvalidInput:
    return InvalidInput(
        "source_invalid",
        f"The source cannot be read: {why}.",
        field=f"source.{where}" if where else "source",
        remedy=(
            "Write one of {demo: NAME}, {path: /absolute/path}, {huggingface: {repo: OWNER/NAME}} or "
            "{archive: /absolute/path.tar.gz}."
        ),
    )


def locate(source: Source, checkpoints: Path, roots: Sequence[Path]) -> Located | None:
    """Find what a source means on this host; None where it must be fetched or unpacked first.

    `checkpoints` is the home's own folder, `roots` all folders from which paths are allowed (that one among them).
    Raises InvalidInput where nothing is there, or where the path, with all symbolic links followed, leaves the roots.
    A repository whose files somebody put into `checkpoints/OWNER--NAME` is used from there.
    """
    if source.demo is not None:
        return _demo(source.demo, checkpoints, roots)
    if source.huggingface is not None:
        return _hub(source.huggingface, checkpoints, roots)
    if source.archive is not None:
        archive_file(source.archive, roots)
        return None
    return _inside(Path(source.path or ""), roots)


def locate_path(path: Path, roots: Sequence[Path]) -> Located:
    """The file or folder at a path. Raises InvalidInput as `locate` does."""
    return _inside(path, roots)


def archive_file(path: str, roots: Sequence[Path]) -> Path:
    """The archive at a path, links followed. Raises InvalidInput (`source.archive`) where it may not be used."""
    try:
        real = _real(Path(path), roots)
    except InvalidInput as error:
        raise InvalidInput(error.code, error.sentence, field="source.archive", remedy=error.remedy) from error
    if not real.is_file() or not real.name.lower().endswith(ARCHIVE_ENDINGS):
        raise InvalidInput(
            "archive_kind_unknown",
            f"{path} is no archive that is read here.",
            field="source.archive",
            remedy=f"Name a file that ends in one of {', '.join(ARCHIVE_ENDINGS)}.",
        )
    return real


def refuse_pickles(located: Located, pickle: bool) -> None:
    """Refuse a folder whose weights are pickle files alone, unless they are accepted. Raises InvalidInput."""
    if pickle or located.form != "hf" or any(located.path.glob("*.safetensors")):
        return
    found = sorted(file.name for file in located.path.iterdir() if is_pickle(file.name))
    if found:
        raise pickle_refused(found)


def is_pickle(name: str) -> bool:
    """Whether a file of this name holds weights as a Python pickle."""
    return PurePosixPath(name).suffix.lower() in PICKLES


def pickle_refused(names: Sequence[str]) -> InvalidInput:
    """The refusal of weights in pickle files."""
    return InvalidInput(
        "pickle_refused",
        f"The weights are pickle files ({', '.join(names[:3])}), which can run code when they are loaded.",
        field="source.pickle",
        remedy="Use a repository with safetensors, or accept pickle files here if you trust their author.",
    )


def _demo(name: str, checkpoints: Path, roots: Sequence[Path]) -> Located:
    folder = checkpoints / name
    found = sorted(folder.glob("*.gguf")) if folder.is_dir() else []
    if not found:
        raise InvalidInput(
            "demo_missing",
            f"The demo checkpoint {name} is not in {checkpoints}.",
            field="source.demo",
            remedy="Run make up, which fetches it; smollm2-135m is the one there is.",
        )
    return _inside(found[0], roots)


def _hub(source: HuggingFace, checkpoints: Path, roots: Sequence[Path]) -> Located | None:
    folder = checkpoints / source.repo.replace("/", "--")
    return _inside(folder, roots) if folder.is_dir() else None


def _inside(path: Path, roots: Sequence[Path]) -> Located:
    real = _real(path, roots)
    if real.is_file():
        return Located(real, "gguf")
    if real.is_dir():
        return _folder(real, roots)
    raise _path_error("path_not_a_file", f"{path} is neither a file nor a folder.", "Name a .gguf file.")


def _real(path: Path, roots: Sequence[Path]) -> Path:
    if "\0" in str(path) or not path.is_absolute():
        raise _path_error(
            "path_not_absolute", f"{str(path)!r} is not an absolute path.", "Begin the path with /."
        )
    try:
        real = Path(os.path.realpath(path, strict=True))
    except FileNotFoundError as error:
        raise _path_error(
            "path_missing",
            f"There is nothing at {path}.",
            "Check the spelling; the file lies on the node's disk.",
        ) from error
    except OSError as error:
        raise _path_error(
            "path_unreadable", f"{path} cannot be read: {error.strerror}.", "Check it."
        ) from error
    allowed = [Path(os.path.realpath(root)) for root in roots]
    if not any(real.is_relative_to(root) for root in allowed):
        listed = ", ".join(str(root) for root in allowed)
        raise _path_error(
            "path_outside_roots",
            f"{path} lies outside the folders from which checkpoints may come ({listed}).",
            "Move it there, or have the folder added to INFLIGHT_CHECKPOINT_ROOTS.",
        )
    return real


def _folder(folder: Path, roots: Sequence[Path]) -> Located:
    files = sorted(folder.glob("*.gguf"))
    if len(files) == 1:
        return _inside(files[0], roots)
    if files:
        raise _path_error(
            "several_files",
            f"{folder} holds {len(files)} GGUF files.",
            f"Name one of them: {', '.join(file.name for file in files[:6])}.",
        )
    if (folder / "config.json").is_file():
        return Located(folder, "hf")
    raise _path_error(
        "folder_without_weights",
        f"{folder} holds neither a .gguf file nor a config.json.",
        "Name a .gguf file, or a folder in Hugging Face form.",
    )


def _path_error(code: str, sentence: str, remedy: str) -> InvalidInput:
    return InvalidInput(code, sentence, field="source.path", remedy=remedy)
