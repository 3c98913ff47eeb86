"""An engine folder that somebody else built, read from config.json and the names and sizes beside it (reference 3.7).

Nothing but config.json is opened: a plan cannot be read without the TensorRT that wrote it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from apps.core.exceptions import Finding

LIMITS = (
    "max_batch_size",
    "max_input_len",
    "max_seq_len",
    "max_num_tokens",
    "opt_num_tokens",
    "max_beam_width",
    "max_encoder_input_len",
    "max_prompt_embedding_table_size",
    "max_draft_len",
)
CAPABILITIES = (
    "remove_input_padding",
    "context_fmha",
    "use_paged_context_fmha",
    "use_fp8_context_fmha",
    "gpt_attention_plugin",
    "gemm_plugin",
    "lora_plugin",
    "reduce_fusion",
    "user_buffer",
    "multiple_profiles",
    "manage_weights",
    "tokens_per_block",
)
# speculative_decoding_mode is a bit (reference 3.7).
SPECULATION = {
    1: "none",
    2: "draft_tokens_external",
    4: "medusa",
    8: "lookahead_decoding",
    16: "explicit_draft_tokens",
    32: "eagle",
}
MAX_CONFIG_BYTES = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class EngineFolder:
    """What the folder says of the engine. Values that it does not say are null or missing, never guessed."""

    version: str | None
    architecture: str | None
    dtype: str | None
    quant_algo: str | None
    kv_cache_quant_algo: str | None
    tp: int
    pp: int
    cp: int
    world_size: int
    kv_cache_type: str | None
    limits: dict[str, int] = field(default_factory=dict)
    plugins: dict[str, Any] = field(default_factory=dict)
    speculation: str | None = None
    findings: tuple[Finding, ...] = ()

    @property
    def refused(self) -> bool:
        """Whether it cannot be served at all."""
        return any(found.severity == "error" for found in self.findings)

    def as_dict(self) -> dict[str, Any]:
        """For the manifest and the API, without the findings."""
        return {
            name: getattr(self, name)
            for name in (
                *(
                    "architecture",
                    "dtype",
                    "quant_algo",
                    "kv_cache_quant_algo",
                    "tp",
                    "pp",
                    "cp",
                    "world_size",
                ),
                *("kv_cache_type", "limits", "plugins", "speculation"),
            )
        }


def read_engine_folder(config: str | None, sizes: Mapping[str, int]) -> EngineFolder:
    """Read config.json's text (null: not there) and the sizes of the files by name."""
    try:
        value = json.loads(config) if config is not None else None
    except ValueError:
        value = None
    if not isinstance(value, dict):
        what = "is missing" if config is None else "is no JSON object"
        return _unreadable(f"config.json {what}.", "Name the folder that trtllm-build wrote.")
    pretrained, build = _mapping(value.get("pretrained_config")), _mapping(value.get("build_config"))
    if not pretrained or not build:
        return _unreadable(
            "config.json has no pretrained_config and build_config, so it is no engine's: a converted checkpoint "
            "has one of the same name.",
            "Name the folder that trtllm-build wrote, not its input.",
        )
    mapping, quantization = _mapping(pretrained.get("mapping")), _mapping(pretrained.get("quantization"))
    tp, pp, cp = (_whole(mapping.get(name)) or 1 for name in ("tp_size", "pp_size", "cp_size"))
    world = _whole(mapping.get("world_size")) or tp * pp * cp
    plugins = _mapping(build.get("plugin_config"))
    folder = EngineFolder(
        version=_text(value.get("version")),
        architecture=_text(pretrained.get("architecture")),
        dtype=_text(pretrained.get("dtype")),
        quant_algo=_text(quantization.get("quant_algo")),
        kv_cache_quant_algo=_text(quantization.get("kv_cache_quant_algo")),
        tp=tp,
        pp=pp,
        cp=cp,
        world_size=world,
        kv_cache_type=(_text(build.get("kv_cache_type")) or "").upper() or None,
        limits={name: number for name in LIMITS if (number := _whole(build.get(name))) is not None},
        plugins={name: plugins[name] for name in CAPABILITIES if plugins.get(name) is not None},
        speculation=SPECULATION.get(_whole(build.get("speculative_decoding_mode")) or 1),
    )
    return _with_findings(folder, sizes)


