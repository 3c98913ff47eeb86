"""Looking at a checkpoint's file or folder: what its row then says about it."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from django.utils.translation import gettext as _

from apps.core.exceptions import Finding, InvalidInput
from apps.registry.domain.checkpoint_reader import Found, read_checkpoint
from apps.registry.domain.sources import Located

# Files up to this size are hashed when they are registered (under a second); of larger ones the header's SHA-256,
# the size and the time of the last change stand for the content until a build hashes them.
HASHED_AT_ONCE = 512 * 1024 * 1024
CHUNK = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Inspected:
    """Columns of a checkpoint that was found good."""

    form: str
    size_bytes: int
    sha256: str
    facts: dict[str, Any]
    chat_template: str


class Refusal(InvalidInput):
    """A checkpoint whose facts are known and that is not to be used; `found` are the columns that it would have."""

    def __init__(self, error: Finding, findings: tuple[Finding, ...], found: Inspected | None) -> None:
        super().__init__(
            error.id, error.message, remedy=error.remedy, field=error.where or "source", findings=findings
        )
        self.found = found


def inspect(located: Located) -> Inspected:
    """Read the headers. Raises Refusal for a file or folder that is not to be used, OSError where it is gone."""
    before = identity_of(located.path)
    found = read_checkpoint(located.path)
    columns = (
        _hugging_face(found, located.path) if found.facts.form == "hf" else _gguf(found, before, located)
    )
    errors = found.facts.errors()
    if errors:
        known = found.facts.family is not None or found.facts.num_layers is not None
        raise Refusal(errors[0], found.facts.findings, columns if known else None)
    return columns


def identity_of(path: Path) -> dict[str, Any]:
    """Size in bytes and time of the last change (ns) of a file. Raises OSError."""
    found = path.stat()
    return {"size": found.st_size, "mtime_ns": found.st_mtime_ns}


def _gguf(found: Found, before: dict[str, Any], located: Located) -> Inspected:
    size: int = before["size"]
    good = found.header is not None
    sha256 = _sha256(located.path) if good and size <= HASHED_AT_ONCE else ""
    columns = found.facts.model_dump(mode="json")
    columns["identity"] = {**before, "header_sha256": found.header.digest if found.header else ""}
    return Inspected("gguf", size, sha256, columns, found.chat_template or "")


def _hugging_face(found: Found, path: Path) -> Inspected:
    columns = found.facts.model_dump(mode="json")
    builder = Finding(
        "needs_tensorrt_llm_builder",
        "info",
        _("Engines from Hugging Face weights need the TensorRT-LLM builder."),
        where="config.json",
        remedy=_("Register a GGUF file of the same model to build here with llama.cpp."),
    )
    columns["findings"].append(builder.as_dict())
    columns["identity"] = folder_identity(path)
    return Inspected("hf", found.size_bytes, "", columns, found.chat_template or "")


def folder_identity(folder: Path) -> dict[str, Any]:
    """What tells a folder's content from another: number and bytes of its files, and a digest of their list."""
    digest, size, count = hashlib.sha256(), 0, 0
    if not folder.is_dir():
        return identity_of(folder)
    with os.scandir(folder) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            if entry.is_file():
                found = entry.stat()
                digest.update(
                    f"{entry.name}\0{found.st_size}\0{found.st_mtime_ns}\n".encode("utf-8", "replace")
                )
                size, count = size + found.st_size, count + 1
    return {"size": size, "files": count, "listing_sha256": digest.hexdigest()}


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            digest.update(chunk)
    return digest.hexdigest()
