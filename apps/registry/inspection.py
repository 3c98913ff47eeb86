"""Looking at a checkpoint's file or folder: what its row then says about it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from django.utils.translation import gettext as _

from apps.core.exceptions import Finding
from apps.registry.domain.gguf_facts import read_facts
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


def inspect(located: Located) -> Inspected:
    """Read the headers. Raises InvalidInput for a file that is not to be used, OSError where it cannot be read."""
    return _folder(located.path) if located.form == "hf" else _gguf(located.path)


def identity_of(path: Path) -> dict[str, Any]:
    """Size in bytes and time of the last change (ns) of a file. Raises OSError."""
    found = path.stat()
    return {"size": found.st_size, "mtime_ns": found.st_mtime_ns}


def _gguf(path: Path) -> Inspected:
    before = identity_of(path)
    facts, header = read_facts(path)
    sha256 = _sha256(path) if before["size"] <= HASHED_AT_ONCE else ""
    columns = facts.model_dump(exclude={"chat_template"})
    columns["identity"] = {**before, "header_sha256": header.digest}
    columns["findings"] = [finding.as_dict() for finding in _findings(facts.chat_template)]
    return Inspected("gguf", before["size"], sha256, columns, facts.chat_template or "")


def _findings(chat_template: str | None) -> list[Finding]:
    if chat_template:
        return []
    return [
        Finding(
            "chat_template_missing",
            "warning",
            _("The file has no chat template."),
            where="tokenizer.chat_template",
            remedy=_("Prompts go to the model as plain text; use an instruction-tuned file for chatting."),
        )
    ]


def _folder(path: Path) -> Inspected:
    size = sum(file.stat().st_size for file in path.iterdir() if file.is_file())
    finding = Finding(
        "needs_tensorrt_llm_builder",
        "warning",
        _("Engines from Hugging Face weights need the TensorRT-LLM builder."),
        where="config.json",
        remedy=_("Register a GGUF file of the same model to build here with llama.cpp."),
    )
    return Inspected("hf", size, "", {"findings": [finding.as_dict()]}, "")


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            digest.update(chunk)
    return digest.hexdigest()
