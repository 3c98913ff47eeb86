"""Where a checkpoint comes from: the `source` of its row and of its YAML document, and the file that it means."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from apps.core.exceptions import InvalidInput

# One path segment of letters, digits, dot, dash and underscore.
SEGMENT = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,95}$"


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, str_strip_whitespace=True)


class HuggingFace(_Strict):
    """A repository of a hub, `owner/name`, at a revision."""

    repo: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,95}/[A-Za-z0-9][A-Za-z0-9._-]{0,95}$")]
    revision: Annotated[str, Field(pattern=r"^[A-Za-z0-9._/-]{1,100}$")] = "main"


class Source(_Strict):
    """Exactly one of the three."""

    demo: Annotated[str, Field(pattern=SEGMENT)] | None = None
    path: Annotated[str, Field(min_length=1, max_length=900)] | None = None
    huggingface: HuggingFace | None = None

    @model_validator(mode="after")
    def _one_only(self) -> Source:
        given = [name for name in ("demo", "path", "huggingface") if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError("give exactly one of demo, path and huggingface")
        return self

    def as_dict(self) -> dict[str, Any]:
        """The form that rows and YAML documents keep: without what was not given."""
        return self.model_dump(exclude_none=True)


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
        remedy="Write one of {demo: NAME}, {path: /absolute/path} or {huggingface: {repo: OWNER/NAME}}.",
    )


def locate(source: Source, checkpoints: Path, roots: Sequence[Path]) -> Located:
    """Find what a source means on this host.

    `checkpoints` is the home's own folder, `roots` all folders from which paths are allowed (that one among them).
    Raises InvalidInput where nothing is there, or where the path, with all symbolic links followed, leaves the roots.
    """
    if source.demo is not None:
        return _demo(source.demo, checkpoints, roots)
    if source.huggingface is not None:
        return _hub(source.huggingface, checkpoints, roots)
    return _inside(Path(source.path or ""), roots)


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


def _hub(source: HuggingFace, checkpoints: Path, roots: Sequence[Path]) -> Located:
    folder = checkpoints / source.repo.replace("/", "--")
    if not folder.is_dir():
        raise InvalidInput(
            "hub_unavailable",
            f"{source.repo} is not on this host, and this installation fetches nothing from a hub.",
            field="source.huggingface",
            remedy=f"Put its files into {folder}, or register a file by its path.",
        )
    return _inside(folder, roots)


def _inside(path: Path, roots: Sequence[Path]) -> Located:
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
    if real.is_file():
        return Located(real, "gguf")
    if real.is_dir():
        return _folder(real, roots)
    raise _path_error("path_not_a_file", f"{path} is neither a file nor a folder.", "Name a .gguf file.")


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
