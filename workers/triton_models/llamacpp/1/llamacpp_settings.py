"""Settings of the model out of config.pbtxt's string parameters, typed and checked."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast

from llamacpp_contract import PARAMETERS
from llamacpp_errors import SettingsError

Strategy = Literal["none", "static", "dynamic", "inflight"]
STRATEGIES: tuple[Strategy, ...] = ("none", "static", "dynamic", "inflight")

# ggml_type numbers of ggml.h (they are part of the GGUF format and do not change).
KV_CACHE_TYPES: dict[str, int] = {
    "F32": 0,
    "F16": 1,
    "Q4_0": 2,
    "Q4_1": 3,
    "Q5_0": 6,
    "Q5_1": 7,
    "Q8_0": 8,
    "BF16": 30,
}
TRUE = frozenset({"true", "1", "yes", "on"})
FALSE = frozenset({"false", "0", "no", "off"})


@dataclass(frozen=True, slots=True)
class Settings:
    """What the engine is started with. Sizes are tokens; `threads` and `gpu_layers` are already resolved."""

    gguf_path: str
    strategy: Strategy = "inflight"
    slots: int = 8
    context_per_slot: int = 1024
    threads: int = 1
    kv_cache_type: str = "F16"
    max_queue_size: int = 256
    prefill_tokens_per_step: int = 128
    prefix_cache: bool = True
    flash_attention: bool = True
    gpu_layers: int = 0

    @property
    def max_running(self) -> int:
        """Requests that run at once: one with none (the slots stay configured), else every slot."""
        return 1 if self.strategy == "none" else self.slots

    @property
    def in_batches(self) -> bool:
        """Whether a batch that Triton formed ends together, before the next one begins."""
        return self.strategy in ("static", "dynamic")

    @property
    def kv_capacity_tokens(self) -> int:
        """Tokens that the KV cache of all slots holds."""
        return self.slots * self.context_per_slot


def read_settings(parameters: Mapping[str, str], model_folder: str, kind: str = "CPU") -> Settings:
    """Settings out of {name: string value}; `kind` is the instance's, CPU or GPU.

    Raises SettingsError naming the parameter, also for one that is not known and for a template variable that
    was never filled.
    """
    known = {parameter.name: parameter.default for parameter in PARAMETERS}
    for name, value in parameters.items():
        if name not in known:
            raise SettingsError(f"parameter {name}: not known; the parameters are {', '.join(known)}.")
        if "${" in value:
            raise SettingsError(f"parameter {name}: the template variable {value!r} was never filled.")
    values = {name: parameters.get(name, default) or default for name, default in known.items()}
    path = values["gguf_path"]
    if not path:
        raise SettingsError("parameter gguf_path: it is missing; give the path of the engine's GGUF file.")
    strategy = values["strategy"]
    if strategy not in STRATEGIES:
        raise SettingsError(
            f"parameter strategy: {strategy!r} is not known; use one of {', '.join(STRATEGIES)}."
        )
    kv_cache_type = str(values["kv_cache_type"]).upper()
    if kv_cache_type not in KV_CACHE_TYPES:
        raise SettingsError(
            f"parameter kv_cache_type: {values['kv_cache_type']!r} is not known; use one of "
            f"{', '.join(KV_CACHE_TYPES)}."
        )
    flash = _flag(values, "flash_attention")
    if not flash and kv_cache_type not in ("F32", "F16", "BF16"):
        raise SettingsError("parameter kv_cache_type: a quantised KV cache needs flash_attention true.")
    threads = _whole(values, "threads", 0, 512)
    layers = values["gpu_layers"]
    return Settings(
        gguf_path=str(Path(model_folder) / path),
        strategy=cast(Strategy, strategy),
        slots=_whole(values, "slots", 1, 256),
        context_per_slot=_whole(values, "context_per_slot", 64, 1_048_576),
        threads=threads or len(os.sched_getaffinity(0)),
        kv_cache_type=kv_cache_type,
        max_queue_size=_whole(values, "max_queue_size", 0, 100_000),
        prefill_tokens_per_step=_whole(values, "prefill_tokens_per_step", 1, 65_536),
        prefix_cache=_flag(values, "prefix_cache"),
        flash_attention=flash,
        gpu_layers=(-1 if kind == "GPU" else 0)
        if layers == "auto"
        else _whole(values, "gpu_layers", -1, 10_000),
    )


def _whole(values: Mapping[str, str | None], name: str, least: int, most: int) -> int:
    text = str(values[name]).strip()
    try:
        value = int(text)
    except ValueError:
        value = least - 1
    if not least <= value <= most:
        raise SettingsError(f"parameter {name}: {text!r} is no whole number from {least} to {most:,}.")
    return value


def _flag(values: Mapping[str, str | None], name: str) -> bool:
    text = str(values[name]).strip().lower()
    if text in TRUE:
        return True
    if text in FALSE:
        return False
    raise SettingsError(f"parameter {name}: {values[name]!r} is neither true nor false.")
