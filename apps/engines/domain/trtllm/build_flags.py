"""Every flag of trtllm-build (1.x), and what became of older ones.

`since` other than the oldest release told apart is not confirmed by any source; forms say so.
"""

from __future__ import annotations

from apps.engines.domain.trtllm.flag import OLDEST, Flag, Form

DTYPES = ("auto", "float16", "float32", "bfloat16", "int32", "disable")
LOG_LEVELS = ("internal_error", "error", "warning", "info", "verbose", "debug", "trace")
LORA_MODULES = (
    *("attn_qkv", "attn_q", "attn_k", "attn_v", "attn_dense", "mlp_h_to_4h", "mlp_4h_to_h", "mlp_gate"),
    *("cross_attn_qkv", "cross_attn_q", "cross_attn_k", "cross_attn_v", "cross_attn_dense"),
    *("moe_h_to_4h", "moe_4h_to_h", "moe_gate", "moe_router", "mlp_router", "mlp_gate_up"),
)
SPECULATION = ("draft_tokens_external", "lookahead_decoding", "medusa", "explicit_draft_tokens", "eagle")
FIRST_RELEASE = "its first release"
# What each group is called where people see it, in the order of the form.
GROUPS: dict[str, str] = {
    "limits": "Limits: batch, tokens, lengths",
    "attention": "Attention and KV cache",
    "plugins": "Plugins",
    "fusions": "Fusions and kernels",
    "building": "How it is built",
    "output": "Logits and debugging",
    "lora": "Adapters (LoRA): accepted, not proven here",
    "speculation": "Speculative decoding: accepted, not proven here",
    "input": "Input files",
    "gone": "Gone from today's releases",
}


def _flag(
    group: str,
    name: str,
    form: Form,
    default: object,
    does: str,
    *,
    choices: tuple[str, ...] = (),
    since: str = OLDEST,
    until: str = "",
    aliases: tuple[str, ...] = (),
    was: str = "",
    low: float | None = None,
) -> Flag:
    unverified = FIRST_RELEASE if since != OLDEST else ""
    return Flag(name, form, default, choices, since, until, aliases, group, does, was, unverified, low)


def _limit(name: str, default: int | None, does: str, low: int = 1, aliases: tuple[str, ...] = ()) -> Flag:
    return _flag("limits", name, "int", default, does, low=low, aliases=aliases)


def _plugin(
    name: str, default: str | None, does: str, choices: tuple[str, ...] = DTYPES, since: str = OLDEST
) -> Flag:
    return _flag("plugins", name, "choice", default, does, choices=choices, since=since)


def _onoff(group: str, name: str, default: str, does: str, since: str = OLDEST, was: str = "") -> Flag:
    return _flag(group, name, "onoff", default, does, choices=("enable", "disable"), since=since, was=was)


def _switch(group: str, name: str, does: str, since: str = OLDEST) -> Flag:
    return _flag(group, name, "switch", False, does, since=since)


def _path(name: str, default: str | None, does: str) -> Flag:
    return _flag("input", name, "path", default, does)


