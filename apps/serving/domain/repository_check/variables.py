"""Unfilled `${...}` variables of the TensorRT-LLM templates: which must be filled, with what, and which may stay.

A variable that stands bare is no protobuf value and the file cannot be read. One inside quotes is a string like any
other: the backend warns and takes its default, unless the key means nothing without a value.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from apps.serving.domain.repository_check.findings import Remark, at
from apps.serving.domain.repository_check.text_tree import VARIABLE_IN_TEXT, Node, Token

# Variables that stand bare in the templates of 0.5 to 1.2, and the value that suits most.
BARE: dict[str, str] = {
    "triton_max_batch_size": "8",
    "max_batch_size": "8",
    "decoupled_mode": "true",
    "max_queue_delay_microseconds": "0",
    "max_queue_size": "0",
    "preprocessing_instance_count": "1",
    "postprocessing_instance_count": "1",
    "bls_instance_count": "1",
    "disaggregated_serving_bls_count": "1",
    "logits_datatype": "TYPE_FP32",
    "encoder_input_features_data_type": "TYPE_FP16",
    "prompt_embedding_table_data_type": "TYPE_FP16",
}
# What stands above for them only lets the rest of a file be read: the engine and the use decide.
_NO_DEFAULT = frozenset({"triton_max_batch_size", "max_batch_size", "decoupled_mode", "bls_instance_count"})
# Which release's template asks for it first; a value set made for an older one does not have it.
SINCE: dict[str, str] = {
    "encoder_input_features_data_type": "0.15",
    "logits_datatype": "0.17",
    "prompt_embedding_table_data_type": "1.0",
    "max_queue_size": "0.13",
}
_MEANINGS: dict[str, str] = {
    "triton_max_batch_size": "the same batch size in every model of the repository, at most the engine's",
    "decoupled_mode": "true to stream, false to answer in one piece; the same in tensorrt_llm and tensorrt_llm_bls",
    "bls_instance_count": "how many requests the BLS model handles at once: the engine's batch size",
    "logits_datatype": "TYPE_FP32, or TYPE_FP16 where the engine was built with --logits_dtype float16",
    "encoder_input_features_data_type": "TYPE_FP16, TYPE_BF16 for mllama",
}
# Variables inside quotes whose absence stops the model: what they mean, and the finding's severity.
NEEDED: dict[str, str] = {
    "engine_dir": "the folder of the engine",
    "tokenizer_dir": "the folder of the tokenizer",
    "batching_strategy": "inflight_fused_batching",
    "triton_backend": "tensorrtllm or python",
}
# Variables of kind NEEDED that need no value in these models: their code reads them for multimodal input alone.
_UNUSED_IN = {"preprocessing": {"engine_dir"}, "tensorrt_llm": {"tokenizer_dir"}}


def name_of(token: Token) -> str:
    """The variable's name: `x` of `${x}` and `$x`."""
    return token.text.strip("${}").strip()


def stand_in(token: Token, node: Node) -> str:
    """A value with which the rest of the file can be read."""
    name = name_of(token)
    if name in BARE:
        return BARE[name]
    if node.name == "data_type":
        return "TYPE_FP32"
    return "true" if node.name in ("decoupled", "optional", "enable") else "1"


def bare(nodes: Iterable[Node], model: str, file: str) -> Iterator[Remark]:
    """Remarks about variables outside quotes."""
    for top in nodes:
        for node in top.walk():
            for token in node.values:
                if token.kind == "variable":
                    yield _bare(token, node, model, file)


def _bare(token: Token, node: Node, model: str, file: str) -> Remark:
    name = name_of(token)
    value = BARE.get(name)
    since = SINCE.get(name)
    message = f"The variable {name} is not filled in, and {node.name} needs a value: the file cannot be read."
    if since:
        message += f" Templates since {since} have it; the values were made for an older one."
    remedy = f"Write {_MEANINGS.get(name) or value}." if name in BARE else f"Give {node.name} a value."
    default = None if name in _NO_DEFAULT else value
    facts = {"variable": name, "default": default, "kind": "bare", "line": node.line, "since": since}
    return Remark(
        "unfilled_placeholder", "error", model, at(file, node.line, node.name), message, remedy, facts
    )


def quoted(nodes: Iterable[Node], model: str, file: str) -> Iterator[Remark]:
    """Remarks about variables inside quotes."""
    for top in nodes:
        for node in top.walk():
            for token in node.values:
                if token.kind == "string":
                    for found in VARIABLE_IN_TEXT.finditer(token.text):
                        yield _quoted(found[1].strip(), node, model, file)


def _quoted(name: str, node: Node, model: str, file: str) -> Remark:
    facts = {"variable": name, "default": None, "kind": "string", "line": node.line}
    where = at(file, node.line, node.name)
    needed = NEEDED.get(name)
    if node.name in ("name", "platform", "backend", "model_name", "default_model_filename"):
        message = f"The variable {name} is not filled in, so {node.name} is the text ${{{name}}}."
        remedy = f"Write {needed or 'the name that is meant'}."
        return Remark("unfilled_placeholder", "error", model, where, message, remedy, facts)
    if needed and name not in _UNUSED_IN.get(model, ()):
        message = f"The variable {name} is not filled in; the model does not start without it."
        return Remark("unfilled_placeholder", "error", model, where, message, f"Write {needed}.", facts)
    message = f"The variable {name} is not filled in; it stands in quotes, so the default is used."
    remedy = "Leave it, or write an empty string."
    return Remark("unfilled_placeholder", "info", model, where, message, remedy, facts)
