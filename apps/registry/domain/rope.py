"""Rotary position embedding in the dialects of configuration files."""

from __future__ import annotations

from collections.abc import Mapping

from apps.registry.domain.config_view import MOST_TOKENS, Config
from apps.registry.domain.families.base import Family
from apps.registry.domain.model_facts import Rope

# Older names of the same thing.
ALIASES = {"su": "longrope", "dynamic_ntk": "dynamic", "ntk": "dynamic"}
KNOWN = frozenset({"default", "linear", "dynamic", "yarn", "longrope", "llama3", "mrope", "proportional"})
WITH_FACTOR = frozenset({"linear", "dynamic", "yarn", "llama3"})
BASE = ("rope_theta", "rotary_emb_base", "rotary_base", "rope_base", "attn_config.rope_theta")


def read_rope(family: Family) -> Rope | None:
    """The rotary embedding of a model; None for one that has none or whose file does not say that it has one.

    `rope_type` and `type` are the same key; `rope_scaling` may be null, or `rope_parameters` carry base and scaling
    together (transformers 5), also for each kind of layer.
    """
    config = family.config
    if family.position != "rope" or config.flag("alibi", "attn_config.alibi"):
        return None
    if config.get("position_embedding_type") in ("nope", "learned_absolute", "alibi"):
        return None
    scaling = _scaling(config)
    kind = _kind(config, scaling)
    factor = scaling.real("factor") if scaling else None
    if kind in WITH_FACTOR and factor is None and scaling is not None:
        config.say(
            "rope_factor_missing",
            "error",
            f"{scaling.where}factor is missing for rope type {kind}.",
            "rope_scaling.factor",
            "Fetch config.json again; without it the model repeats itself on long texts.",
        )
    original = scaling.whole("original_max_position_embeddings", most=MOST_TOKENS) if scaling else None
    theta = (scaling.real("rope_theta") if scaling else None) or config.real(*BASE)
    found = Rope(
        type=kind,
        theta=theta,
        factor=factor,
        original_max_position_embeddings=original
        or config.whole("original_max_position_embeddings", most=MOST_TOKENS),
        partial_rotary_factor=config.real("partial_rotary_factor", "rotary_pct", "rope_pct"),
        local_theta=_local(config),
    )
    _check_reach(config, found, family.dims.positions)
    return found


def _scaling(config: Config) -> Config | None:
    """The object that says how positions are stretched."""
    parameters = config.within("rope_parameters")
    if parameters is not None:
        full = parameters.within("full_attention") if parameters.has("full_attention") else None
        return full or parameters
    return config.within("rope_scaling")


def _local(config: Config) -> float | None:
    stated = config.real("rope_local_base_freq", "local_rope_theta")
    sliding = config.get("rope_parameters.sliding_attention")
    if stated is None and isinstance(sliding, Mapping):
        return Config(sliding, "rope_parameters.sliding_attention.", config.findings).real("rope_theta")
    return stated


def _kind(config: Config, scaling: Config | None) -> str:
    if scaling is None:
        return "dynamic" if config.flag("use_dynamic_ntk") else "default"
    new, old = scaling.text("rope_type"), scaling.text("type")
    new, old = ALIASES.get(new or "", new), ALIASES.get(old or "", old)
    # transformers turns mrope into default and keeps both keys in files that it writes again.
    if new and old and new != old and {new, old} != {"mrope", "default"}:
        scaling.say(
            "rope_types_differ",
            "warning",
            f"{scaling.where}rope_type is {new}, {scaling.where}type is {old}; rope_type counts.",
            "rope_type",
            "Keep one of them.",
        )
    kind = "mrope" if "mrope" in (new, old) else new or old
    if kind is None:
        kind = "mrope" if scaling.has("mrope_section") else "linear" if scaling.has("factor") else "default"
    if kind not in KNOWN:
        scaling.say(
            "rope_type_unknown",
            "warning",
            f"The rope type {kind} is not known.",
            "rope_type",
            "Check that the release of TensorRT-LLM knows it.",
        )
    return kind


def _check_reach(config: Config, rope: Rope, positions: int | None) -> None:
    """Say where a stretched context is larger than what the file allows; the file's figure counts."""
    original, factor = rope.original_max_position_embeddings, rope.factor
    if not (original and factor and positions) or positions >= original * factor or factor <= 1:
        return
    if rope.type in ("yarn", "linear", "dynamic"):
        config.say(
            "context_not_stretched",
            "info",
            f"rope type {rope.type} stretches {original} tokens to {int(original * factor)}, "
            f"max_position_embeddings says {positions}.",
            "max_position_embeddings",
            "max_position_embeddings counts; raise it to use the stretched context.",
        )
