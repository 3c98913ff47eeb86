"""Flags of a pasted command, sorted into the fields of a profile."""

from __future__ import annotations

from typing import Any

from apps.engines.domain.trtllm.asked import MODELOPT
from apps.engines.domain.trtllm.build_flags import BY_NAME
from apps.engines.domain.trtllm.conversion_flags import QUANTIZE, QUANTIZE_OPTIONS
from apps.engines.domain.trtllm.translated import Change, Translated

_PRECISIONS = {
    "int8": "int8_wo",
    "int4": "int4_wo",
    "int4_gptq": "gptq",
    "int8_gptq": "gptq_int8",
    "int4_awq": "awq",
}
_CALIBRATION = {
    "calib_dataset": "dataset",
    "calib_size": "size",
    "calib_max_seq_length": "maxSeqLength",
    "batch_size": "batchSize",
}


def profile_of(kind: str, values: dict[str, Any], found: Translated) -> dict[str, Any]:
    """Fields of a BuildProfile document; `values` is emptied."""
    if kind == "build":
        return {"builder": "trtllm", "recipe": "engine", "build": values}
    if kind == "quantize":
        return _from_quantize(values, found)
    build = {name: values.pop(name) for name in list(values) if kind == "legacy" and _is_build(name)}
    for name in [name for name in values if name.startswith("build.")]:
        build[name.removeprefix("build.")] = values.pop(name)
    profile = _from_convert(values, found)
    if build:
        profile["build"] = build
    return profile


def _is_build(name: str) -> bool:
    return name in BY_NAME and name not in ("workers", "log_level")


def _ranks(values: dict[str, Any], found: Translated) -> dict[str, int]:
    world = values.pop("world_size", None)
    ranks = {name: values.pop(f"{name}_size") for name in ("tp", "pp", "cp") if f"{name}_size" in values}
    if world and not ranks:
        ranks = {"tp": world}
        found.changes.append(
            Change(f"--world_size {world}", f"--tp_size {world}", "Ranks are named by kind today.")
        )
    experts, split = values.pop("moe_ep_size", -1), values.pop("moe_tp_size", -1)
    if isinstance(experts, int) and experts > 1:
        ranks["moeEp"] = experts
    if isinstance(split, int) and split > 0 and isinstance(experts, int):
        tp = ranks.get("tp", 1)
        if split * max(1, experts) != tp and experts > 0:
            why = f"moe_tp_size x moe_ep_size must be tp_size {tp}; the profile derives it."
            found.changes.append(Change(f"--moe_tp_size {split}", "", why))
    return {name: size for name, size in ranks.items() if isinstance(size, int)}


def _begin(values: dict[str, Any], found: Translated) -> dict[str, Any]:
    found.model = str(values.pop("model_dir", ""))
    profile: dict[str, Any] = {"builder": "trtllm"}
    if parallel := _ranks(values, found):
        profile["parallel"] = parallel
    if "dtype" in values:
        profile["dtype"] = values.pop("dtype")
    return profile


def _from_convert(values: dict[str, Any], found: Translated) -> dict[str, Any]:
    profile = _begin(values, found)
    profile = {"builder": "trtllm", "recipe": "engine", **profile}
    quantization = _converted(values, found)
    for dtype in ("int8", "fp8"):
        if values.pop(f"{dtype}_kv_cache", False):
            quantization["kvCacheDtype"] = dtype
    calibration = {new: values.pop(old) for old, new in _CALIBRATION.items() if old in values}
    if calibration:
        quantization["calibration"] = calibration
    if quantization:
        profile["quantization"] = quantization
    if values:
        profile["convert"] = dict(values)
    return profile


def _converted(values: dict[str, Any], found: Translated) -> dict[str, Any]:
    quantization: dict[str, Any] = {}
    precision = values.pop("weight_only_precision", None)
    if values.pop("use_weight_only", False):
        kind = precision or "int8"
        quantization["format"] = _PRECISIONS.get(kind, kind)
        values.pop("per_group", None)
        for name, field in (("group_size", "groupSize"), ("quant_ckpt_path", "weights")):
            if name in values:
                quantization[field] = values.pop(name)
    elif "smoothquant" in values:
        quantization = {"format": "int8_sq", "smoothquant": values.pop("smoothquant")}
        quantization["perChannel"] = bool(values.pop("per_channel", False))
        quantization["perToken"] = bool(values.pop("per_token", False))
    elif values.pop("use_fp8_rowwise", False):
        quantization["format"] = "fp8_rowwise"
    elif values.pop("use_qserve", False):
        quantization = {"format": "qserve", "perChannel": not values.pop("per_group", False)}
    elif precision is not None:
        was = f"--weight_only_precision {precision}"
        found.changes.append(Change(was, "", "It acts only with use_weight_only."))
    for name in ("per_channel", "per_token", "per_group", "group_size"):
        if name in values:
            value = values.pop(name)
            was = f"--{name}" if value is True else f"--{name} {value}"
            found.changes.append(Change(was, "", "It has no effect in this conversion."))
    return quantization


def _from_quantize(values: dict[str, Any], found: Translated) -> dict[str, Any]:
    profile = _begin(values, found)
    kind = values.pop("qformat", "full_prec")
    quantization: dict[str, Any] = {"format": "none" if kind == "full_prec" else kind}
    if "kv_cache_dtype" in values:
        quantization["kvCacheDtype"] = values.pop("kv_cache_dtype")
    if "awq_block_size" in values:
        quantization["groupSize"] = values.pop("awq_block_size")
    if values.pop("quantize_lm_head", False):
        quantization["quantizeLmHead"] = True
    calibration = {new: values.pop(old) for old, new in _CALIBRATION.items() if old in values}
    if calibration:
        quantization["calibration"] = calibration
    if values.pop("export_format", "") == "hf":
        profile["recipe"] = "checkpoint"
    options = {name: values.pop(name) for name in list(values) if name in QUANTIZE_OPTIONS}
    if options:
        quantization["options"] = options
    profile["quantization"] = quantization
    if kind not in ("full_prec", *MODELOPT) and "autoq_format" not in options:
        why = "This format is made by convert_checkpoint.py here, which gives the same weights without ModelOpt."
        found.changes.append(Change(f"--qformat {kind}", f"format: {kind}", why))
    found.changes += [
        Change(" ".join(QUANTIZE[name].words(value)), "", "Not kept: the profile has no field for it.")
        for name, value in values.items()
    ]
    return profile
