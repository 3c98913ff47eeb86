"""Every flag of trtllm-build (1.x), and what became of older ones."""

from __future__ import annotations

from apps.engines.domain.trtllm.flag import Flag

DTYPES = ("auto", "float16", "float32", "bfloat16", "int32", "disable")
LOG_LEVELS = ("internal_error", "error", "warning", "info", "verbose", "debug", "trace")
LORA_MODULES = (
    *("attn_qkv", "attn_q", "attn_k", "attn_v", "attn_dense", "mlp_h_to_4h", "mlp_4h_to_h", "mlp_gate"),
    *("cross_attn_qkv", "cross_attn_q", "cross_attn_k", "cross_attn_v", "cross_attn_dense"),
    *("moe_h_to_4h", "moe_4h_to_h", "moe_gate", "moe_router", "mlp_router", "mlp_gate_up"),
)
SPECULATION = ("draft_tokens_external", "lookahead_decoding", "medusa", "explicit_draft_tokens", "eagle")


def _plugin(
    name: str, default: str | None, does: str, choices: tuple[str, ...] = DTYPES, since: str = "0.10"
) -> Flag:
    return Flag(name, "choice", default, choices, since, group="plugins", does=does)


def _onoff(name: str, default: str, does: str, group: str = "features", since: str = "0.10") -> Flag:
    return Flag(name, "onoff", default, ("enable", "disable"), since, group=group, does=does)


