"""What the tokenizer's files say: special tokens, chat template, whether there is a tokenizer at all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from apps.core.exceptions import Finding, InvalidInput
from apps.registry.domain.json_input import MIB, read_bytes, read_object
from apps.registry.domain.regular_files import clean_text

TOKENIZERS = (
    "tokenizer.json",
    "tokenizer.model",
    "spiece.model",
    "vocab.json",
    "tekken.json",
    "qwen.tiktoken",
    "tiktoken.model",
)
TEMPLATE_LIMIT = MIB
TOKEN_LIMIT = 2**31


@dataclass(frozen=True, slots=True)
class TokenizerFacts:
    """Special tokens as text and number, and the chat template; None where no file says it."""

    tokenizer: str | None = None
    bos_token: str | None = None
    bos_token_id: int | None = None
    eos_token: str | None = None
    eos_token_ids: tuple[int, ...] = ()
    add_bos: bool | None = None
    chat_template: str | None = None
    highest_id: int | None = None


def read_tokenizer(
    folder: Path, names: list[str], config: Mapping[str, Any], findings: list[Finding]
) -> TokenizerFacts:
    """Facts from tokenizer_config.json, special_tokens_map.json, chat_template.jinja and generation_config.json."""
    settings = _read(folder, names, "tokenizer_config.json", findings)
    special = _read(folder, names, "special_tokens_map.json", findings)
    generation = _read(folder, names, "generation_config.json", findings)
    template = _template(folder, names, settings, findings)
    added = _added(settings)
    texts = {text: number for number, text in added.items()}
    bos, eos = (_token(settings, name) or _token(special, name) for name in ("bos_token", "eos_token"))
    ends = _ids(generation.get("eos_token_id")) or _ids(config.get("eos_token_id"))
    starts = _ids(generation.get("bos_token_id")) or _ids(config.get("bos_token_id"))
    flag = settings.get("add_bos_token")
    tokenizer = settings.get("tokenizer_class")
    if not any(name in names for name in TOKENIZERS):
        findings.append(
            Finding(
                "tokenizer_missing",
                "warning",
                "The folder has no tokenizer.",
                remedy="Put tokenizer.json (or tokenizer.model) beside config.json.",
            )
        )
    return TokenizerFacts(
        tokenizer=clean_text(tokenizer) if isinstance(tokenizer, str) else None,
        bos_token=bos,
        bos_token_id=starts[0] if starts else texts.get(bos or ""),
        eos_token=eos,
        eos_token_ids=ends or tuple(number for number in [texts.get(eos or "")] if number is not None),
        add_bos=flag if isinstance(flag, bool) else None,
        chat_template=template,
        highest_id=max([*added, *ends, *starts], default=None),
    )


def _read(folder: Path, names: list[str], name: str, findings: list[Finding]) -> dict[str, Any]:
    if name not in names:
        return {}
    try:
        document = read_object(folder / name)
    except InvalidInput as error:
        findings.append(Finding(error.code, "warning", error.sentence, name, error.remedy))
        return {}
    findings.extend(document.findings)
    return document.data


def _template(
    folder: Path, names: list[str], settings: Mapping[str, Any], findings: list[Finding]
) -> str | None:
    """A file of its own counts before tokenizer_config.json; of several templates the one named default."""
    if "chat_template.jinja" in names:
        try:
            raw = read_bytes(folder / "chat_template.jinja", TEMPLATE_LIMIT)
            return clean_text(raw.decode("utf-8", "replace").removeprefix("\ufeff")) or None
        except InvalidInput as error:
            findings.append(
                Finding(error.code, "warning", error.sentence, "chat_template.jinja", error.remedy)
            )
    value: Any = settings.get("chat_template")
    if isinstance(value, list):
        entries = [entry for entry in value if isinstance(entry, dict)]
        named = {
            entry.get("name"): entry.get("template") for entry in entries if _hashable(entry.get("name"))
        }
        value = named.get("default") or next(iter(named.values()), None)
    if value is None and "chat_template.json" in names:
        value = _read(folder, names, "chat_template.json", findings).get("chat_template")
    return clean_text(value) if isinstance(value, str) and 0 < len(value) <= TEMPLATE_LIMIT else None


def _hashable(value: object) -> bool:
    return value is None or isinstance(value, str)


def _token(data: Mapping[str, Any], name: str) -> str | None:
    value = data.get(name)
    if isinstance(value, Mapping):
        value = value.get("content")
    return clean_text(value)[:200] if isinstance(value, str) and value else None


def _ids(value: object) -> tuple[int, ...]:
    values = value if isinstance(value, list) else [value]
    return tuple(
        item
        for item in values[:64]
        if isinstance(item, int) and not isinstance(item, bool) and 0 <= item < TOKEN_LIMIT
    )


def _added(settings: Mapping[str, Any]) -> dict[int, str]:
    """Tokens that were added to the vocabulary: number -> text."""
    decoder = settings.get("added_tokens_decoder")
    found: dict[int, str] = {}
    for key, entry in decoder.items() if isinstance(decoder, Mapping) else ():
        content = entry.get("content") if isinstance(entry, Mapping) else None
        if isinstance(content, str) and key.isascii() and key.isdigit() and len(key) < 10:
            found[int(key)] = content
    return found