def _with_findings(folder: EngineFolder, sizes: Mapping[str, int]) -> EngineFolder:
    found = [*_ranks(folder, sizes), *_origin(folder), *_serving(folder)]
    values = {name: getattr(folder, name) for name in EngineFolder.__dataclass_fields__}
    return EngineFolder(**{**values, "findings": tuple(found)})


def _ranks(folder: EngineFolder, sizes: Mapping[str, int]) -> list[Finding]:
    found = []
    if folder.world_size != folder.tp * folder.pp * folder.cp:
        told = f"world_size is {folder.world_size}, but tp x pp x cp is {folder.tp * folder.pp * folder.cp}."
        found.append(_error("world_size_differs", told, "Build it again: this config.json was edited."))
    names = [f"rank{rank}.engine" for rank in range(min(folder.world_size, 1024))]
    missing = [name for name in names if not sizes.get(name)]
    if missing:
        told = f"{len(missing)} of {folder.world_size} rank files are missing or empty: {', '.join(missing[:4])}."
        remedy = "Copy all of them; config.json alone says nothing about a build that went well."
        found.append(_error("engine_missing", told, remedy))
    extra = [
        name for name in sizes if name.startswith("rank") and name.endswith(".engine") and name not in names
    ]
    if extra:
        shown = ", ".join(sorted(extra)[:4])
        told = f"{len(extra)} rank files are more than world_size {folder.world_size}: {shown}."
        found.append(
            _warning("ranks_left_over", told, "They are not imported; an older build may have left them.")
        )
    return found


def _origin(folder: EngineFolder) -> list[Finding]:
    """What nobody knows of an engine from elsewhere."""
    found = [
        _warning(
            "provenance_unknown",
            "It is not known on which GPU and with which TensorRT it was built; config.json says neither.",
            "It loads only where both are the same. Build it here to be certain.",
        )
    ]
    if folder.version in (None, "none"):
        found.append(
            _warning(
                "engine_version_unknown",
                "config.json does not say which TensorRT-LLM built it.",
                "Releases before 0.8 left it out; build it again with one that is served today.",
            )
        )
    return found


def _serving(folder: EngineFolder) -> list[Finding]:
    found = []
    off = [
        name
        for name in ("gpt_attention_plugin", "remove_input_padding")
        if folder.plugins.get(name) in (False, "disable")
    ]
    if off or folder.kv_cache_type == "CONTINUOUS":
        why = ", ".join([*off, *(["a continuous KV cache"] if folder.kv_cache_type == "CONTINUOUS" else [])])
        found.append(
            _error(
                "engine_not_for_inflight_batching",
                f"It was not built for in-flight batching: {why}.",
                "Build it with the defaults.",
            )
        )
    if folder.kv_cache_type is None:
        told = "config.json has no kv_cache_type; the server takes the cache for a continuous one."
        found.append(_warning("kv_cache_type_missing", told, "Build it again with a newer release."))
    if folder.plugins.get("use_paged_context_fmha") in (False, "disable"):
        told = (
            "It has no paged context attention, so there is no reuse of the KV cache and no chunked context."
        )
        found.append(_warning("capability_switched_off", told, "Build it with use_paged_context_fmha."))
    return found


def _unreadable(message: str, remedy: str) -> EngineFolder:
    finding = _error("engine_config_json_unreadable", message, remedy)
    return EngineFolder(None, None, None, None, None, 1, 1, 1, 1, None, findings=(finding,))


def _error(code: str, message: str, remedy: str) -> Finding:
    return Finding(code, "error", message, "path", remedy)


def _warning(code: str, message: str, remedy: str) -> Finding:
    return Finding(code, "warning", message, "path", remedy)


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
