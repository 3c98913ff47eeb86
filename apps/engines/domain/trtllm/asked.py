"""What a request says about one flag, defaults included, and how rules say what they found."""

from __future__ import annotations

from typing import Any

from apps.core.exceptions import Finding
from apps.engines.domain.trtllm.build_flags import BY_NAME
from apps.engines.domain.trtllm.request import BuildRequest

ON = (True, "enable")
OFF = (False, "disable")
FLOATS = ("float16", "bfloat16", "float32")
# Formats whose engines have FP8 attention for prompts, so that an FP8 KV cache costs nothing.
FP8_WEIGHTS = frozenset({"fp8", "fp8_rowwise", "nvfp4", "w4a8_awq"})
# Formats that quantize.py makes by calibration.
MODELOPT = frozenset({"fp8", "nvfp4", "int4_awq", "w4a8_awq"})
GROUPED = frozenset({"int4_awq", "w4a8_awq", "gptq", "gptq_int8", "awq"})
# Formats whose weights were quantised by somebody else.
READY_MADE = frozenset({"gptq", "gptq_int8", "awq"})


def value(request: BuildRequest, name: str) -> Any:
    """The value of a build flag: what was asked for, else the program's default."""
    given = request.build.get(name)
    if given is None:
        given = next(
            (request.build[alias] for alias in BY_NAME[name].aliases if alias in request.build), None
        )
    return BY_NAME[name].default if given is None else given


def whole(request: BuildRequest, name: str) -> int | None:
    """The same as a whole number; None where it is none."""
    found = value(request, name)
    return found if isinstance(found, int) and not isinstance(found, bool) else None


def on(request: BuildRequest, name: str) -> bool:
    """Whether a build flag is on."""
    return value(request, name) in ON


def packed(request: BuildRequest) -> bool:
    """Inputs without padding and fused attention: the builder then ignores max_input_len."""
    return value(request, "remove_input_padding") not in OFF and value(request, "context_fmha") not in OFF


def paged_context(request: BuildRequest) -> bool:
    """Whether prompts use attention over paged blocks once the builder has derived what it derives."""
    kv, weights = request.quantization.kv_cache, request.quantization.format
    if kv == "int8" or (kv == "fp8" and weights not in FP8_WEIGHTS):
        return False
    return value(request, "context_fmha") not in OFF and value(request, "use_paged_context_fmha") not in OFF


def error(id: str, where: str, message: str, remedy: str) -> Finding:
    """Refused."""
    return Finding(id, "error", message, where, remedy)


def warn(id: str, where: str, message: str, remedy: str) -> Finding:
    """Built, yet not what one might expect."""
    return Finding(id, "warning", message, where, remedy)


def note(id: str, where: str, message: str, remedy: str = "") -> Finding:
    """Worth knowing."""
    return Finding(id, "info", message, where, remedy)
