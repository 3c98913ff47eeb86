"""The command lines of trtllm-build, convert_checkpoint.py and quantize.py 1.x, as their parsers take them.

Typed from the reference, apart from the product's own tables: a flag that is unknown here would be unknown in truth.
"""

from __future__ import annotations

import argparse

ONOFF = ["enable", "disable"]
DTYPES = ["auto", "float16", "float32", "bfloat16", "int32", "disable"]
FLOATS = ["auto", "float16", "bfloat16", "float32"]


def build_parser() -> argparse.ArgumentParser:
    """trtllm-build."""
    parser = argparse.ArgumentParser("trtllm-build")
    for name in ("checkpoint_dir", "model_config", "build_config", "model_cls_file", "model_cls_name"):
        parser.add_argument(f"--{name}")
    parser.add_argument("--output_dir", default="engine_outputs")
    parser.add_argument("--max_batch_size", type=int, default=2048)
    parser.add_argument("--max_input_len", type=int, default=1024)
    parser.add_argument("--max_seq_len", "--max_decoder_seq_len", type=int)
    parser.add_argument("--max_beam_width", type=int, default=1)
    parser.add_argument("--max_num_tokens", type=int, default=8192)
    parser.add_argument("--opt_num_tokens", type=int)
    parser.add_argument("--max_encoder_input_len", type=int, default=1024)
    parser.add_argument("--max_prompt_embedding_table_size", "--max_multimodal_len", type=int, default=0)
    parser.add_argument("--kv_cache_type", choices=["continuous", "paged", "disabled"])
    parser.add_argument("--paged_kv_cache")
    parser.add_argument("--input_timing_cache")
    parser.add_argument("--output_timing_cache", default="model.cache")
    parser.add_argument(
        "--profiling_verbosity", default="layer_names_only", choices=["layer_names_only", "detailed", "none"]
    )
    for name in (
        *(
            "strip_plan",
            "weight_sparsity",
            "weight_streaming",
            "fast_build",
            "enable_debug_output",
            "dry_run",
        ),
        *("monitor_memory", "gather_context_logits", "gather_generation_logits", "gather_all_token_logits"),
    ):
        parser.add_argument(f"--{name}", action="store_true")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--log_level", default="info")
    parser.add_argument("--visualize_network")
    parser.add_argument("--logits_dtype", choices=["float16", "float32"])
    parser.add_argument("--lora_dir", nargs="+")
    parser.add_argument("--lora_ckpt_source", default="hf", choices=["hf", "nemo"])
    parser.add_argument("--lora_target_modules", nargs="+")
    parser.add_argument("--max_lora_rank", type=int, default=64)
    parser.add_argument("--speculative_decoding_mode")
    parser.add_argument("--max_draft_len", type=int, default=0)
    for name in (
        *("bert_attention_plugin", "gpt_attention_plugin", "fp8_rowwise_gemm_plugin", "lora_plugin"),
        *("moe_plugin", "mamba_conv1d_plugin", "nccl_plugin"),
    ):
        parser.add_argument(f"--{name}", choices=DTYPES)
    parser.add_argument("--gemm_plugin", choices=[*DTYPES, "fp8", "nvfp4"])
    for name in ("gemm_swiglu_plugin", "low_latency_gemm_plugin", "low_latency_gemm_swiglu_plugin"):
        parser.add_argument(f"--{name}", choices=["fp8", "disable"])
    parser.add_argument("--gemm_allreduce_plugin", choices=["float16", "bfloat16", "disable"])
    parser.add_argument("--tokens_per_block", type=int, default=32)
    for name in (
        *("dora_plugin", "context_fmha", "bert_context_fmha_fp32_acc", "remove_input_padding", "paged_state"),
        *(
            "use_paged_context_fmha",
            "use_fp8_context_fmha",
            "fuse_fp4_quant",
            "multiple_profiles",
            "user_buffer",
        ),
        *("streamingllm", "norm_quant_fusion", "reduce_fusion", "use_fused_mlp", "pp_reduce_scatter"),
    ):
        parser.add_argument(f"--{name}", choices=ONOFF)
    return parser


