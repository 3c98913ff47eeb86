"""Every fact of a model from its config.json: the language model's part, its family's arithmetic, what is missing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from apps.core.exceptions import Finding
from apps.registry.domain import parallel, windows
from apps.registry.domain.class_defaults import defaults_of
from apps.registry.domain.config_view import Config, MissingField
from apps.registry.domain.families import NOT_DECODERS, family_of
from apps.registry.domain.families.base import HEADS, HIDDEN, LAYERS, Family, Outside, Sizes
from apps.registry.domain.model_facts import (
    LayerParams,
    LayerSpec,
    MixedWindow,
    Mla,
    ModelFacts,
    Moe,
    ParamGroups,
    Quantization,
    Rope,
)
from apps.registry.domain.quantization import read_quantization
from apps.registry.domain.rope import read_rope

__all__ = [
    "LayerParams",
    "LayerSpec",
    "MixedWindow",
    "Mla",
    "ModelFacts",
    "Moe",
    "ParamGroups",
    "Quantization",
    "Rope",
    "facts_of",
]

# Where a larger model keeps its language model; never a vision or audio tower.
NESTED = (
    "llm_config",
    "text_config",
    "language_config",
    "thinker_config.text_config",
    "language_model_config",
    "text_model_config",
    "lm_config",
    "llm_cfg",
    "decoder_config",
)
TOWERS = ("vision_config", "visual", "vision_tower_config", "audio_config", "speech_config", "vision_cfg")
INHERITED = ("vocab_size", "torch_dtype", "dtype", "tie_word_embeddings")
KV_BYTES = 2
DTYPES = {"half": "float16", "float": "float32", "fp16": "float16", "bf16": "bfloat16", "fp32": "float32"}


def facts_of(
    data: Mapping[str, Any],
    *,
    quantization: Mapping[str, Any] | None = None,
    findings: list[Finding] | None = None,
) -> ModelFacts:
    """Facts of a configuration; `quantization` is hf_quant_config.json, `findings` what reading the files found.

    Never raises: what is wrong or missing is a finding.
    """
    top = _engine_part(Config(data, "", [] if findings is None else findings))
    part = _language_part(top)
    family, kind, known = family_of(part)
    family.read()
    _check_kind(top, part, kind, known)
    _check_heads(part, family)
    kinds = family.kinds()
    found = windows.layer_windows(family, kinds)
    tied = _tied(top, part, family)
    groups, layers = _params(family, kinds, tied)
    specs, order = _specs(family, kinds, found, layers)
    moe, mla = family.moe(), family.mla()
    facts = ModelFacts(
        form="hf",
        family=kind,
        architecture=_architecture(top),
        name=top.text("_name_or_path") if isinstance(top.get("_name_or_path"), str) else None,
        num_layers=family.dims.layers,
        hidden_size=family.dims.hidden,
        num_attention_heads=family.dims.heads,
        num_kv_heads=family.dims.kv_heads,
        head_dim=family.dims.head_dim,
        vocab_size=family.dims.vocab,
        intermediate_size=family.dims.inner,
        max_position_embeddings=family.dims.positions,
        attention_window=windows.summary(found, _attending(kinds)),
        quantization=read_quantization(part, top, quantization),
        dtype=_dtype(top, part),
        tied_embeddings=tied,
        rope_parameters=(rope := read_rope(family)),
        rope=rope.type if rope else None,
        position_embedding=_position(family, rope),
        moe=moe,
        mla=mla,
        params=groups.total() if groups else None,
        active_params=_active(groups, moe),
        mtp_params=_mtp(family) if groups else None,
        param_groups=groups,
        layer_specs=specs,
        layer_spec_of=order,
        layer_windows=found if isinstance(found, tuple) else None,
        layer_kinds=tuple(kinds) if kinds is not None else None,
        kv_bytes_per_token=_kv_bytes(specs, order),
        state_bytes_per_sequence=sum(specs[index].state_values for index in order) * KV_BYTES or None,
        tp_divides=parallel.tp_divides(family),
        row_widths=parallel.row_widths(family, moe),
    )
    return complete(facts, top.findings)


def complete(facts: ModelFacts, findings: list[Finding]) -> ModelFacts:
    """The facts with legal tp and pp, and with the findings."""
    update: dict[str, Any] = {"findings": tuple(findings)}
    if facts.tp_divides:
        update["valid_tp"], update["tp_reasons"] = parallel.valid_tp(facts)
    if facts.num_layers is not None:
        update["valid_pp"], update["pp_reasons"] = parallel.valid_pp(facts.num_layers)
    return facts.model_copy(update=update)


def _engine_part(top: Config) -> Config:
    """The model's part of a TensorRT-LLM engine's config.json; anything else as it is."""
    engine = top.within("pretrained_config") if isinstance(top.get("build_config"), Mapping) else None
    if engine is not None:
        top.say(
            "trtllm_engine",
            "info",
            "This is the configuration of a built TensorRT-LLM engine; the facts are those of its checkpoint.",
            "pretrained_config",
        )
        return engine
    return top


def _language_part(top: Config) -> Config:
    for name in NESTED:
        value = top.get(name)
        if isinstance(value, Mapping) and value:
            kind = value.get("model_type")
            inherited = {key: top.get(key) for key in INHERITED if top.has(key) and value.get(key) is None}
            merged = {**defaults_of(kind if isinstance(kind, str) else None), **value, **inherited}
            _say_nested(top, name)
            return Config(merged, f"{top.where}{name}.", top.findings)
    thinker = top.get("thinker_config")
    if isinstance(thinker, Mapping) and thinker:
        return Config(thinker, f"{top.where}thinker_config.", top.findings)
    if any(isinstance(top.get(name), Mapping) for name in TOWERS):
        _say_nested(top, "")
    return top


def _say_nested(top: Config, name: str) -> None:
    towers = [tower for tower in TOWERS if isinstance(top.get(tower), Mapping)]
    if towers or top.has("thinker_config"):
        top.say(
            "language_model_only",
            "info",
            f"The facts are those of the language model{f' ({name})' if name else ''}; "
            f"{' and '.join(towers) or 'the other parts'} counts for neither heads nor parameters.",
            name,
        )


def _check_kind(top: Config, part: Config, kind: str | None, known: bool) -> None:
    if kind in NOT_DECODERS or top.flag("is_encoder_decoder"):
        top.say(
            "unsupported_architecture",
            "error",
            f"{kind or 'This model'} is no decoder-only language model.",
            "model_type",
            "Register a model that generates text token by token.",
        )
    elif kind is None and not part.has(*LAYERS) and not part.has(*HIDDEN):
        top.say(
            "not_a_model_config",
            "error",
            "The file has neither a model_type nor the sizes of a model.",
            "model_type",
            "Name the config.json of a checkpoint in Hugging Face form.",
        )
    elif not known:
        named = f"The model type {kind}" if kind else "The model"
        part.say(
            "family_unknown",
            "warning",
            f"{named} is not known: its sizes are read under the usual names, its parameters cannot be counted.",
            "model_type",
            "Check that the release of TensorRT-LLM knows it.",
        )


def _check_heads(config: Config, family: Family) -> None:
    dims = family.dims
    if dims.heads and dims.kv_heads and (dims.kv_heads > dims.heads or dims.heads % dims.kv_heads):
        config.say(
            "kv_heads_inconsistent",
            "error",
            f"{dims.heads} attention heads cannot share {dims.kv_heads} key-value heads.",
            "num_key_value_heads",
            "Correct the number, or fetch config.json again.",
        )


def _params(
    family: Family, kinds: list[str] | None, tied: bool
) -> tuple[ParamGroups | None, list[LayerParams]]:
    """Weights of each layer and of the whole; None with a finding where something is missing."""
    if not family.counted:
        return None, []
    try:
        sizes = family.sizes()
        if kinds is None:
            return None, []
        layers = [family.layer(sizes, layer) for layer in range(len(kinds))]
        outside = family.outside(sizes, tied)
    except MissingField as missing:
        _say_missing(family, missing)
        return None, []
    return _sum(layers, outside), layers


def _say_missing(family: Family, missing: MissingField) -> None:
    basics = {LAYERS[0]: LAYERS, HIDDEN[0]: HIDDEN, HEADS[0]: HEADS}
    absent = [name for name, names in basics.items() if not family.config.has(*names)]
    names = list(dict.fromkeys([*absent, missing.names[0]]))
    family.config.say(
        "config_field_missing",
        "warning",
        f"{', '.join(names)} {'is' if len(names) == 1 else 'are'} not stated: "
        "the parameters cannot be counted.",
        names[0],
        "Fetch the whole config.json.",
    )


def _sum(layers: list[LayerParams], outside: Outside) -> ParamGroups:
    totals = {name: sum(getattr(layer, name) for layer in layers) for name in LayerParams.model_fields}
    totals["norms"] += outside.norms
    totals["other"] += outside.other
    return ParamGroups(**totals, embedding=outside.embedding, lm_head=outside.lm_head)


def _mtp(family: Family) -> int | None:
    try:
        sizes: Sizes = family.sizes()
        return family.mtp(sizes)
    except MissingField:
        return None


def _active(groups: ParamGroups | None, moe: Moe | None) -> int | None:
    if groups is None:
        return None
    if moe is None or not moe.experts_per_token:
        return groups.total() if moe is None else None
    idle = max(0, moe.num_experts - moe.experts_per_token)
    return groups.total() - groups.experts // moe.num_experts * idle


def _specs(
    family: Family,
    kinds: list[str] | None,
    found: tuple[int | None, ...] | int | None,
    layers: list[LayerParams],
) -> tuple[tuple[LayerSpec, ...], tuple[int, ...]]:
    """The kinds of layers that occur, and which each layer is."""
    order: list[int] = []
    known: dict[LayerSpec, int] = {}
    for layer, kind in enumerate(kinds or ()):
        try:
            cached = family.cached(layer, kind)
        except MissingField:
            return (), ()
        attends = kind in ("attention", "mla", "cross_attention")
        heads = family.dims.kv_heads_by_layer
        spec = LayerSpec(
            kind=kind,
            window=found[layer] if isinstance(found, tuple) else found,
            num_kv_heads=(heads[layer] if heads else family.dims.kv_heads) if attends else None,
            head_dim=family.dims.head_dim if attends else None,
            value_head_dim=(family.dims.value_dim or family.dims.head_dim) if attends else None,
            kv_values_per_token=cached.per_token,
            state_values=cached.state,
            params=layers[layer] if layers else None,
        )
        order.append(known.setdefault(spec, len(known)))
    return tuple(known), tuple(order)


def _kv_bytes(specs: tuple[LayerSpec, ...], order: tuple[int, ...]) -> int | None:
    values = [specs[index].kv_values_per_token for index in order]
    known = [value for value in values if value is not None]
    return KV_BYTES * sum(known) if known and len(known) == len(values) else None


def _attending(kinds: list[str] | None) -> int:
    return sum(kind in ("attention", "mla") for kind in kinds or ())


def _tied(top: Config, part: Config, family: Family) -> bool:
    stated = part.flag("tie_word_embeddings", "share_embedding_table")
    return family.tied if stated is None else stated


def _architecture(top: Config) -> str | None:
    listed = top.get("architectures")
    if isinstance(listed, list):
        words = top.words("architectures")
        return words[0] if words else None
    return top.text("architecture")


def _dtype(top: Config, part: Config) -> str | None:
    for config in dict.fromkeys((part, top)):
        stated = config.get("dtype") or config.get("torch_dtype")
        if isinstance(stated, str):
            word = stated.removeprefix("torch.")[:40]
            return None if word == "auto" else DTYPES.get(word, word)
    return None


def _position(family: Family, rope: Rope | None) -> str | None:
    if rope is not None:
        return "rope"
    if family.position != "rope":
        return family.position
    return "alibi" if family.config.flag("alibi", "attn_config.alibi") else "none"
