"""Which files of a hub's repository make a checkpoint. Plain Python: the fetching child process uses it too."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from pathlib import PurePosixPath
from typing import Any

from apps.core.exceptions import InvalidInput
from apps.registry.domain.sources import is_pickle, pickle_refused

# Beside the weights: configuration, tokenizer, chat template, vocabulary. Code (.py) is never fetched.
SIDE_ENDINGS = frozenset({".json", ".txt", ".model", ".jinja", ".tiktoken", ".spm"})
SIDE_NAMES = re.compile(r"^(LICEN[CS]E|NOTICE|USE_POLICY|README)(\..*)?$", re.IGNORECASE)
SIDE_MAX_BYTES = 200_000_000
SHARD = re.compile(r"-\d{5}-of-\d{5}\.gguf$", re.IGNORECASE)
# Weights of the vision half of a GGUF repository; no language model by themselves.
PROJECTOR = re.compile(r"^mmproj", re.IGNORECASE)
LONGEST_NAME, DEEPEST = 255, 8
SHOWN = 100


@dataclass(frozen=True, slots=True)
class RepoFile:
    """One file of a repository at a commit: bytes, `sha256` of what Git LFS keeps, else `blob` (git's SHA-1)."""

    name: str
    size: int
    sha256: str = ""
    blob: str = ""
    # Name under which it lies in the checkpoint's folder.
    local: str = ""

    def as_dict(self) -> dict[str, Any]:
        """JSON form."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Selection:
    """What is fetched. `form` is "hf" or "gguf", as the row's."""

    form: str
    files: tuple[RepoFile, ...]

    @property
    def total(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files)


def choose(listing: Sequence[RepoFile], patterns: Sequence[str] = (), pickle: bool = False) -> Selection:
    """The files to fetch of all that a repository has.

    `patterns` are names or fnmatch patterns of weights; without any, safetensors come before a single GGUF file.
    Raises InvalidInput; `choose_files` carries facts {"choices": [{name, size_bytes}]}.
    """
    named = _named(listing, patterns)
    ggufs = [file for file in (named or listing) if _is_gguf(file) and not PROJECTOR.match(_base(file))]
    if named:
        found = _gguf(ggufs, named) if ggufs else _folder(listing, named, pickle)
    elif any(_is_safetensors(file) for file in _roots(listing)) or not ggufs:
        found = _folder(listing, [], pickle)
    else:
        found = _gguf(ggufs, listing)
    for file in found.files:
        _check_name(file.name)
    return found


def _named(listing: Sequence[RepoFile], patterns: Sequence[str]) -> list[RepoFile]:
    for pattern in patterns:
        if not any(fnmatchcase(file.name, pattern) for file in listing):
            raise InvalidInput(
                "files_not_found",
                f"The repository has no file {pattern} at this revision.",
                field="source.huggingface.files",
                remedy="Choose from its files: see them on the checkpoint's page.",
                facts={"choices": _choices(_weights(listing))},
            )
    return [file for file in listing if any(fnmatchcase(file.name, pattern) for pattern in patterns)]


def _gguf(ggufs: Sequence[RepoFile], among: Sequence[RepoFile]) -> Selection:
    whole = [file for file in ggufs if not SHARD.search(file.name)]
    if not whole:
        raise InvalidInput(
            "gguf_sharded",
            f"{ggufs[0].name} is one part of several; GGUF files in parts are not read here.",
            field="source.huggingface.files",
            remedy="Choose a type that is published as one file, or join the parts by llama.cpp and name the file.",
            facts={"choices": _choices(whole)},
        )
    if len(whole) > 1:
        raise InvalidInput(
            "choose_files",
            f"The repository holds {len(whole)} GGUF files.",
            field="source.huggingface.files",
            remedy="Choose one of them.",
            facts={"choices": _choices(whole)},
        )
    chosen = whole[0]
    # One folder, one file: where it lay in the repository is of no use here.
    return Selection("gguf", (_as(chosen, _base(chosen)),))


def _folder(listing: Sequence[RepoFile], named: Sequence[RepoFile], pickle: bool) -> Selection:
    weights = [file for file in named if file in _weights(named)] or _default_weights(listing, pickle)
    pickles = [file.name for file in weights if is_pickle(file.name)]
    if pickles and not pickle:
        raise pickle_refused(pickles)
    files = {
        file.name: file for file in [*_sides(listing, bool(pickles)), *filter(_is_data, named), *weights]
    }
    if "config.json" not in files:
        raise InvalidInput(
            "no_config",
            "The repository has no config.json beside its weights.",
            field="source.huggingface",
            remedy="Choose a repository in Hugging Face's transformers form, or one with GGUF files.",
        )
    return Selection("hf", tuple(_as(files[name], name) for name in sorted(files)))


def _default_weights(listing: Sequence[RepoFile], pickle: bool) -> list[RepoFile]:
    root = _roots(listing)
    safe = [file for file in root if _is_safetensors(file)]
    # Some vendors publish the same weights twice, once in the form of their own program.
    usual = [file for file in safe if not file.name.startswith("consolidated")]
    if safe:
        return usual or safe
    pickles = [file for file in root if is_pickle(file.name) and not file.name.startswith("training_args")]
    if pickles and not pickle:
        raise pickle_refused([file.name for file in pickles])
    if pickles:
        return [file for file in pickles if not file.name.startswith("consolidated")] or pickles
    raise InvalidInput(
        "no_weights",
        "The repository holds no weights that are read here.",
        field="source.huggingface",
        remedy="Choose a repository with .safetensors or .gguf files.",
    )


def _sides(listing: Sequence[RepoFile], pickles: bool) -> list[RepoFile]:
    """Small files of the root that belong to every checkpoint; the index of weights that stay away does not."""
    return [
        file
        for file in _roots(listing)
        if file.size <= SIDE_MAX_BYTES
        and _is_data(file)
        and (pickles or not file.name.endswith(".bin.index.json"))
    ]


def _is_data(file: RepoFile) -> bool:
    return PurePosixPath(file.name).suffix.lower() in SIDE_ENDINGS or bool(SIDE_NAMES.match(_base(file)))


def _weights(files: Sequence[RepoFile]) -> list[RepoFile]:
    return [file for file in files if _is_safetensors(file) or _is_gguf(file) or is_pickle(file.name)]


def _roots(listing: Sequence[RepoFile]) -> list[RepoFile]:
    return [file for file in listing if "/" not in file.name]


def _is_gguf(file: RepoFile) -> bool:
    return file.name.lower().endswith(".gguf")


def _is_safetensors(file: RepoFile) -> bool:
    return file.name.lower().endswith(".safetensors")


def _base(file: RepoFile) -> str:
    return PurePosixPath(file.name).name


def _as(file: RepoFile, local: str) -> RepoFile:
    return RepoFile(file.name, file.size, file.sha256, file.blob, local)


def _choices(files: Sequence[RepoFile]) -> list[dict[str, Any]]:
    ordered = sorted(files, key=lambda file: (file.size, file.name))
    return [{"name": file.name, "size_bytes": file.size} for file in ordered[:SHOWN]]


def _check_name(name: str) -> None:
    """A listing comes from outside: its names become paths here."""
    parts = name.split("/")
    if (
        len(name) > LONGEST_NAME
        or len(parts) > DEEPEST
        or any(part in {"", ".", ".."} or part.startswith(".inflight") for part in parts)
        or re.search(r"[\\\x00-\x1f\x7f]", name)
    ):
        raise InvalidInput(
            "hub_unsafe_name",
            f"The repository lists a file whose name cannot be used here: {name[:80]!r}.",
            field="source.huggingface",
            remedy="Do not use this repository or mirror.",
        )
