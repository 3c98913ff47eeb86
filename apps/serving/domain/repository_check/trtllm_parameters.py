"""Parameters of the TensorRT-LLM models in a Triton repository: key, template variable, form, default, meaning.

Source: the templates and the C++ backend's reader of 0.19 to 1.2. A key that none of them reads acts nowhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Form = Literal["bool", "int", "fraction", "text", "path", "ints", "choice", "device_sets"]


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter. `default` is what the backend takes where it is missing or empty; None: it depends."""

    key: str
    form: Form
    variable: str = ""
    default: str | None = None
    choices: tuple[str, ...] = ()
    meaning: str = ""

    @property
    def template_variable(self) -> str:
        """The name that fill_template.py knows."""
        return self.variable or self.key


_P = Parameter
SCHEDULERS = ("guaranteed_no_evict", "max_utilization")
STRATEGIES = ("inflight_fused_batching", "inflight_batching", "V1", "v1")
DECODING = ("top_k", "top_p", "top_k_top_p", "beam_search", "medusa", "redrafter", "lookahead", "eagle")

TENSORRT_LLM: tuple[Parameter, ...] = (
    _P("gpt_model_type", "choice", "batching_strategy", None, STRATEGIES, "how the engine batches"),
    _P("gpt_model_path", "path", "engine_dir", None, meaning="folder of the engine"),
    _P("encoder_model_path", "path", "encoder_engine_dir", "", meaning="folder of the encoder's engine"),
    _P("max_beam_width", "int", default="1"),
    _P(
        "max_tokens_in_paged_kv_cache",
        "int",
        meaning="size of the KV cache in tokens; overrules the fraction",
    ),
    _P(
        "kv_cache_free_gpu_mem_fraction", "fraction", default="0.9", meaning="share of the free memory for KV"
    ),
    _P(
        "cross_kv_cache_fraction", "fraction", meaning="share of it for cross attention; encoder-decoder only"
    ),
    _P("max_attention_window_size", "ints", meaning="sliding window of each layer, repeated as a pattern"),
    _P("sink_token_length", "int", default="0"),
    _P(
        "batch_scheduler_policy",
        "choice",
        "",
        "guaranteed_no_evict",
        SCHEDULERS,
        "what is admitted to a step",
    ),
    _P("enable_kv_cache_reuse", "bool", default="true", meaning="prefixes of earlier prompts are kept"),
    _P("kv_cache_host_memory_bytes", "int", default="0", meaning="host memory for evicted KV blocks"),
    _P("kv_cache_onboard_blocks", "bool", default="true"),
    _P("enable_chunked_context", "bool", default="false", meaning="long prompts are computed in pieces"),
    _P(
        "exclude_input_in_output", "bool", default="false", meaning="the prompt is not repeated in the answer"
    ),
    _P("normalize_log_probs", "bool", default="true"),
    _P("cancellation_check_period_ms", "int", default="100"),
    _P("stats_check_period_ms", "int", default="100"),
    _P("iter_stats_max_iterations", "int", default="1000"),
    _P("request_stats_max_iterations", "int", default="0"),
    _P("gpu_device_ids", "device_sets", meaning="GPUs of each instance: , inside one, ; between them"),
    _P("participant_ids", "device_sets", meaning="MPI ranks of each instance"),
    _P("num_nodes", "int", default="1"),
    _P("decoding_mode", "choice", "", None, DECODING),
    _P("lookahead_window_size", "int"),
    _P("lookahead_ngram_size", "int"),
    _P("lookahead_verification_set_size", "int"),
    _P("medusa_choices", "text"),
    _P("eagle_choices", "text"),
    _P("speculative_decoding_fast_logits", "bool", default="false"),
    _P(
        "gpu_weights_percent",
        "fraction",
        default="1.0",
        meaning="needs an engine built with weight streaming",
    ),
    _P("enable_context_fmha_fp32_acc", "bool", default="false"),
    _P("multi_block_mode", "bool", default="true"),
    _P("cuda_graph_mode", "bool", default="false"),
    _P("cuda_graph_cache_size", "int", default="0"),
    _P("lora_cache_optimal_adapter_size", "int", default="8"),
    _P("lora_cache_max_adapter_size", "int", default="64"),
    _P("lora_cache_gpu_memory_fraction", "fraction", default="0.05"),
    _P("lora_cache_host_memory_bytes", "int", default="1073741824"),
    _P("lora_prefetch_dir", "path"),
    _P("executor_worker_path", "path"),
    _P("tokenizer_dir", "path"),
    _P("guided_decoding_backend", "choice", "", None, ("xgrammar", "llguidance")),
    _P("xgrammar_tokenizer_info_path", "path"),
    _P("recv_poll_period_ms", "int", default="0"),
    _P("FORCE_CPU_ONLY_INPUT_TENSORS", "text", default="no"),
)
_TOKENIZER = _P("tokenizer_dir", "path", meaning="folder of the tokenizer")
PREPROCESSING: tuple[Parameter, ...] = (
    _TOKENIZER,
    _P("add_special_tokens", "bool", default="true", meaning="a BOS is put before the prompt"),
    _P("visual_model_path", "path"),
    _P("multimodal_model_path", "path"),
    _P("gpt_model_path", "path", "engine_dir"),
    _P("max_num_images", "int"),
    _P("tokenizer_type", "text"),
)
POSTPROCESSING: tuple[Parameter, ...] = (
    _TOKENIZER,
    _P("skip_special_tokens", "bool", default="true"),
    _P("tokenizer_type", "text"),
)
BLS: tuple[Parameter, ...] = (
    _P("accumulate_tokens", "bool", default="false", meaning="each message carries the whole text so far"),
    _P("tensorrt_llm_model_name", "text", default="tensorrt_llm"),
    _P("tensorrt_llm_draft_model_name", "text"),
    _P("multimodal_encoders_name", "text"),
)
MULTIMODAL: tuple[Parameter, ...] = (
    _P("multimodal_model_path", "path"),
    _P("visual_model_path", "path"),
    _P("hf_model_path", "path"),
)
LLMAPI: tuple[Parameter, ...] = (_P("gpu_device_ids", "device_sets"),)
# Read by Triton's python backend itself.
PYTHON = frozenset({"EXECUTION_ENV_PATH", "FORCE_CPU_ONLY_INPUT_TENSORS", "TRITON_BATCH_STRATEGY_PATH"})

