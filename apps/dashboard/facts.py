"""Key-value rows of the pages: (key, value) or (key, value, text to copy)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.utils.translation import gettext as _

from apps.dashboard import formats
from apps.engines.imports import Looked
from apps.engines.models import Build, Engine

KeyValue = tuple[Any, ...]


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
        *([(_("Origin"), _("imported; nobody knows how it was built"))] if _is_imported(row) else []),
        (_("Weight type"), row.quantization),
        (_("Size"), str(formats.filesize(row.size_bytes))),
        (_("Fingerprint"), row.fingerprint[:16] + "…", row.fingerprint),
        (_("Folder"), row.path, row.path),
    ]


def _is_imported(row: Engine) -> bool:
    return row.provenance == Engine.Provenance.IMPORTED


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


def engine_folder(looked: Looked) -> list[KeyValue]:
    """What an engine's folder says before it is imported."""
    found = looked.engine
    rows: list[KeyValue] = [
        (_("TensorRT-LLM"), found.version),
        (_("Model"), found.architecture),
        (_("Data type"), found.dtype),
        (_("Weights"), found.quant_algo or _("not quantised")),
        (_("KV cache"), " ".join(filter(None, (found.kv_cache_type, found.kv_cache_quant_algo)))),
        (_("Ranks"), f"{found.world_size} (tp {found.tp}, pp {found.pp}, cp {found.cp})"),
        (_("Size"), str(formats.filesize(looked.size_bytes))),
        *((name, formats.grouped(value)) for name, value in found.limits.items()),
        *((name, str(value)) for name, value in found.plugins.items()),
    ]
    return [entry for entry in rows if entry[1] not in (None, "")]


def imported(row: Engine) -> list[KeyValue]:
    """Limits of an imported engine, and where it came from."""
    inside = row.manifest.get("engine") or {}
    limits = inside.get("limits") or {}
    rows: list[KeyValue] = [
        (_("Imported from"), row.manifest.get("imported_from"), row.manifest.get("imported_from")),
        (_("TensorRT-LLM"), (row.manifest.get("versions") or {}).get("tensorrt_llm")),
        (_("Model"), inside.get("architecture")),
        (_("Ranks"), inside.get("world_size")),
        *((name, formats.grouped(value)) for name, value in limits.items()),
    ]
    return [entry for entry in rows if entry[1] not in (None, "")]