INPUT = (
    _path("checkpoint_dir", None, "Folder of the converted or quantised checkpoint."),
    _path("model_config", None, "A checkpoint's config.json; alone it builds an engine without weights."),
    _path("build_config", None, "A JSON of all limits; size flags on the command line are then ignored."),
    _path(
        "model_cls_file", None, "Python file of a model class of one's own, which is run; needs its name too."
    ),
    _flag("input", "model_cls_name", "text", None, "Name of the class in that file."),
    _path("output_dir", "engine_outputs", "Folder of the engine."),
    _path(
        "input_timing_cache", None, "Timings of earlier builds: kernels are chosen sooner, perhaps less well."
    ),
    _path(
        "output_timing_cache",
        "model.cache",
        "Where timings are kept; relative to the working folder, so two builds in one folder spoil it.",
    ),
)
LIMITS = (
    _limit(
        "max_batch_size",
        2048,
        "Most sequences in one step. Activations and the runtime's buffers are sized by it before any KV cache, "
        "so the default can fill a GPU.",
    ),
    _limit(
        "max_input_len",
        1024,
        "Longest prompt of an engine without packed inputs. With packed inputs and fused attention, the defaults, "
        "it is ignored: max_num_tokens bounds the prompt.",
    ),
    Flag(
        "max_seq_len",
        "int",
        since="0.11",
        aliases=("max_decoder_seq_len",),
        group="limits",
        does="Prompt and answer together. Unset it is the model's own length, 131072 for many: the KV cache must "
        "hold one such sequence, else limits shrink when the engine loads.",
        low=1,
    ),
    _limit(
        "max_num_tokens",
        8192,
        "Most tokens in one step. Bounds a prompt where context is not chunked; activation memory grows with it.",
    ),
    _limit(
        "opt_num_tokens",
        None,
        "Tokens of a step that kernels are tuned for. Unset: max_batch_size x max_beam_width. Not with "
        "multiple_profiles.",
    ),
    _limit("max_beam_width", 1, "Beams of a request; KV cache and activations grow with it."),
    _limit("max_encoder_input_len", 1024, "Longest input of an encoder; encoder-decoder models alone."),
    _limit(
        "max_prompt_embedding_table_size",
        0,
        "Above 0 prompt tuning and images are possible; memory for that many rows is kept.",
        low=0,
        aliases=("max_multimodal_len",),
    ),
)
ATTENTION = (
    _flag(
        "attention",
        "kv_cache_type",
        "choice",
        "paged",
        "Form of the KV cache. In-flight batching needs paged.",
        choices=("continuous", "paged", "disabled"),
        since="0.11",
    ),
    _flag(
        "attention",
        "paged_kv_cache",
        "onoff",
        "enable",
        "Deprecated: kv_cache_type says the same.",
        choices=("enable", "disable"),
    ),
    _flag(
        "attention",
        "tokens_per_block",
        "int",
        32,
        "Tokens of a KV block. Large blocks waste the end of each sequence, small ones cost bookkeeping.",
        low=1,
        was="128, then 64 from about 0.9",
    ),
    _onoff(
        "attention",
        "context_fmha",
        "enable",
        "Fused attention for prompts. Off, paged and FP8 attention are off too.",
    ),
    _onoff(
        "attention",
        "use_paged_context_fmha",
        "enable",
        "Attention over paged blocks for prompts: KV reuse and chunked context need it.",
        was="disable before 0.17",
    ),
    _onoff(
        "attention",
        "use_fp8_context_fmha",
        "enable",
        "FP8 attention for prompts. Acts only with FP8 weights and FP8 KV cache, from SM 89 on; a little less exact.",
        was="disable in older releases",
    ),
    _onoff("attention", "remove_input_padding", "enable", "Packed inputs; in-flight batching needs them."),
    _onoff(
        "attention",
        "bert_context_fmha_fp32_acc",
        "disable",
        "More exact sums in encoders, slower. Not on SM 100.",
    ),
    _onoff("attention", "paged_state", "enable", "Paged states; state-space models alone."),
    _onoff("attention", "streamingllm", "disable", "No longer supported: enabling it ends the build."),
)
PLUGINS = (
    _plugin("gpt_attention_plugin", "auto", "Attention of decoders; in-flight batching needs it."),
    _plugin("bert_attention_plugin", "auto", "Attention of encoders."),
    _plugin(
        "gemm_plugin",
        None,
        "cuBLAS in place of TensorRT's own kernels: usual for 16-bit weights, shorter builds. NVFP4 checkpoints turn "
        "it on by themselves.",
        ("auto", "float16", "float32", "bfloat16", "int32", "fp8", "nvfp4", "disable"),
    ),
    _plugin(
        "gemm_swiglu_plugin",
        "disable",
        "Fused gate of the MLP; FP8 on Hopper, needs use_fused_mlp.",
        ("fp8", "disable"),
    ),
    _plugin("fp8_rowwise_gemm_plugin", "disable", "Set by itself for row-wise FP8 checkpoints."),
    _plugin("lora_plugin", "disable", "Adapters at run time; costs memory for them and a little speed."),
    _onoff("plugins", "dora_plugin", "disable", "DoRA adapters; needs lora_plugin.", "0.15"),
    _plugin("moe_plugin", "auto", "Mixtures of experts."),
    _plugin("mamba_conv1d_plugin", "auto", "Convolutions of state-space models."),
    _plugin("nccl_plugin", "auto", "Communication between ranks; the world size decides over it."),
    _plugin(
        "low_latency_gemm_plugin",
        "disable",
        "FP8 products of small batches: faster for a few sequences, not for many.",
        ("fp8", "disable"),
        "0.14",
    ),
    _plugin(
        "low_latency_gemm_swiglu_plugin",
        "disable",
        "The same with the gate of the MLP; needs use_fused_mlp.",
        ("fp8", "disable"),
        "0.15",
    ),
    _plugin(
        "gemm_allreduce_plugin",
        "disable",
        "Product and reduction between ranks in one kernel.",
        ("float16", "bfloat16", "disable"),
        "0.18",
    ),
)
FUSIONS = (
    _onoff(
        "fusions",
        "use_fused_mlp",
        "enable",
        "Both halves of the MLP in one product; off by itself for most quantised weights.",
    ),
    _onoff(
        "fusions",
        "reduce_fusion",
        "disable",
        "Reduction between ranks fused with the norm; tp above 1, Llama and a few others.",
    ),
    _onoff(
        "fusions",
        "user_buffer",
        "disable",
        "Fewer copies between ranks; needs reduce_fusion and FP8 Llama.",
        "0.15",
    ),
    _onoff(
        "fusions",
        "norm_quant_fusion",
        "disable",
        "Norm and quantisation in one; NVFP4 Llama, not with reduce_fusion.",
        "1.0",
    ),
    _onoff(
        "fusions",
        "fuse_fp4_quant",
        "disable",
        "Quantisation to FP4 fused into attention; NVFP4 alone.",
        "0.19",
    ),
    _onoff(
        "fusions",
        "pp_reduce_scatter",
        "disable",
        "Less to send between pipeline ranks; Mixtral alone.",
        "0.12",
    ),
    _onoff(
        "fusions",
        "multiple_profiles",
        "disable",
        "Several tunings in one engine: faster steps, a longer build and a larger engine.",
    ),
)
BUILDING = (
    _flag(
        "building",
        "workers",
        "int",
        1,
        "Ranks built at once, at most one for each GPU; host memory grows with it.",
        low=1,
    ),
    _switch(
        "building",
        "fast_build",
        "Builds sooner, runs a little slower; not with INT8 or INT4 without plugin.",
        "0.14",
    ),
    _switch("building", "strip_plan", "An engine without weights, to be refitted before it serves."),
    _switch("building", "weight_sparsity", "Uses 2:4 sparse weights where the checkpoint has them."),
    _switch(
        "building", "weight_streaming", "Weights may stay in host memory: serves larger models, and slower."
    ),
    _flag("building", "log_level", "choice", "info", "How much is logged.", choices=LOG_LEVELS),
    _flag(
        "building",
        "profiling_verbosity",
        "choice",
        "layer_names_only",
        "What profilers can see in the engine.",
        choices=("layer_names_only", "detailed", "none"),
    ),
    _switch("building", "monitor_memory", "Logs memory during the build.", "0.14"),
    _switch("building", "dry_run", "All but the engine: the build leaves nothing to serve."),
)
OUTPUT = (
    _flag(
        "output",
        "logits_dtype",
        "choice",
        None,
        "Type of the logits. Unset: the checkpoint's.",
        choices=("float16", "float32"),
    ),
    _switch("output", "gather_context_logits", "Keeps the prompt's logits: much memory, and no KV reuse."),
    _switch("output", "gather_generation_logits", "Deprecated: a setting of the running engine now."),
    _switch("output", "gather_all_token_logits", "Both of them."),
    _switch("output", "enable_debug_output", "Marks every layer's output: slow and large."),
    _flag(
        "output", "visualize_network", "path", None, "Folder for ONNX drawings of the network.", since="0.14"
    ),
)
ADAPTERS = (
    _flag("lora", "lora_dir", "words", None, "Folders of adapters; the first one decides the settings."),
    _flag("lora", "lora_ckpt_source", "choice", "hf", "Form of the adapters.", choices=("hf", "nemo")),
    _flag(
        "lora",
        "lora_target_modules",
        "words",
        None,
        "Modules that have adapters; acts only with lora_plugin.",
        choices=LORA_MODULES,
    ),
    _flag("lora", "max_lora_rank", "int", 64, "Largest rank; memory grows with it.", low=1),
    _flag(
        "speculation",
        "speculative_decoding_mode",
        "choice",
        None,
        "How drafts are made.",
        choices=SPECULATION,
    ),
    _flag(
        "speculation",
        "max_draft_len",
        "int",
        0,
        "Most draft tokens of a step; max_seq_len grows by it.",
        low=0,
    ),
)
REMOVED = (
    _flag(
        "gone",
        "max_output_len",
        "int",
        None,
        "Removed: max_seq_len is prompt and answer together.",
        until="0.12",
    ),
    _flag(
        "gone",
        "multi_block_mode",
        "onoff",
        "disable",
        "Removed: the running engine decides.",
        until="0.12",
        choices=("enable", "disable"),
    ),
    _flag(
        "gone",
        "use_custom_all_reduce",
        "onoff",
        "enable",
        "Removed: chosen by itself.",
        until="0.12",
        choices=("enable", "disable"),
    ),
    _flag(
        "gone",
        "enable_xqa",
        "onoff",
        "enable",
        "Removed: always on.",
        until="0.16",
        choices=("enable", "disable"),
    ),
    _flag(
        "gone",
        "auto_parallel",
        "int",
        1,
        "Removed: the conversion fixes the ranks.",
        since="0.17",
        until="1.0",
    ),
    _flag("gone", "gpus_per_node", "int", 8, "Removed with auto_parallel.", since="0.17", until="1.0"),
    _flag("gone", "cluster_key", "text", None, "Removed with auto_parallel.", since="0.17", until="1.0"),
)
BUILD_FLAGS: tuple[Flag, ...] = (
    *INPUT,
    *LIMITS,
    *ATTENTION,
    *PLUGINS,
    *FUSIONS,
    *BUILDING,
    *OUTPUT,
    *ADAPTERS,
    *REMOVED,
)
BY_NAME: dict[str, Flag] = {flag.name: flag for flag in BUILD_FLAGS} | {
    alias: flag for flag in BUILD_FLAGS for alias in flag.aliases
}
