"""A pasted trtllm-build, convert_checkpoint.py or quantize.py line becomes a profile, and a list of what changed.

Old tutorials write flags that are gone, flags without their value and programs that never existed; each is named with
what takes its place. Nothing of the line is run.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from apps.core.exceptions import Finding, InvalidInput
from apps.engines.domain.trtllm.build_flags import BY_NAME, GONE
from apps.engines.domain.trtllm.conversion_flags import CONVERT, QUANTIZE
from apps.engines.domain.trtllm.flag import Flag, Version, parse_version

NEWEST = "1.2.1"
# What tutorials show and no release ever had, with the right form.
NEVER: tuple[tuple[re.Pattern[str], str, str], ...] = (
    (
        re.compile(r"\bBuilder\s*\(\s*(?:\w+\s*=\s*)?[^)]*(?:model_path|precision)"),
        "A Builder(model_path=..., precision=...) class was never in TensorRT-LLM.",
        "Convert with convert_checkpoint.py and run trtllm-build, or serve the checkpoint with trtllm-serve.",
    ),
    (
        re.compile(r"\btrt_llm_server\b|\btrtllm_server\b|\btrtllm-server\b"),
        "There is no program trt_llm_server.",
        "Serve with tritonserver, or with trtllm-serve.",
    ),
    (
        re.compile(r"\btrtllm-convert\b|\btrtllm-quantize\b"),
        "There is no program of that name.",
        "Use convert_checkpoint.py or quantize.py of the release's examples.",
    ),
    (
        re.compile(r"\btensorrt_llm\.Engine\b|\bfrom tensorrt_llm import Engine\b"),
        "tensorrt_llm has no Engine.",
        "Use from tensorrt_llm import LLM.",
    ),
)
_PROGRAMS = {
    "trtllm-build": "build",
    "convert_checkpoint.py": "convert",
    "quantize.py": "quantize",
    "build.py": "build",
}
_TABLES: dict[str, dict[str, Flag]] = {"build": BY_NAME, "convert": CONVERT, "quantize": QUANTIZE}
_SHORT = {"sq": "smoothquant"}
_OURS = {
    "build": {"checkpoint_dir", "output_dir", "output_timing_cache", "input_timing_cache"},
    "convert": {"output_dir"},
    "quantize": {"output_dir"},
}


@dataclass(frozen=True, slots=True)
class Change:
    """One thing that was not taken over as written: `was` and `now` as text, `why` in a sentence."""

    was: str
    now: str
    why: str


@dataclass(slots=True)
class Translated:
    """`profile` holds the fields of a BuildProfile document (without its checkpoint), `model` the source's folder."""

    program: str
    profile: dict[str, Any] = field(default_factory=dict)
    model: str = ""
    changes: list[Change] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)


def translate(text: str, release: str = NEWEST) -> Translated:
    """Read one pasted command. Raises InvalidInput where it is none that is known."""
    for pattern, what, instead in NEVER:
        if pattern.search(text):
            raise InvalidInput("never_existed", what, field="command", remedy=instead)
    words = _split(text)
    kind, rest = _program(words)
    found = Translated(kind)
    given = _read(kind, rest, found)
    _sort(kind, given, parse_version(release), found)
    return found


def _split(text: str) -> list[str]:
    joined = re.sub(r"\\[ \t]*\n", " ", text.strip())
    if re.search(r"\\[ \t]+\S", joined):
        raise InvalidInput(
            "shell_line_continuation",
            "A backslash is followed by a space and more text, so the shell would end the command there.",
            field="command",
            remedy="Put the backslash at the very end of each line.",
        )
    try:
        return shlex.split(joined, comments=True)
    except ValueError as error:
        raise InvalidInput(
            "command_unreadable",
            f"The quotes do not close ({error}).",
            field="command",
            remedy="Paste it whole.",
        ) from error


def _program(words: list[str]) -> tuple[str, list[str]]:
    for index, word in enumerate(words):
        name = word.rsplit("/", 1)[-1]
        if name in _PROGRAMS:
            return _PROGRAMS[name], words[index + 1 :]
    raise InvalidInput(
        "command_unknown",
        "This calls neither trtllm-build nor convert_checkpoint.py nor quantize.py.",
        field="command",
        remedy="Paste the whole line, beginning with the program.",
    )


