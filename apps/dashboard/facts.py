"""Key-value rows of the pages: (key, value) or (key, value, text to copy)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.utils.translation import gettext as _

from apps.dashboard import formats
from apps.engines.models import Build, Engine
from apps.registry.answers import stored_as
from apps.registry.models import Checkpoint

KeyValue = tuple[Any, ...]


def checkpoint(row: Checkpoint) -> list[KeyValue]:
    """What the headers of a checkpoint say; what they do not say is left out."""
    found = row.facts
    heads = _pair(found.get("num_attention_heads"), found.get("num_kv_heads"))
    rows: list[KeyValue] = [
        (_("Architecture"), found.get("architecture") or found.get("family")),
        (_("Parameters"), _count(found.get("params"))),
        (_("Stored as"), stored_as(found)),
        (_("Layers"), _plain(found.get("num_layers"))),
        (_("Heads, KV heads"), heads),
        (_("Head size"), _plain(found.get("head_dim"))),
        (_("Hidden size"), _plain(found.get("hidden_size"))),
        (_("Context length"), _unit(found.get("max_position_embeddings"), _("tokens"))),
        (_("Vocabulary"), _unit(found.get("vocab_size"), _("tokens"))),
        (_("KV cache per token"), _bytes(found.get("kv_bytes_per_token"))),
        (_("Chat template"), _("yes") if row.chat_template else _("no")),
        (_("Size"), str(formats.filesize(row.size_bytes)) if row.size_bytes else None),
        (_("Source"), source(row.source), source(row.source)),
        (_("Commit"), row.commit[:12], row.commit),
        (_("Path"), row.path, row.path),
        (_("SHA-256"), row.sha256, row.sha256),
    ]
    return [entry for entry in rows if entry[1] not in (None, "")]


def source(value: Mapping[str, Any]) -> str:
    """A source in one line: its kind and what it names."""
    if "huggingface" in value:
        hub = value["huggingface"] or {}
        return f"huggingface: {hub.get('repo', '')}@{hub.get('revision') or 'main'}"
    kind = next((key for key in value if key != "pickle"), "")
    return f"{kind}: {value[kind]}" if kind else ""


def engine(row: Engine) -> list[KeyValue]:
    """Where an engine lies and what it is."""
    return [
        (_("Weight type"), row.quantization),
        (_("Size"), str(formats.filesize(row.size_bytes))),
        (_("Fingerprint"), row.fingerprint[:16] + "…", row.fingerprint),
        (_("Folder"), row.path, row.path),
    ]


def manifest(value: Mapping[str, Any]) -> list[KeyValue]:
    """The flat entries of a manifest; nested ones are for the JSON below."""
    return [
        (key, str(entry), str(entry)) for key, entry in value.items() if isinstance(entry, str | int | float)
    ]


def build(row: Build) -> list[KeyValue]:
    """Who asked for a build, when, and where it runs."""
    asked = row.requested_by.get_username() if row.requested_by else None
    rows: list[KeyValue] = [
        (_("Asked for by"), asked),
        (_("Build profile"), row.profile.name if row.profile else None),
        (_("Node"), f"{row.node} {row.gpu.device}{row.gpu.index}" if row.node and row.gpu else None),
        (_("Attempt"), row.attempt if row.attempt > 1 else None),
        (_("Fingerprint"), row.fingerprint[:16] + "…", row.fingerprint),
    ]
    return [entry for entry in rows if entry[1] not in (None, "")]


def _plain(value: float | None) -> str | None:
    return None if value is None else formats.grouped(value)


def _unit(value: float | None, unit: str) -> str | None:
    return None if value is None else f"{formats.grouped(value)} {unit}"


def _count(value: float | None) -> str | None:
    return None if not value else f"{formats.count(value)} ({formats.grouped(value)})"


def _bytes(value: float | None) -> str | None:
    return None if value is None else f"{formats.grouped(value)} B"


def _pair(first: float | None, second: float | None) -> str | None:
    return None if first is None else f"{formats.grouped(first)}, {formats.grouped(second)}"