def convert_parser() -> argparse.ArgumentParser:
    """convert_checkpoint.py of llama."""
    parser = argparse.ArgumentParser("convert_checkpoint.py")
    parser.add_argument("--model_dir")
    parser.add_argument("--meta_ckpt_dir")
    parser.add_argument("--output_dir", default="tllm_checkpoint")
    parser.add_argument("--dtype", default="auto", choices=FLOATS)
    for name in ("tp_size", "pp_size", "cp_size"):
        parser.add_argument(f"--{name}", type=int, default=1)
    for name in ("moe_tp_size", "moe_ep_size"):
        parser.add_argument(f"--{name}", type=int, default=-1)
    parser.add_argument("--embedding_sharding_dim", type=int, default=0, choices=[0, 1])
    for name in (
        *("use_parallel_embedding", "use_weight_only", "disable_weight_only_quant_plugin", "per_group"),
        *(
            "per_channel",
            "per_token",
            "int8_kv_cache",
            "fp8_kv_cache",
            "use_fp8",
            "use_nvfp4",
            "use_fp8_rowwise",
        ),
        *("use_meta_fp8_rowwise_recipe", "use_qserve", "load_by_shard", "load_model_on_cpu"),
        *("remove_duplicated_kv_heads", "save_config_only"),
    ):
        parser.add_argument(f"--{name}", action="store_true")
    parser.add_argument(
        "--weight_only_precision",
        default="int8",
        choices=["int8", "int4", "int8_gptq", "int4_gptq", "int4_awq"],
    )
    parser.add_argument("--group_size", type=int, default=128)
    parser.add_argument("--quant_ckpt_path")
    parser.add_argument("--smoothquant", "-sq", type=float)
    parser.add_argument("--calib_dataset", default="ccdv/cnn_dailymail")
    parser.add_argument("--calib_size", type=int, default=512)
    parser.add_argument("--calib_max_seq_length", type=int, default=512)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--log_level", default="info")
    for name in ("vocab_size", "n_positions", "n_layer", "n_head", "n_kv_head", "n_embd", "inter_size"):
        parser.add_argument(f"--{name}", type=int)
    for name in ("multiple_of", "moe_num_experts", "moe_top_k", "moe_renorm_mode"):
        parser.add_argument(f"--{name}", type=int)
    for name in ("rms_norm_eps", "rotary_base", "ffn_dim_multiplier"):
        parser.add_argument(f"--{name}", type=float)
    parser.add_argument("--hidden_act", default="silu")
    return parser


def quantize_parser() -> argparse.ArgumentParser:
    """quantize.py."""
    parser = argparse.ArgumentParser("quantize.py")
    parser.add_argument("--model_dir")
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--device_map", default="auto", choices=["auto", "sequential", "cpu", "gpu"])
    parser.add_argument("--dtype", default="auto", choices=FLOATS)
    parser.add_argument(
        "--qformat",
        default="full_prec",
        choices=["nvfp4", "fp8", "int8_sq", "int4_awq", "w4a8_awq", "int8_wo", "int4_wo", "full_prec"],
    )
    parser.add_argument("--kv_cache_dtype", choices=["int8", "fp8"])
    parser.add_argument("--quantize_lm_head", action="store_true")
    parser.add_argument("--awq_block_size", type=int, default=128)
    parser.add_argument("--calib_dataset", default="cnn_dailymail")
    parser.add_argument("--calib_size", type=int, default=512)
    parser.add_argument("--calib_max_seq_length", type=int, default=512)
    parser.add_argument("--batch_size", type=int, default=1)
    parser.add_argument("--tokenizer_max_seq_length", type=int, default=2048)
    parser.add_argument("--seed", type=int, default=1234)
    parser.add_argument("--output_dir", default="exported_model")
    for name in ("tp_size", "pp_size", "cp_size"):
        parser.add_argument(f"--{name}", type=int, default=1)
    parser.add_argument("--autoq_format")
    parser.add_argument("--auto_quantize_bits", type=float)
    parser.add_argument("--nemo_ckpt_path")
    parser.add_argument("--decoder_type", default="gptnext", choices=["gptnext", "llama"])
    for name, default in (
        ("calib_tp_size", 1),
        ("calib_pp_size", 1),
        ("num_medusa_heads", 4),
        ("num_medusa_layers", 1),
        ("max_draft_len", 63),
    ):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--medusa_hidden_act", default="silu")
    parser.add_argument("--medusa_model_dir")
    parser.add_argument("--quant_medusa_head", action="store_true")
    parser.add_argument("--export_format", default="tensorrt_llm", choices=["tensorrt_llm", "hf"])
    return parser


PARSERS = {
    "trtllm-build": build_parser,
    "convert_checkpoint.py": convert_parser,
    "quantize.py": quantize_parser,
}
