"""The string parameters of a model against what its backend reads: unknown keys, values without meaning."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping

from apps.core.exceptions import Severity
from apps.serving.domain import pbtxt
from apps.serving.domain.repository_check import trtllm_parameters as known
from apps.serving.domain.repository_check.findings import Remark, at
from apps.serving.domain.repository_check.one_config import ReadConfig
from apps.serving.domain.repository_check.text_tree import VARIABLE_IN_TEXT
from apps.serving.domain.repository_check.trtllm_parameters import Parameter

_BOOLS = {"True", "true", "TRUE", "1", "False", "false", "FALSE", "0"}
_SETS = re.compile(r"\d+(,\d+)*(;\d+(,\d+)*)*\Z")
_INTS = re.compile(r"\d+(\s*,\s*\d+)*\Z")
_WHOLE = re.compile(r"[-+]?\d+\Z")


def check_parameters(read: ReadConfig, kind: str) -> Iterator[Remark]:
    """Remarks about the parameters of one model. `kind` is as `kinds.kind_of` names it."""
    config = read.config
    if config is None:
        return
    values = pbtxt.parameters(config)
    table = {"tensorrt_llm": known.TENSORRT_LLM, "llmapi": known.LLMAPI}.get(kind) or known.BY_MODEL.get(kind)
    if table is None:
        if kind == "ensemble" and values:
            yield from _acts_nowhere(read, values)
        return
    by_key = {parameter.key: parameter for parameter in table}
    for key, value in values.items():
        if key not in by_key and key not in known.PYTHON:
            yield from _unknown(read, kind, key, by_key)
        elif key in by_key and not _is_open(value):
            yield from _value(read, by_key[key], value)
    if kind == "tensorrt_llm":
        yield from _together(read, values)


def given(read: ReadConfig, key: str) -> str:
    """A parameter's value; empty where it is missing, empty or an unfilled variable."""
    value = pbtxt.parameters(read.config).get(key, "") if read.config is not None else ""
    return "" if _is_open(value) else value


def line_of(read: ReadConfig, key: str) -> int:
    """The line on which a parameter stands; 1 where that cannot be told."""
    for node in read.nodes:
        name = node.child("key") if node.name == "parameters" else None
        if name is not None and name.text == key:
            return node.line
    return 1


def _is_open(value: str) -> bool:
    return not value.strip() or VARIABLE_IN_TEXT.fullmatch(value.strip()) is not None


def _place(read: ReadConfig, key: str) -> str:
    return at(read.file, line_of(read, key), f"parameters[{key}]")


def _acts_nowhere(read: ReadConfig, values: Mapping[str, str]) -> Iterator[Remark]:
    for key in values:
        message = f"The parameter {key} acts nowhere: an ensemble has no backend that would read it."
        remedy = "Move it to the step's model that is meant."
        yield Remark("parameter_acts_nowhere", "warning", read.model, _place(read, key), message, remedy)


def _unknown(read: ReadConfig, kind: str, key: str, by_key: Mapping[str, Parameter]) -> Iterator[Remark]:
    right = ""
    if kind == "llmapi":
        right = known.LLMAPI_YAML.get(key, "")
        right = f"in 1/model.yaml: {right}" if right else ""
    elif kind == "tensorrt_llm":
        right = known.RENAMED.get(key) or known.ELSEWHERE.get(key, "")
    if not right:
        close = difflib.get_close_matches(key, list(by_key), n=1, cutoff=0.75)
        right = close[0] if close else ""
    if not right and kind != "tensorrt_llm":
        # Whoever wrote the Python model may read keys of his own; model.py says which, see python_models.
        return
    message = f"The backend reads no parameter {key}; it acts nowhere."
    remedy = f"Write {right}." if right else "Remove it."
    facts = {"key": key, "right_form": right or None}
    yield Remark("unknown_parameter", "warning", read.model, _place(read, key), message, remedy, facts)


