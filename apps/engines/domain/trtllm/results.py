"""What a build left, against what it was asked for: exit 0 is not success (reference 2.3, 3.6 and 3.7).

The caller hands over config.json as it was read and the sizes of the files beside it; nothing is opened here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from apps.core.exceptions import Finding
from apps.engines.domain.trtllm.request import BuildRequest

ENGINE, WEIGHTS = ".engine", ".safetensors"
# Limits that an engine keeps, by the flag that asks for them. The builder itself lowers or raises the others.
EXACT = ("max_batch_size", "max_beam_width")
# These it may clamp with a warning (reference 2.4), so an engine may have less, never silently more.
AT_MOST = ("max_num_tokens",)
LIMITS = (
    "max_batch_size",
    "max_input_len",
    "max_seq_len",
    "max_num_tokens",
    "opt_num_tokens",
    "max_beam_width",
)
DTYPES = frozenset({"float16", "bfloat16", "float32"})


@dataclass(frozen=True, slots=True)
class Made:
    """What config.json says of a whole result. `limits` holds those that are there."""

    world_size: int
    dtype: str
    architecture: str = ""
    version: str = ""
    tp: int = 1
    pp: int = 1
    quant_algo: str = ""
    kv_cache_quant_algo: str = ""
    limits: dict[str, int] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """For the manifest."""
        return {
            "architecture": self.architecture,
            "dtype": self.dtype,
            "world_size": self.world_size,
            "tp": self.tp,
            "pp": self.pp,
            "quant_algo": self.quant_algo or None,
            "kv_cache_quant_algo": self.kv_cache_quant_algo or None,
            "limits": dict(self.limits),
        }


def check_engine(
    config: Any, sizes: Mapping[str, int], request: BuildRequest
) -> tuple[Made | None, list[Finding]]:
    """A folder that trtllm-build wrote. `config` is None where config.json is missing or no JSON object."""
    if not isinstance(config, Mapping):
        return None, [_unreadable("The engine's")]
    pretrained, build = config.get("pretrained_config"), config.get("build_config")
    if not isinstance(pretrained, Mapping) or not isinstance(build, Mapping):
        return None, [_unreadable("The engine's", "it has no pretrained_config and build_config")]
    made, found = _read(pretrained, request)
    if made is None:
        return None, found
    limits = {name: build[name] for name in LIMITS if _whole(build.get(name))}
    whole = Made(
        **{name: getattr(made, name) for name in ("world_size", "dtype", "architecture", "tp", "pp")},
        quant_algo=made.quant_algo,
        kv_cache_quant_algo=made.kv_cache_quant_algo,
        version=str(config.get("version") or ""),
        limits=limits,
    )
    return whole, [*found, *_ranks(whole.world_size, sizes, ENGINE), *_limits(request, limits)]


def check_checkpoint(
    config: Any, sizes: Mapping[str, int], request: BuildRequest
) -> tuple[Made | None, list[Finding]]:
    """A folder that convert_checkpoint.py or quantize.py wrote for trtllm-build."""
    if not isinstance(config, Mapping):
        return None, [_unreadable("The checkpoint's")]
    made, found = _read(config, request)
    if made is None:
        return None, found
    return made, [*found, *_ranks(made.world_size, sizes, WEIGHTS)]


def check_hugging_face(config: Any, sizes: Mapping[str, int]) -> list[Finding]:
    """A folder that quantize.py exported in Hugging Face form for the PyTorch backend."""
    if not isinstance(config, Mapping) or not config.get("architectures"):
        return [_unreadable("The exported checkpoint's")]
    if not any(name.endswith(WEIGHTS) and size > 0 for name, size in sizes.items()):
        return [_finding("weights_missing", "The export ended well but left no safetensors file.", "weights")]
    return []


def _read(pretrained: Mapping[str, Any], request: BuildRequest) -> tuple[Made | None, list[Finding]]:
    mapping = pretrained.get("mapping")
    mapping = mapping if isinstance(mapping, Mapping) else {}
    tp, pp, cp = (mapping.get(name, 1) for name in ("tp_size", "pp_size", "cp_size"))
    world = mapping.get("world_size", 1)
    if not all(_whole(value) and value > 0 for value in (tp, pp, cp, world)):
        return None, [_unreadable("Its", "mapping holds no numbers of ranks")]
    quantization = pretrained.get("quantization")
    quantization = quantization if isinstance(quantization, Mapping) else {}
    made = Made(
        world_size=world,
        dtype=str(pretrained.get("dtype", "")),
        architecture=str(pretrained.get("architecture", "")),
        tp=tp,
        pp=pp,
        quant_algo=str(quantization.get("quant_algo") or ""),
        kv_cache_quant_algo=str(quantization.get("kv_cache_quant_algo") or ""),
    )
    return made, _against(made, cp, request)


def _against(made: Made, cp: int, request: BuildRequest) -> list[Finding]:
    found: list[Finding] = []
    asked = request.parallel
    if (made.tp, made.pp, cp) != (asked.tp, asked.pp, asked.cp) or made.world_size != asked.world:
        message = (
            f"It was made for {made.world_size} ranks (tp {made.tp}, pp {made.pp}, cp {cp}); asked were "
            f"{asked.world} (tp {asked.tp}, pp {asked.pp}, cp {asked.cp})."
        )
        found.append(_finding("world_size_differs", message, "parallel"))
    if made.dtype not in DTYPES or (request.dtype != "auto" and made.dtype != request.dtype):
        message = f"Its data type is {made.dtype or 'not named'}; asked was {request.dtype}."
        found.append(_finding("dtype_differs", message, "dtype"))
    kv = {"fp8": "FP8", "int8": "INT8"}.get(request.quantization.kv_cache, "")
    if kv and made.kv_cache_quant_algo != kv:
        message = f"Its KV cache is {made.kv_cache_quant_algo or '16 bit'}; asked was {kv}."
        found.append(_finding("kv_cache_differs", message, "quantization.kvCacheDtype"))
    if request.quantization.format not in ("none", "gptq", "awq") and not made.quant_algo:
        message = f"Its weights are not quantised; asked was {request.quantization.format}."
        found.append(_finding("quantization_differs", message, "quantization"))
    return found


def _ranks(world: int, sizes: Mapping[str, int], suffix: str) -> list[Finding]:
    names = [f"rank{rank}{suffix}" for rank in range(world)]
    missing = [name for name in names if name not in sizes]
    empty = [name for name in names if sizes.get(name) == 0]
    found = []
    if missing:
        message = f"{len(missing)} of {world} ranks are missing: {', '.join(missing[:4])}."
        found.append(_finding("rank_missing", message, missing[0]))
    if empty:
        message = f"{', '.join(empty[:4])} {'is' if len(empty) == 1 else 'are'} empty."
        found.append(_finding("rank_empty", message, empty[0]))
    return found


def _limits(request: BuildRequest, limits: Mapping[str, int]) -> list[Finding]:
    found = []
    for name in (*EXACT, *AT_MOST):
        asked, got = request.build.get(name), limits.get(name)
        if not isinstance(asked, int) or isinstance(asked, bool) or got is None:
            continue
        if got != asked if name in EXACT else got > asked:
            message = f"Its {name} is {got}; asked was {asked}."
            found.append(_finding("limit_differs", message, f"build.{name}"))
    return found


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _unreadable(whose: str, why: str = "it is missing, cut off or no JSON object") -> Finding:
    return _finding(
        "engine_config_json_unreadable", f"{whose} config.json cannot be used: {why}.", "config.json"
    )


def _finding(code: str, message: str, where: str) -> Finding:
    return Finding(code, "error", message, where, "Read the log of that stage; then build again.")