INPUT = (
    Flag("checkpoint_dir", "path", group="input", does="Folder of the converted or quantised checkpoint."),
    Flag("model_config", "path", group="input", does="A checkpoint's config.json; builds without weights."),
    Flag(
        "build_config",
        "path",
        group="input",
        does="A JSON of all limits; size flags on the command line are then ignored.",
    ),
    Flag("model_cls_file", "path", group="input", does="Python file of a model class of one's own."),
    Flag("model_cls_name", "text", group="input", does="Name of that class."),
    Flag("output_dir", "path", "engine_outputs", group="input", does="Folder of the engine."),
    Flag(
        "input_timing_cache", "path", group="input", does="Timings of earlier builds; makes this one faster."
    ),
    Flag(
        "output_timing_cache",
        "path",
        "model.cache",
        group="input",
        does="Where timings are kept; relative to the working folder, so two builds in one folder spoil it.",
    ),
)
LIMITS = (
    Flag(
        "max_batch_size",
        "int",
        2048,
        group="limits",
        does="Most sequences in one step; activation memory grows with it.",
    ),
    Flag(
        "max_input_len",
        "int",
        1024,
        group="limits",
        does="Ignored with padding removal and fused attention, the defaults: max_num_tokens bounds the prompt.",
    ),
    Flag(
        "max_seq_len",
        "int",
        aliases=("max_decoder_seq_len",),
        since="0.11",
        group="limits",
        does="Prompt and answer together; unset it is the model's own length, 131072 for many.",
    ),
    Flag(
        "max_num_tokens",
        "int",
        8192,
        group="limits",
        does="Most tokens in one step: bounds a prompt without chunked context, and the activation memory.",
    ),
    Flag("opt_num_tokens", "int", group="limits", does="Tokens of a step that kernels are tuned for."),
    Flag("max_beam_width", "int", 1, group="limits", does="Beams of a request; the KV cache grows with it."),
    Flag("max_encoder_input_len", "int", 1024, group="limits", does="Encoder-decoder models alone."),
    Flag(
        "max_prompt_embedding_table_size",
        "int",
        0,
        aliases=("max_multimodal_len",),
        group="limits",
        does="Above 0 prompt tuning and images are possible.",
    ),
    Flag("max_output_len", "int", until="0.12", group="limits", does="Removed: max_seq_len is the sum."),
    Flag(
        "kv_cache_type",
        "choice",
        "paged",
        ("continuous", "paged", "disabled"),
        since="0.11",
        group="limits",
        does="In-flight batching needs paged.",
    ),
    Flag(
        "paged_kv_cache",
        "onoff",
        "enable",
        ("enable", "disable"),
        group="limits",
        does="Deprecated: kv_cache_type says the same.",
    ),
)
BUILDING = (
    Flag(
        "profiling_verbosity",
        "choice",
        "layer_names_only",
        ("layer_names_only", "detailed", "none"),
        group="building",
        does="What profilers can see in the engine.",
    ),
    Flag("strip_plan", "switch", False, group="building", does="An engine without weights, to be refitted."),
    Flag(
        "weight_sparsity", "switch", False, group="building", does="Uses 2:4 sparse weights where there are."
    ),
    Flag(
        "weight_streaming",
        "switch",
        False,
        group="building",
        does="Weights may stay in host memory; needed for gpu_weights_percent below 1, and slower.",
    ),
    Flag(
        "fast_build",
        "switch",
        False,
        since="0.14",
        group="building",
        does="Builds sooner, runs a little slower.",
    ),
    Flag("workers", "int", 1, group="building", does="Ranks built at once, at most one for each GPU."),
    Flag("log_level", "choice", "info", LOG_LEVELS, group="building", does="How much is logged."),
    Flag("enable_debug_output", "switch", False, group="building", does="Marks every layer's output; slow."),
    Flag("visualize_network", "path", since="0.14", group="building", does="Folder for ONNX drawings."),
    Flag("dry_run", "switch", False, group="building", does="Everything but the engine."),
    Flag(
        "monitor_memory",
        "switch",
        False,
        since="0.14",
        group="building",
        does="Logs memory during the build.",
    ),
    Flag(
        "logits_dtype", "choice", None, ("float16", "float32"), group="building", does="Type of the logits."
    ),
    Flag(
        "gather_context_logits",
        "switch",
        False,
        group="building",
        does="Keeps the prompt's logits: much memory, and no KV reuse.",
    ),
    Flag(
        "gather_generation_logits",
        "switch",
        False,
        group="building",
        does="Deprecated: a setting of the running engine now.",
    ),
    Flag("gather_all_token_logits", "switch", False, group="building", does="Both of them."),
)
ADAPTERS = (
    Flag("lora_dir", "words", group="LoRA", does="Folders of adapters; the first one decides the settings."),
    Flag("lora_ckpt_source", "choice", "hf", ("hf", "nemo"), group="LoRA", does="Form of the adapters."),
    Flag(
        "lora_target_modules", "words", None, LORA_MODULES, group="LoRA", does="Modules that have adapters."
    ),
    Flag("max_lora_rank", "int", 64, group="LoRA", does="Largest rank; memory grows with it."),
    Flag(
        "speculative_decoding_mode",
        "choice",
        None,
        SPECULATION,
        group="speculation",
        does="How drafts are made.",
    ),
    Flag("max_draft_len", "int", 0, group="speculation", does="Most draft tokens of a step."),
)
PLUGINS = (
    _plugin("bert_attention_plugin", "auto", "Attention of encoders."),
    _plugin("gpt_attention_plugin", "auto", "Attention of decoders; in-flight batching needs it."),
    _plugin(
        "gemm_plugin",
        None,
        "cuBLAS in place of TensorRT's own kernels; usual for float types.",
        ("auto", "float16", "float32", "bfloat16", "int32", "fp8", "nvfp4", "disable"),
    ),
    _plugin("gemm_swiglu_plugin", "disable", "Fused gate of the MLP, FP8 on Hopper.", ("fp8", "disable")),
    _plugin("fp8_rowwise_gemm_plugin", "disable", "Set by itself for row-wise FP8 checkpoints."),
    _plugin("lora_plugin", "disable", "Adapters at run time."),
    _onoff("dora_plugin", "disable", "DoRA adapters.", "plugins", "0.15"),
    _plugin("moe_plugin", "auto", "Experts."),
    _plugin("mamba_conv1d_plugin", "auto", "State-space layers."),
    _plugin("nccl_plugin", "auto", "Communication between ranks; set by the world size."),
    _plugin(
        "low_latency_gemm_plugin", "disable", "FP8 products of small batches.", ("fp8", "disable"), "0.14"
    ),
    _plugin(
        "low_latency_gemm_swiglu_plugin", "disable", "The same with the gate.", ("fp8", "disable"), "0.15"
    ),
    _plugin(
        "gemm_allreduce_plugin",
        "disable",
        "Product and reduction between ranks in one.",
        ("float16", "bfloat16", "disable"),
        "0.18",
    ),
)
FEATURES = (
    _onoff("context_fmha", "enable", "Fused attention for prompts; off, paged attention is off too."),
    _onoff("bert_context_fmha_fp32_acc", "disable", "More exact sums in encoders, slower."),
    _onoff("remove_input_padding", "enable", "Packed inputs; in-flight batching needs them."),
    Flag(
        "tokens_per_block",
        "int",
        32,
        group="features",
        does="Tokens of a KV block: large wastes the end of a sequence, small costs bookkeeping.",
    ),
    _onoff("use_paged_context_fmha", "enable", "Needed for KV reuse and chunked context."),
    _onoff(
        "use_fp8_context_fmha", "enable", "FP8 attention for prompts; FP8 weights and FP8 KV cache alone."
    ),
    _onoff("fuse_fp4_quant", "disable", "NVFP4 alone.", since="0.19"),
    _onoff("multiple_profiles", "disable", "Several tunings in one engine: faster steps, longer build."),
    _onoff("paged_state", "enable", "State-space models alone."),
    _onoff("streamingllm", "disable", "No longer supported: enabling it ends the build."),
    _onoff("norm_quant_fusion", "disable", "NVFP4 Llama, not with reduce_fusion.", since="1.0"),
    _onoff("reduce_fusion", "disable", "Reduction between ranks fused with the norm; tp above 1 alone."),
    _onoff("user_buffer", "disable", "Fewer copies between ranks; needs reduce_fusion.", since="0.15"),
    _onoff("use_fused_mlp", "enable", "Both halves of the MLP in one product."),
    _onoff("pp_reduce_scatter", "disable", "Mixtral with pp above 1 alone.", since="0.12"),
)
BUILD_FLAGS: tuple[Flag, ...] = INPUT + LIMITS + BUILDING + ADAPTERS + PLUGINS + FEATURES
BY_NAME: dict[str, Flag] = {flag.name: flag for flag in BUILD_FLAGS} | {
    alias: flag for flag in BUILD_FLAGS for alias in flag.aliases
}