def _read(kind: str, words: list[str], found: Translated) -> dict[str, list[str]]:
    given: dict[str, list[str]] = {}
    name = ""
    for word in words:
        if word.startswith("--") or (word.startswith("-") and word[1:] in _SHORT):
            name, _equals, value = word.lstrip("-").partition("=")
            name = _full_name(kind, _SHORT.get(name, name).replace("-", "_"))
            given[name] = [value] if value else []
        elif word in ("&&", ";", "|", ">", "2>&1"):
            break
        elif name:
            given[name].append(word)
        else:
            message = f"{word} belongs to no flag."
            found.findings.append(Finding("stray_word", "warning", message, "command", "Remove it."))
    return given


def _full_name(kind: str, name: str) -> str:
    """argparse takes any prefix that only one flag has."""
    table = _TABLES[kind]
    if name in table or name in GONE:
        return name
    longer = {flag.name for known, flag in table.items() if known.startswith(name)}
    return longer.pop() if len(longer) == 1 else name


def _sort(kind: str, given: Mapping[str, list[str]], release: Version, found: Translated) -> None:
    values: dict[str, Any] = {}
    for name, words in given.items():
        flag = _TABLES[kind].get(name)
        written = " ".join([f"--{name}", *words])
        if flag is None or not flag.known_in(release):
            _gone(kind, name, words, written, given, values, found)
        elif flag.name in _OURS[kind]:
            found.changes.append(Change(written, "", "Inflight chooses this folder for each attempt."))
        else:
            _take(flag, words, written, values, found)
    if kind == "build":
        found.profile = {"builder": "trtllm", "recipe": "engine", "build": values}
    elif kind == "convert":
        found.profile = _from_convert(values, found)
    else:
        found.profile = _from_quantize(values, found)


def _take(flag: Flag, words: list[str], written: str, values: dict[str, Any], found: Translated) -> None:
    if not words and flag.form == "onoff":
        found.changes.append(
            Change(written, f"{flag.option} enable", "The flag takes enable or disable today.")
        )
        values[flag.name] = "enable"
        return
    if flag.form == "switch":
        values[flag.name] = True
        if words and words[0] not in ("true", "True", "1"):
            found.changes.append(Change(written, flag.option, "The flag takes no value."))
        return
    if flag.name == "paged_kv_cache":
        kind = "paged" if not words or words[0] == "enable" else "continuous"
        found.changes.append(Change(written, f"--kv_cache_type {kind}", "paged_kv_cache is deprecated."))
        values["kv_cache_type"] = kind
        return
    value = _parsed(flag, words)
    if why := flag.problem(value):
        message = f"{written}: {why}."
        found.findings.append(Finding("flag_value", "error", message, flag.name, "Correct the value."))
    values[flag.name] = value


def _parsed(flag: Flag, words: list[str]) -> Any:
    if flag.form == "words":
        return list(words)
    text = " ".join(words)
    try:
        if flag.form == "int":
            return int(text)
        if flag.form == "float":
            return float(text)
    except ValueError:
        return text
    return text


def _gone(
    kind: str,
    name: str,
    words: list[str],
    written: str,
    given: Mapping[str, list[str]],
    values: dict[str, Any],
    found: Translated,
) -> None:
    if kind == "build" and name == "max_output_len":
        prompt, answer = _number(given.get("max_input_len"), 1024), _number(words, 0)
        if "max_seq_len" not in given and answer:
            values["max_seq_len"] = prompt + answer
            why = f"max_seq_len is prompt and answer together: {prompt} + {answer}."
            found.changes.append(Change(written, f"--max_seq_len {prompt + answer}", why))
            return
    if kind == "build" and name in ("tp_size", "pp_size") and _number(words, 1) > 1:
        parallel = found.findings
        message = f"{written} changes nothing in a build: the conversion fixes the ranks."
        parallel.append(
            Finding("build_flag_does_not_set_tp", "warning", message, name, "Set parallel in the profile.")
        )
    if kind == "build" and name in ("use_gpt_attention_plugin", "use_gemm_plugin"):
        new = name.removeprefix("use_")
        values[new] = words[0] if words else "auto"
        found.changes.append(Change(written, f"--{new} {values[new]}", "The flag was renamed."))
        return
    if kind == "build" and name == "enable_context_fmha":
        values["context_fmha"] = "enable"
        found.changes.append(Change(written, "--context_fmha enable", "The flag was renamed."))
        return
    instead = GONE.get(name, "") if kind == "build" else ""
    if instead or (kind == "build" and name in BY_NAME):
        found.changes.append(
            Change(written, "", f"Gone; use {instead}." if instead else "Gone in this release.")
        )
        return
    message = f"No release has {written}."
    found.findings.append(Finding("unknown_flag", "error", message, name, "Check its spelling."))


