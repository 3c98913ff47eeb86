"""What tutorials show and no release ever had, with the right form."""

from __future__ import annotations

import re

from apps.core.exceptions import InvalidInput

# Programs that the package really installs, beside the scripts of its examples.
PROGRAMS = frozenset(
    {
        *("trtllm-build", "trtllm-serve", "trtllm-bench", "trtllm-eval", "trtllm-refit", "trtllm-prune"),
        *("trtllm-llmapi-launch",),
    }
)
_SERVE = "Serve with tritonserver and the tensorrtllm backend, or with trtllm-serve."
_CONVERT = (
    "Convert with convert_checkpoint.py or quantize.py of the release's examples, then run trtllm-build."
)
_INVENTED = re.compile(
    r"(?:^|[\s/;&|!$`(])((?:trt[-_]?llm|tensorrt[-_]?llm)[-_][a-z][a-z_-]*)(?=\s|$|[);&|`])"
)
_SPACED = re.compile(
    r"(?:^|[\s;&|!$(])((?:trtllm|trt-llm|tensorrt-llm|tensorrt_llm)\s+(?:build|convert|quantize|serve|server|run))\b"
)
NEVER: tuple[tuple[re.Pattern[str], str, str], ...] = (
    (
        re.compile(r"\bBuilder\s*\([^)]*\b(?:model_path|model_dir|precision|max_batch_size|engine_path)\s*="),
        "A Builder(model_path=..., precision=...) class was never in TensorRT-LLM.",
        f"{_CONVERT} Or serve the checkpoint with trtllm-serve.",
    ),
    (
        re.compile(
            r"\btensorrt_llm\.(?:Engine|LLMEngine|Model|TRTLLM\w*)\b"
            r"|\bfrom tensorrt_llm import (?:Engine|LLMEngine)\b"
        ),
        "tensorrt_llm has no class of that name.",
        "Use from tensorrt_llm import LLM.",
    ),
    (
        re.compile(
            r"\b(?:tensorrt_llm|trtllm|trt_llm)\.(?:build_engine|convert|quantize|compile|serve|optimize)\s*\("
        ),
        "tensorrt_llm has no function of that name.",
        _CONVERT,
    ),
    (
        re.compile(r"\bTensorRTLLM(?:Server|Engine|Builder|Config)?\s*\("),
        "TensorRT-LLM has no class of that name.",
        "Use from tensorrt_llm import LLM, or the programs trtllm-build and trtllm-serve.",
    ),
)


def refuse_inventions(text: str) -> None:
    """Raise InvalidInput `never_existed` where a snippet calls what no release has."""
    for pattern, what, instead in NEVER:
        if pattern.search(text):
            raise InvalidInput("never_existed", what, field="command", remedy=instead)
    for found in _INVENTED.finditer(text):
        name = found[1]
        if name in PROGRAMS or name.startswith("tensorrt_llm"):
            continue
        raise _no_program(name)
    spaced = _SPACED.search(text)
    if spaced is not None:
        raise _no_program(" ".join(spaced[1].split()))


def _no_program(name: str) -> InvalidInput:
    instead = _SERVE if re.search(r"serv|launch|run", name) else _CONVERT
    if name.replace("_", "-").replace(" ", "-").endswith("-build"):
        instead = "The program is called trtllm-build."
    return InvalidInput("never_existed", f"There is no program {name}.", field="command", remedy=instead)
