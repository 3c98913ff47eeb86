"""The model's interface as data: inputs, outputs and parameters of config.pbtxt, with their defaults.

Names and types are those of the TensorRT-LLM ensemble where it has one; what is ours is marked so in
docs/llamacpp-model.md, whose tables a test compares with these. Nothing here imports Triton or the engine.
"""

from __future__ import annotations

from dataclasses import dataclass

Value = str | int | float | bool | tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor of config.pbtxt: `type` without its TYPE_ prefix, `dims` without the batch dimension.

    `default` is what a missing optional input means, None where there is no such value.
    """

    name: str
    type: str
    dims: tuple[int, ...] = (1,)
    optional: bool = True
    default: Value = None


@dataclass(frozen=True, slots=True)
class Parameter:
    """One string parameter of config.pbtxt; `default` None means it must be given."""

    name: str
    default: str | None
    meaning: str


INPUTS: tuple[Tensor, ...] = (
    Tensor("text_input", "STRING", optional=False),
    Tensor("max_tokens", "INT32", default=256),
    Tensor("stream", "BOOL", default=False),
    Tensor("temperature", "FP32", default=1.0),
    Tensor("top_k", "INT32", default=0),
    Tensor("top_p", "FP32", default=0.0),
    Tensor("seed", "UINT64", default=0),
    Tensor("stop_words", "STRING", dims=(-1,), default=()),
    Tensor("bad_words", "STRING", dims=(-1,), default=()),
    Tensor("repetition_penalty", "FP32", default=1.0),
    Tensor("presence_penalty", "FP32", default=0.0),
    Tensor("frequency_penalty", "FP32", default=0.0),
    Tensor("min_tokens", "INT32", default=0),
    Tensor("end_id", "INT32", default=-1),
    Tensor("return_log_probs", "BOOL", default=False),
    Tensor("num_log_probs", "INT32", default=0),
    Tensor("exclude_input_in_output", "BOOL", default=True),
    Tensor("beam_width", "INT32", default=1),
    Tensor("num_return_sequences", "INT32", default=1),
)

OUTPUTS: tuple[Tensor, ...] = (
    Tensor("text_output", "STRING"),
    Tensor("token_count", "INT32"),
    Tensor("output_log_probs", "FP32", dims=(-1, -1)),
    Tensor("top_log_probs", "STRING"),
    Tensor("finish_reason", "STRING"),
    Tensor("prompt_tokens", "INT32"),
    Tensor("completion_tokens", "INT32"),
    Tensor("cached_tokens", "INT32"),
    Tensor("queue_seconds", "FP32"),
    Tensor("cum_log_probs", "FP32", dims=(-1,)),
)

PARAMETERS: tuple[Parameter, ...] = (
    Parameter("gguf_path", None, "the engine: a GGUF file; absolute, or relative to the model's folder"),
    Parameter(
        "strategy",
        "inflight",
        "inflight: requests join and leave the running batch; static, dynamic: batches that Triton forms, each "
        "ending together; none: one at a time",
    ),
    Parameter("slots", "8", "sequences the engine has room for, 1 to 256"),
    Parameter("context_per_slot", "1024", "tokens of prompt and answer together, at least 64"),
    Parameter("threads", "0", "threads that compute; 0 for every core"),
    Parameter("kv_cache_type", "F16", "F32, F16, BF16, Q8_0, Q5_1, Q5_0, Q4_1 or Q4_0"),
    Parameter(
        "max_queue_size", "256", "requests that may wait for a slot; more are refused; 0: none may wait"
    ),
    Parameter(
        "prefill_tokens_per_step", "128", "prompt tokens that one engine step takes beside the running batch"
    ),
    Parameter(
        "prefix_cache", "true", "true: a prompt's beginning that a slot still holds is not computed again"
    ),
    Parameter("flash_attention", "true", "true or false"),
    Parameter(
        "gpu_layers", "auto", "layers on a GPU; 0: none, -1: all; auto: all where the instance is KIND_GPU"
    ),
)

# A request parameter (no tensor): the class of a request, 1 the most urgent. Triton's own request parameter
# `priority` does not reach a python model, and HTTP's generate does not read it.
PRIORITY_PARAMETER = "priority_level"
# Request parameters of a request that only asks for its prompt's tokens, and its answer's finish reason.
TOKENIZE_PARAMETER, SPECIAL_PARAMETER, TOKENIZED = "tokenize_only", "add_special_tokens", "tokenized"
PRIORITY_LEVELS = 3
DEFAULT_PRIORITY = 2

# Inputs of the TensorRT-LLM ensemble that this engine has nothing for. Triton refuses them as tensors because
# they are not declared; over HTTP's generate they would arrive as request parameters, which are refused here.
UNSUPPORTED_INPUTS: frozenset[str] = frozenset(
    {
        "decoder_text_input",
        "decoder_input_lengths",
        "draft_input_ids",
        "early_stopping",
        "embedding_bias_words",
        "embedding_bias_weights",
        "guided_decoding_guide",
        "guided_decoding_guide_type",
        "image_input",
        "image_bytes_input",
        "image_url_input",
        "video_bytes_input",
        "length_penalty",
        "len_penalty",
        "beam_search_diversity_rate",
        "lora_config",
        "lora_task_id",
        "lora_weights",
        "no_repeat_ngram_size",
        "num_draft_tokens",
        "pad_id",
        "prompt_embedding_table",
        "prompt_table_extra_id",
        "prompt_vocab_size",
        "random_seed",
        "min_length",
        "return_context_logits",
        "return_generation_logits",
        "runtime_top_k",
        "runtime_top_p",
        "top_p_min",
        "top_p_decay",
        "top_p_reset_ids",
        "use_draft_logits",
    }
)