def _number(words: list[str] | None, default: int) -> int:
    return int(words[0]) if words and words[0].isdecimal() else default


def _ranks(values: dict[str, Any]) -> dict[str, int]:
    ranks = {name: values.pop(f"{name}_size") for name in ("tp", "pp") if f"{name}_size" in values}
    return {name: size for name, size in ranks.items() if isinstance(size, int)}


def _from_convert(values: dict[str, Any], found: Translated) -> dict[str, Any]:
    found.model = str(values.pop("model_dir", ""))
    profile: dict[str, Any] = {"builder": "trtllm", "recipe": "engine"}
    if parallel := _ranks(values):
        profile["parallel"] = parallel
    if "dtype" in values:
        profile["dtype"] = values.pop("dtype")
    quantization: dict[str, Any] = {}
    if values.pop("use_weight_only", False):
        precision = values.pop("weight_only_precision", "int8")
        kind = {
            "int8": "int8_wo",
            "int4": "int4_wo",
            "int4_gptq": "gptq",
            "int8_gptq": "gptq",
            "int4_awq": "awq",
        }
        quantization["format"] = kind.get(precision, precision)
        values.pop("per_group", None)
        if "group_size" in values:
            quantization["groupSize"] = values.pop("group_size")
        if "quant_ckpt_path" in values:
            quantization["weights"] = values.pop("quant_ckpt_path")
    elif "smoothquant" in values:
        quantization = {"format": "int8_sq", "smoothquant": values.pop("smoothquant")}
        quantization["perChannel"] = bool(values.pop("per_channel", False))
        quantization["perToken"] = bool(values.pop("per_token", False))
    elif values.pop("use_fp8_rowwise", False):
        quantization["format"] = "fp8_rowwise"
    for dtype in ("int8", "fp8"):
        if values.pop(f"{dtype}_kv_cache", False):
            quantization["kvCacheDtype"] = dtype
    if quantization:
        profile["quantization"] = quantization
    if values:
        profile["convert"] = values
    return profile


def _from_quantize(values: dict[str, Any], found: Translated) -> dict[str, Any]:
    found.model = str(values.pop("model_dir", ""))
    profile: dict[str, Any] = {"builder": "trtllm"}
    if parallel := _ranks(values):
        profile["parallel"] = parallel
    if "dtype" in values:
        profile["dtype"] = values.pop("dtype")
    kind = values.pop("qformat", "full_prec")
    quantization: dict[str, Any] = {"format": "none" if kind == "full_prec" else kind}
    if "kv_cache_dtype" in values:
        quantization["kvCacheDtype"] = values.pop("kv_cache_dtype")
    if "awq_block_size" in values:
        quantization["groupSize"] = values.pop("awq_block_size")
    if values.pop("quantize_lm_head", False):
        quantization["quantizeLmHead"] = True
    names = {"calib_dataset": "dataset", "calib_size": "size", "calib_max_seq_length": "maxSeqLength"}
    names["batch_size"] = "batchSize"
    calibration = {new: values.pop(old) for old, new in names.items() if old in values}
    if calibration:
        quantization["calibration"] = calibration
    profile["quantization"] = quantization
    found.changes += [
        Change(" ".join(QUANTIZE[name].words(value)), "", "Not kept: the profile has no field for it.")
        for name, value in values.items()
    ]
    return profile
