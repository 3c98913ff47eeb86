"""How the weights of a checkpoint are quantised: quantization_config, compression_config, hf_quant_config.json.

What TensorRT-LLM takes (its convert_checkpoint.py and PyTorch backend): groups of 64 or 128 for GPTQ and AWQ, no
act-order, FP8 per tensor, per channel or in blocks, NVFP4, MXFP4 experts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from apps.registry.domain.config_view import Config, shown
from apps.registry.domain.model_facts import Quantization

LINEAR = ("attention", "attention_kv", "attention_replicated", "mixer", "mlp", "experts", "shared_experts")
ENGINE_GROUPS = (64, 128)
# Methods that no path of TensorRT-LLM reads.
UNSUPPORTED = frozenset(
    {
        "bitsandbytes", "aqlm", "hqq", "quip", "quip_sharp", "eetq", "quanto", "torchao", "higgs", "spqr", "vptq",
        "exl2", "exl3", "marlin", "mlx", "bitnet", "quark", "squeezellm", "gguf", "ptq", "sinq", "fp_quant",
    }
)  # fmt: skip
MODELOPT_BITS: dict[str, tuple[str, str, float, int | None]] = {
    # algorithm -> (weight dtype, method's group, bits, weights that share a scale)
    "FP8": ("fp8", "tensor", 8, None),
    "FP8_PB_WO": ("fp8", "block", 8, 128),
    "FP8_BLOCK_SCALES": ("fp8", "block", 8, 128),
    "FP8_PB_REAL": ("fp8", "block", 8, 128),
    "FP8_PER_CHANNEL_PER_TOKEN": ("fp8", "channel", 8, None),
    "NVFP4": ("nvfp4", "group", 4, 16),
    "NVFP4_AWQ": ("nvfp4", "group", 4, 16),
    "W4A8_NVFP4_FP8": ("nvfp4", "group", 4, 16),
    "W4A16_AWQ": ("int4", "group", 4, 128),
    "W4A8_AWQ": ("int4", "group", 4, 128),
    "W4A16": ("int4", "channel", 4, None),
    "W8A16": ("int8", "channel", 8, None),
    "W4A16_GPTQ": ("int4", "group", 4, 128),
    "W8A16_GPTQ": ("int8", "group", 8, 128),
    "INT8": ("int8", "channel", 8, None),
    "W8A8_SQ_PER_CHANNEL": ("int8", "channel", 8, None),
    "W4A8_MXFP4_FP8": ("mxfp4", "group", 4, 32),
    "W4A8_MXFP4_MXFP8": ("mxfp4", "group", 4, 32),
    "W4A16_MXFP4": ("mxfp4", "group", 4, 32),
}


def read_quantization(config: Config, top: Config, extra: Mapping[str, Any] | None) -> Quantization | None:
    """The quantisation of a checkpoint, or None for weights in the model's own dtype.

    `config` is the language model's part, `top` the whole file, `extra` hf_quant_config.json.
    """
    for owner in dict.fromkeys((config, top)):
        for name in ("quantization_config", "compression_config"):
            found = owner.within(name)
            if found is not None and found.data:
                return _by_method(found, owner)
    if extra:
        inner = Config(extra, "hf_quant_config.", top.findings).within("quantization")
        return _modelopt(inner) if inner is not None else None
    trtllm = top.within("quantization") if top.has("quantization.quant_algo") else None
    return _modelopt(trtllm) if trtllm is not None else None


def _by_method(config: Config, owner: Config) -> Quantization | None:
    method = (config.text("quant_method") or "").lower()
    if method in ("gptq", "auto-round", "intel/auto-round", "gptqmodel"):
        return _grouped(config, "gptq")
    if method == "awq":
        return _grouped(config, "awq")
    if method == "fp8":
        return _fp8(config)
    if method == "fbgemm_fp8":
        return _plain(config, method, "FP8_PER_CHANNEL_PER_TOKEN", "fp8", 8)
    if method in ("compressed-tensors", "compressed_tensors", "sparseml"):
        return _compressed(config)
    if method.startswith("modelopt"):
        return _modelopt(config)
    if method == "mxfp4":
        return Quantization(
            method="mxfp4",
            algorithm="W4A16_MXFP4",
            weight_dtype="mxfp4",
            bits=4,
            bits_per_weight=4 + 8 / 32,
            group_size=32,
            groups=("experts",),
            modules_to_not_convert=_left_out(config),
        )
    if not method and config.has("config_groups"):
        return _compressed(config)
    if not method and config.has("bits", "group_size") and not config.has("load_in_8bit", "load_in_4bit"):
        method = "mlx" if owner.has("quantization") else method
    return _other(config, method)


def _other(config: Config, method: str) -> Quantization | None:
    if not method and config.has("load_in_4bit", "load_in_8bit"):
        method = "bitsandbytes"
    bits: float | None = config.whole("bits", "w_bit", "nbits", most=64)
    if method == "bitsandbytes":
        bits = 4 if config.flag("load_in_4bit") or config.flag("_load_in_4bit") else 8
    if method in UNSUPPORTED:
        config.say(
            "quantization_unsupported",
            "error",
            f"TensorRT-LLM reads no weights quantised by {method}.",
            "quant_method",
            "Take the original weights, or a GPTQ, AWQ, FP8 or NVFP4 checkpoint of the same model.",
        )
    else:
        config.say(
            "quantization_unknown",
            "warning",
            f"The quantisation method {shown(method) if method else 'of this checkpoint'} is not known.",
            "quant_method",
            "Check that TensorRT-LLM knows it; the size of the weights is taken from their files.",
        )
    return Quantization(
        method=method or "unknown",
        bits=bits,
        bits_per_weight=bits,
        groups=LINEAR if bits else (),
        modules_to_not_convert=_left_out(config),
    )


def _grouped(config: Config, method: str) -> Quantization:
    """GPTQ and AWQ: integers with a 16-bit scale and a zero point for each group along the input."""
    bits = config.whole("bits", "w_bit", most=16) or 4
    raw = config.whole("group_size", "q_group_size", most=2**20, least=-1)
    group = raw if raw and raw > 0 else None
    if raw is None:
        group = 128
    act_order = config.flag("desc_act")
    _check_group(config, method, bits, group)
    if act_order:
        config.say(
            "gptq_act_order",
            "warning",
            "The weights are quantised in activation order (desc_act true), which convert_checkpoint.py refuses.",
            "desc_act",
            "Take a checkpoint with desc_act false.",
        )
    overhead = (16 + bits) / group if group else 0
    return Quantization(
        method=method,
        algorithm=f"W{bits}A16_{method.upper()}",
        weight_dtype=f"int{bits}",
        bits=bits,
        bits_per_weight=bits + overhead,
        group_size=group,
        zero_points=not config.flag("sym") if method == "gptq" else config.flag("zero_point"),
        desc_act=act_order,
        groups=LINEAR,
        modules_to_not_convert=_left_out(config),
    )


def _check_group(config: Config, method: str, bits: int, group: int | None) -> None:
    if group not in ENGINE_GROUPS:
        found = f"group_size {group}" if group else "group_size -1 (one group for each row)"
        config.say(
            "quantization_group_size",
            "error",
            f"{method.upper()} with {found}: TensorRT-LLM takes groups of 64 or 128 only.",
            "group_size",
            "Take a checkpoint with group_size 128, or quantise the original weights.",
        )
    if bits not in ((4, 8) if method == "gptq" else (4,)):
        config.say(
            "quantization_bits",
            "error",
            f"{method.upper()} with {bits} bits: TensorRT-LLM takes {'4 or 8' if method == 'gptq' else '4'}.",
            "bits",
            "Take a checkpoint with 4 bits, or quantise the original weights.",
        )


def _fp8(config: Config) -> Quantization:
    block = config.wholes("weight_block_size", 2**16, least=1)
    if block is None or len(block) != 2:
        return _plain(config, "fp8", "FP8", "fp8", 8)
    found = _plain(config, "fp8", "FP8_BLOCK_SCALES", "fp8", 8 + 32 / (block[0] * block[1]))
    return found.model_copy(update={"bits": 8, "block_size": (block[0], block[1])})


def _plain(config: Config, method: str, algorithm: str | None, dtype: str, bits: float) -> Quantization:
    return Quantization(
        method=method,
        algorithm=algorithm,
        weight_dtype=dtype,
        bits=bits,
        bits_per_weight=bits,
        kv_cache_dtype=_kv_dtype(config),
        groups=LINEAR,
        modules_to_not_convert=_left_out(config),
    )


def _compressed(config: Config) -> Quantization:
    """compressed-tensors: the first group of layers that has a scheme for its weights."""
    scheme = _scheme(config)
    bits = scheme.whole("num_bits", most=64) if scheme else None
    kind = (scheme.text("type") if scheme else None) or "int"
    strategy = scheme.text("strategy") if scheme else None
    group = scheme.whole("group_size", most=2**20, least=-1) if scheme else None
    group = group if group and group > 0 else None
    form = config.text("format") or ""
    block = scheme.wholes("block_structure", 2**16, least=1) if scheme and strategy == "block" else None
    if bits is None or scheme is None:
        config.say(
            "quantization_unknown",
            "warning",
            "compressed-tensors states no scheme for weights.",
            "config_groups",
            "The size of the weights is taken from their files.",
        )
        return Quantization(method="compressed-tensors", modules_to_not_convert=_left_out(config))
    algorithm, dtype = _compressed_algorithm(bits, kind, strategy, group, form)
    if algorithm is None and bits == 4 and group not in (*ENGINE_GROUPS, None):
        _check_group(config, "gptq", bits, group)
    if algorithm is None:
        config.say(
            "quantization_unknown",
            "warning",
            f"compressed-tensors with {bits}-bit {kind} weights ({strategy}) has no counterpart that is known.",
            "config_groups",
            "Check that the release of TensorRT-LLM reads it.",
        )
    scale = 8 if dtype == "nvfp4" else 32 if block else 16
    share = block[0] * block[1] if block and len(block) == 2 else group
    return Quantization(
        method="compressed-tensors",
        algorithm=algorithm,
        weight_dtype=dtype,
        bits=bits,
        bits_per_weight=bits + scale / share if share else bits,
        group_size=group,
        block_size=(block[0], block[1]) if block and len(block) == 2 else None,
        zero_points=scheme.flag("symmetric") is False,
        desc_act=scheme.get("actorder") in (True, "group"),
        kv_cache_dtype=_kv_dtype(config),
        groups=LINEAR,
        modules_to_not_convert=_left_out(config),
    )


def _scheme(config: Config) -> Config | None:
    groups = config.within("config_groups")
    for name in groups.data if groups else ():
        entry = groups.within(name) if groups else None
        weights = entry.within("weights") if entry else None
        if weights is not None:
            return weights
    return None


def _compressed_algorithm(
    bits: int, kind: str, strategy: str | None, group: int | None, form: str
) -> tuple[str | None, str]:
    if kind == "float" and bits == 8:
        named = {"tensor": "FP8", "channel": "FP8_PER_CHANNEL_PER_TOKEN", "block": "FP8_BLOCK_SCALES"}
        return named.get(strategy or "tensor"), "fp8"
    if kind == "float" and bits == 4:
        return ("NVFP4", "nvfp4") if group == 16 or form.startswith("nvfp4") else ("W4A16_MXFP4", "mxfp4")
    return None, f"int{bits}"


def _modelopt(config: Config) -> Quantization | None:
    """NVIDIA ModelOpt: quant_algo in config.json or hf_quant_config.json, or TensorRT-LLM's own checkpoint."""
    algorithm = config.text("quant_algo")
    kv = config.text("kv_cache_quant_algo")
    kv = kv.lower() if kv else _kv_dtype(config)
    if algorithm is None or algorithm == "NO_QUANT":
        if config.has("config_groups"):
            return _compressed(config).model_copy(update={"method": "modelopt", "kv_cache_dtype": kv})
        return Quantization(method="modelopt", kv_cache_dtype=kv) if kv else None
    dtype, shape, bits, group = MODELOPT_BITS.get(algorithm, (None, "", None, None))
    if dtype is None:
        config.say(
            "quantization_mixed" if algorithm == "MIXED_PRECISION" else "quantization_unknown",
            "info" if algorithm == "MIXED_PRECISION" else "warning",
            f"The layers are quantised in several ways (quant_algo {shown(algorithm)})."
            if algorithm == "MIXED_PRECISION"
            else f"The algorithm {shown(algorithm)} is not known.",
            "quant_algo",
            "The size of the weights is taken from their files.",
        )
    group = config.whole("group_size", most=2**20) or group if shape == "group" else None
    per_weight = None
    if bits is not None:
        per_weight = bits + ((8 if dtype in ("nvfp4", "mxfp4") else 16) / group if group else 0)
    block = (128, 128) if shape == "block" else None
    return Quantization(
        method="modelopt",
        algorithm=algorithm,
        weight_dtype=dtype,
        bits=bits,
        bits_per_weight=bits + 32 / 128**2 if block and bits else per_weight,
        group_size=group,
        block_size=block,
        kv_cache_dtype=kv,
        groups=LINEAR,
        modules_to_not_convert=_left_out(config),
    )


def _kv_dtype(config: Config) -> str | None:
    """What keys and values are quantised to, where the checkpoint has scales for them."""
    scheme = config.within("kv_cache_scheme") if isinstance(config.get("kv_cache_scheme"), Mapping) else None
    if scheme is None:
        return None
    kind, bits = scheme.text("type") or "float", scheme.whole("num_bits", most=64)
    return None if bits is None else f"{'fp' if kind == 'float' else 'int'}{bits}"


def _left_out(config: Config) -> tuple[str, ...]:
    for name in (
        "modules_to_not_convert",
        "ignored_layers",
        "ignore",
        "exclude_modules",
        "llm_int8_skip_modules",
    ):
        if isinstance(config.get(name), list):
            return (config.words(name) or ())[:2000]
    return ()