def _value(read: ReadConfig, parameter: Parameter, value: str) -> Iterator[Remark]:
    wrong = _wrong(parameter, value.strip())
    if not wrong:
        return
    harmless = parameter.form in ("int", "ints") and parameter.default is not None
    then = f" The backend takes its default, {parameter.default}." if harmless else ""
    message = f"{parameter.key} is {value!r}: {wrong}.{then}"
    severity: Severity = "warning" if harmless else "error"
    remedy = f"Write {_example(parameter)}."
    facts = {"key": parameter.key, "value": value}
    yield Remark("parameter_value", severity, read.model, _place(read, parameter.key), message, remedy, facts)


def _wrong(parameter: Parameter, value: str) -> str:
    form = parameter.form
    if form == "bool":
        return "" if value in _BOOLS else "only True, true, TRUE, 1, False, false, FALSE and 0 are understood"
    if form == "int":
        return "" if _WHOLE.match(value) else "it is no whole number"
    if form == "choice":
        return "" if value in parameter.choices else f"it is none of {', '.join(parameter.choices)}"
    if form == "fraction":
        return _wrong_fraction(value)
    if form == "ints":
        return "" if _INTS.match(value) else "it is no list of whole numbers"
    if form == "device_sets":
        return (
            "" if _SETS.match(value) else "write numbers, with , inside an instance and ; between instances"
        )
    return ""


def _wrong_fraction(value: str) -> str:
    try:
        number = float(value)
    except ValueError:
        return "it is no number"
    return "" if 0 < number <= 1 else "it must be above 0 and at most 1"


def _example(parameter: Parameter) -> str:
    if parameter.choices:
        return parameter.choices[0]
    if parameter.form == "device_sets":
        return "0,1;2,3"
    return parameter.default or {"bool": "true", "fraction": "0.9"}.get(parameter.form, "a whole number")


def _together(read: ReadConfig, values: Mapping[str, str]) -> Iterator[Remark]:
    """Settings of the C++ backend that depend on each other."""

    def remark(id: str, severity: Severity, key: str, message: str, remedy: str) -> Remark:
        return Remark(id, severity, read.model, _place(read, key), message, remedy)

    if not given(read, "gpt_model_type") and not _is_variable(values.get("gpt_model_type", "")):
        yield remark(
            "strategy_missing",
            "error",
            "gpt_model_type",
            "gpt_model_type is missing: the backend refuses to start without it.",
            "Write inflight_fused_batching.",
        )
    if given(read, "gpt_model_type").lower() == "v1":
        yield remark(
            "static_batching_removed",
            "error",
            "gpt_model_type",
            "V1 was static batching; TensorRT-LLM 1.x refuses it.",
            "Write inflight_fused_batching.",
        )
    if given(read, "max_tokens_in_paged_kv_cache") and given(read, "kv_cache_free_gpu_mem_fraction"):
        yield remark(
            "kv_fraction_overruled",
            "info",
            "kv_cache_free_gpu_mem_fraction",
            "Both bound the KV cache; the smaller of the two decides.",
            "Keep the one that is meant.",
        )
    if given(read, "decoding_mode") == "lookahead":
        for key in ("lookahead_window_size", "lookahead_ngram_size", "lookahead_verification_set_size"):
            if not given(read, key):
                message = f"decoding_mode is lookahead, and {key} is not set: the model does not load."
                yield remark("lookahead_incomplete", "error", key, message, f"Set {key}.")
    for key in ("tokenizer_dir", "guided_decoding_backend", "xgrammar_tokenizer_info_path"):
        if key not in values and values.keys() & {"guided_decoding_backend", "xgrammar_tokenizer_info_path"}:
            message = f"TensorRT-LLM 0.17 and later look {key} up without a default: the model does not load."
            yield remark("parameter_missing", "error", key, message, f"Add {key}, with an empty value.")


def _is_variable(value: str) -> bool:
    return VARIABLE_IN_TEXT.fullmatch(value.strip()) is not None