# Names that people write, and the key that the C++ backend reads.
RENAMED: dict[str, str] = {
    "batching_strategy": "gpt_model_type",
    "engine_dir": "gpt_model_path",
    "engine_path": "gpt_model_path",
    "model_path": "gpt_model_path",
    "encoder_engine_dir": "encoder_model_path",
    "kv_cache_free_gpu_memory_fraction": "kv_cache_free_gpu_mem_fraction",
    "free_gpu_memory_fraction": "kv_cache_free_gpu_mem_fraction",
    "kv_cache_fraction": "kv_cache_free_gpu_mem_fraction",
    "max_kv_cache_length": "max_attention_window_size",
    "max_attention_window": "max_attention_window_size",
    "enable_block_reuse": "enable_kv_cache_reuse",
    "kv_cache_reuse": "enable_kv_cache_reuse",
    "max_tokens_in_kv_cache": "max_tokens_in_paged_kv_cache",
    "max_tokens": "max_tokens_in_paged_kv_cache",
    "scheduler_policy": "batch_scheduler_policy",
    "capacity_scheduler_policy": "batch_scheduler_policy",
    "chunked_context": "enable_chunked_context",
    "enable_chunked_prefill": "enable_chunked_context",
    "worker_path": "executor_worker_path",
    "gpu_ids": "gpu_device_ids",
    "device_ids": "gpu_device_ids",
    "exclude_input_from_output": "exclude_input_in_output",
    "beam_width": "max_beam_width",
}
# Names that are no parameter of the backend at all, and where the setting lives.
ELSEWHERE: dict[str, str] = {
    "decoupled_mode": "model_transaction_policy { decoupled: true }",
    "decoupled": "model_transaction_policy { decoupled: true }",
    "max_batch_size": "max_batch_size at the top level, and --max_batch_size of the build",
    "triton_max_batch_size": "max_batch_size at the top level",
    "max_num_tokens": "--max_num_tokens of the build",
    "max_seq_len": "--max_seq_len of the build",
    "max_input_len": "--max_input_len of the build",
    "max_output_len": "--max_seq_len of the build",
    "max_queue_delay_microseconds": "dynamic_batching { max_queue_delay_microseconds: 0 }",
    "max_queue_size": "dynamic_batching { default_queue_policy { max_queue_size: 0 } }",
    "preferred_batch_size": "dynamic_batching { preferred_batch_size: [ 8 ] }",
    "tensor_parallel_size": "--tp_size of the conversion; the engine's config.json says what it is",
    "tp_size": "--tp_size of the conversion; the engine's config.json says what it is",
    "pp_size": "--pp_size of the conversion; the engine's config.json says what it is",
    "enable_trt_overlap": "nothing: overlapping is always on",
    "temperature": "an input of each request",
    "top_k": "the input runtime_top_k of each request",
    "top_p": "the input runtime_top_p of each request",
}
# What the same names mean under the llmapi model, whose settings are the arguments of LLM() in 1/model.yaml.
LLMAPI_YAML: dict[str, str] = {
    "enable_kv_cache_reuse": "kv_cache_config: { enable_block_reuse: true }",
    "kv_cache_free_gpu_mem_fraction": "kv_cache_config: { free_gpu_memory_fraction: 0.9 }",
    "max_tokens_in_paged_kv_cache": "kv_cache_config: { max_tokens: N }",
    "kv_cache_host_memory_bytes": "kv_cache_config: { host_cache_size: N }",
    "max_attention_window_size": "kv_cache_config: { max_attention_window: [N] }",
    "enable_chunked_context": "enable_chunked_prefill: true",
    "batch_scheduler_policy": "scheduler_config: { capacity_scheduler_policy: GUARANTEED_NO_EVICT }",
    "gpt_model_path": "model: PATH",
    "engine_dir": "model: PATH",
    "tokenizer_dir": "tokenizer: PATH",
    "max_beam_width": "max_beam_width: N",
    "decoupled_mode": "triton_config: { decoupled: true }, and model_transaction_policy in config.pbtxt",
    "max_batch_size": "max_batch_size: N",
    "max_num_tokens": "max_num_tokens: N",
}
BY_MODEL: dict[str, tuple[Parameter, ...]] = {
    "preprocessing": PREPROCESSING,
    "postprocessing": POSTPROCESSING,
    "tensorrt_llm_bls": BLS,
    "multimodal_encoders": MULTIMODAL,
}