# Flags of older releases and of tutorials: what to do in their place.
GONE: dict[str, str] = {
    "enable_context_fmha": "context_fmha enable, the default",
    "use_gpt_attention_plugin": "gpt_attention_plugin",
    "use_gemm_plugin": "gemm_plugin",
    "use_inflight_batching": "nothing: paged KV cache and packed inputs, the defaults, allow it",
    "world_size": "the conversion's tp_size and pp_size",
    "tp_size": "the conversion's tp_size",
    "pp_size": "the conversion's pp_size",
    "cp_size": "the conversion's cp_size",
    "multi_block_mode": "the backend's parameter multi_block_mode, on by default",
    "context_fmha_fp32_acc": "the backend's parameter enable_context_fmha_fp32_acc",
    "enable_xqa": "nothing: always on",
    "use_custom_all_reduce": "nothing: chosen by itself",
    "use_context_fmha_for_generation": "nothing: removed",
    "lookup_plugin": "nothing: chosen by itself",
    "use_lookup_plugin": "nothing: chosen by itself",
    "strongly_typed": "nothing: always on",
    "weakly_typed": "nothing: engines are always strongly typed",
    "auto_parallel": "the conversion's tp_size and pp_size",
    "gpus_per_node": "nothing",
    "cluster_key": "nothing",
    "builder_opt": "nothing",
    "builder_force_num_profiles": "the environment's BUILDER_FORCE_NUM_PROFILES",
    "model_dir": "the conversion's model_dir; the build takes checkpoint_dir",
    "dtype": "the conversion's dtype",
    "use_weight_only": "the conversion's use_weight_only",
    "weight_only_precision": "the conversion's weight_only_precision",
    "use_smooth_quant": "the conversion's smoothquant",
    "int8_kv_cache": "the conversion's int8_kv_cache",
    "fp8_kv_cache": "the conversion's fp8_kv_cache",
    "enable_fp8": "a quantisation to fp8",
    "quantization": "a quantisation profile",
    "qformat": "a quantisation profile",
    "kv_cache_dtype": "a quantisation profile's KV type",
    "use_embedding_sharing": "nothing: chosen by itself",
    "parallel_build": "workers",
    "use_rmsnorm_plugin": "nothing: removed",
    "use_layernorm_plugin": "nothing: removed",
    "remove_padding": "remove_input_padding",
}
