"""All facts of a checkpoint on disk: a config.json, a folder in Hugging Face form, or a GGUF file.

Nothing that is found there raises: what cannot be read is a finding of severity error, and the facts say None.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from apps.core.exceptions import Finding, InvalidInput
from apps.registry.domain import safetensors_headers
from apps.registry.domain.gguf_facts import read_facts
from apps.registry.domain.gguf_model import model_facts
from apps.registry.domain.gguf_reader import Header
from apps.registry.domain.json_input import read_object
from apps.registry.domain.model_config import facts_of
from apps.registry.domain.model_facts import ModelFacts
from apps.registry.domain.regular_files import clean_text
from apps.registry.domain.tokenizer_facts import TokenizerFacts, read_tokenizer

CONFIG = "config.json"
QUANT = "hf_quant_config.json"
MAX_ENTRIES = 20_000
PICKLES = (".bin", ".pt", ".pth", ".ckpt")


@dataclass(frozen=True, slots=True)
class Found:
    """What a path holds: its facts, the size in bytes of its files, a chat template, and the header of a GGUF."""

    facts: ModelFacts
    size_bytes: int = 0
    chat_template: str | None = None
    header: Header | None = None


def read_checkpoint(path: Path) -> Found:
    """Facts of whatever is at a path. Never raises for what the files hold."""
    try:
        found = path.stat()
    except OSError as error:
        return _refused("unreadable", f"{path} cannot be read: {error.strerror or error}.", "Check the path.")
    except ValueError:
        return _refused("unreadable", "The path cannot be one of a file.", "Check the path.")
    if stat.S_ISDIR(found.st_mode):
        return _folder(path)
    if not stat.S_ISREG(found.st_mode):
        return _refused(
            "not_a_file", f"{path.name} is neither a file nor a folder.", "Name a file or a folder."
        )
    if path.name.endswith(".json"):
        return _config(path, None, [])
    return _gguf(path)


def _refused(code: str, sentence: str, remedy: str, form: str = "hf") -> Found:
    finding = Finding(code, "error", clean_text(sentence), remedy=clean_text(remedy))
    return Found(ModelFacts(form=form, findings=(finding,)))


def _gguf(path: Path) -> Found:
    try:
        facts, header = read_facts(path)
    except InvalidInput as error:
        return _refused(error.code, error.sentence, error.remedy, "gguf")
    except OSError as error:
        return _refused(
            "unreadable", f"{path.name} cannot be read: {error.strerror or error}.", "Check it.", "gguf"
        )
    return Found(model_facts(facts, header), header.size, facts.chat_template, header)


def _folder(folder: Path) -> Found:
    try:
        with os.scandir(folder) as entries:
            names = [entry.name for entry, _ in zip(entries, range(MAX_ENTRIES), strict=False)]
    except OSError as error:
        return _refused(
            "unreadable", f"{folder.name} cannot be read: {error.strerror or error}.", "Check it."
        )
    ggufs = sorted(name for name in names if name.endswith(".gguf"))
    if CONFIG in names:
        return _config(folder / CONFIG, folder, names)
    if len(ggufs) == 1:
        return read_checkpoint(folder / ggufs[0])
    if ggufs:
        return _refused(
            "several_files",
            f"The folder holds {len(ggufs)} GGUF files.",
            f"Name one of them: {', '.join(ggufs[:6])}.",
            "gguf",
        )
    if "adapter_config.json" in names:
        return _refused(
            "adapter_only", "The folder holds a LoRA adapter, not a model.", "Name the model that it adapts."
        )
    return _refused(
        "folder_without_weights",
        "The folder holds neither a config.json nor a GGUF file.",
        "Name a folder in Hugging Face form, or a .gguf file.",
    )


def _config(path: Path, folder: Path | None, names: list[str]) -> Found:
    findings: list[Finding] = []
    try:
        document = read_object(path)
    except InvalidInput as error:
        return _refused(error.code, error.sentence, error.remedy)
    findings.extend(document.findings)
    if folder is None:
        return Found(facts_of(document.data, findings=findings))
    facts = facts_of(document.data, quantization=_quant(folder, names, findings), findings=findings)
    tokenizer = read_tokenizer(folder, names, document.data, findings)
    _check_tokens(facts, tokenizer, findings)
    update = _weights(folder, names, facts, findings)
    update |= {
        "tokenizer": tokenizer.tokenizer,
        "bos_token": tokenizer.bos_token,
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token": tokenizer.eos_token,
        "eos_token_ids": tokenizer.eos_token_ids,
        "add_bos": tokenizer.add_bos,
        "findings": tuple(findings),
    }
    return Found(facts.model_copy(update=update), _size(folder, names), tokenizer.chat_template)


def _quant(folder: Path, names: list[str], findings: list[Finding]) -> dict[str, Any] | None:
    if QUANT not in names:
        return None
    try:
        document = read_object(folder / QUANT)
    except InvalidInput as error:
        findings.append(Finding(error.code, "error", error.sentence, QUANT, error.remedy))
        return None
    findings.extend(document.findings)
    return document.data


def _check_tokens(facts: ModelFacts, tokenizer: TokenizerFacts, findings: list[Finding]) -> None:
    if tokenizer.chat_template is None:
        findings.append(
            Finding(
                "chat_template_missing",
                "warning",
                "The checkpoint has no chat template.",
                "tokenizer_config.json",
                "Prompts go to the model as plain text; use an instruction-tuned checkpoint for chatting.",
            )
        )
    highest, vocab = tokenizer.highest_id, facts.vocab_size
    if highest is not None and vocab is not None and highest >= vocab:
        findings.append(
            Finding(
                "token_outside_vocabulary",
                "warning",
                f"The tokenizer has a token {highest}, the model's vocabulary ends at {vocab - 1}.",
                "tokenizer_config.json",
                "Take tokenizer and weights from the same revision.",
            )
        )


def _weights(folder: Path, names: list[str], facts: ModelFacts, findings: list[Finding]) -> dict[str, Any]:
    """What the headers of the weights say: bytes, dtypes, and the number of weights where no formula knows it."""
    bits = facts.quantization.bits if facts.quantization else None
    stored = safetensors_headers.read_folder(folder, names, facts.num_layers, bits, findings)
    if stored is None:
        _say_no_weights(names, findings)
        return {}
    update: dict[str, Any] = {
        "weights_bytes": stored.bytes,
        "tensors": stored.tensors,
        "tensor_types": dict(sorted(stored.dtypes.items())),
        "other_params": stored.other or None,
    }
    if not stored.complete or any(finding.id == "shard_missing" for finding in findings):
        return update
    counted = stored.language + (0 if facts.tied_embeddings else stored.head)
    if facts.params is None or (counted != facts.params and facts.quantization is None):
        if facts.params is not None:
            findings.append(_differ(facts.params, counted))
        update["params"] = counted
    if stored.beyond and facts.quantization is None:
        update["mtp_params"] = stored.beyond
    if facts.dtype is None and facts.quantization is None:
        update["dtype"] = {"BF16": "bfloat16", "F16": "float16", "F32": "float32"}.get(
            stored.dtypes.most_common(1)[0][0] if stored.dtypes else ""
        )
    return update


def _differ(expected: int, counted: int) -> Finding:
    return Finding(
        "params_differ",
        "info",
        f"The files hold {counted:,} weights of the language model, its configuration means {expected:,}.",
        CONFIG,
        "The files count; a difference beyond a few per cent means that they do not belong together.",
    )


def _say_no_weights(names: list[str], findings: list[Finding]) -> None:
    if any(finding.where == safetensors_headers.INDEX for finding in findings):
        return
    pickles = [name for name in names if name.endswith(PICKLES)]
    findings.append(
        Finding(
            "pickle_weights",
            "warning",
            "The weights are pickles, which can run code when they are loaded; their sizes are not read.",
            clean_text(pickles[0]),
            "Take a revision of the checkpoint with safetensors.",
        )
        if pickles
        else Finding(
            "weights_missing",
            "warning",
            "The folder has no files of weights; the facts are those of config.json.",
            remedy="Put the .safetensors files beside config.json.",
        )
    )


def _size(folder: Path, names: list[str]) -> int:
    total = 0
    for name in names:
        try:
            found = os.stat(folder / name)
        except OSError:
            continue
        if stat.S_ISREG(found.st_mode):
            total += found.st_size
    return total
