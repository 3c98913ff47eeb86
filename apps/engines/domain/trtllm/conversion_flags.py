"""Flags of convert_checkpoint.py (the common set, llama's) and quantize.py, 1.x."""

from __future__ import annotations

from apps.engines.domain.trtllm.build_flags import FIRST_RELEASE, LOG_LEVELS
from apps.engines.domain.trtllm.flag import OLDEST, Flag, Form

DTYPES = ("auto", "float16", "bfloat16", "float32")
QFORMATS = ("nvfp4", "fp8", "int8_sq", "int4_awq", "w4a8_awq", "int8_wo", "int4_wo", "full_prec")
WEIGHT_ONLY = ("int8", "int4", "int8_gptq", "int4_gptq", "int4_awq")
GROUPS: dict[str, str] = {
    "conversion": "Conversion",
    "weights": "Conversion: how weights are stored",
    "calibration": "Calibration",
    "shape": "Conversion without a config.json",
    "medusa": "Medusa heads: accepted, not proven here",
    "nemo": "NeMo checkpoints",
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
    low: float | None = None,
    high: float | None = None,
) -> Flag:
    unverified = FIRST_RELEASE if since != OLDEST else ""
    return Flag(
        name, form, default, choices, since, group=group, does=does, unverified=unverified, low=low, high=high
    )


def _switch(group: str, name: str, does: str, since: str = OLDEST) -> Flag:
    return _flag(group, name, "switch", False, does, since=since)


def _size(name: str, does: str) -> Flag:
    return _flag("ranks", name, "int", 1, does, low=1)


def _shape(name: str, form: Form, default: object) -> Flag:
    return _flag("shape", name, form, default, "Used only where the checkpoint has no config.json.")


_FIXED = "fixes the world size of all that follows."
CONVERT_FLAGS: tuple[Flag, ...] = (
    _flag("source", "model_dir", "path", None, "The Hugging Face folder."),
    _flag("conversion", "meta_ckpt_dir", "path", None, "Weights in Meta's own form, in place of the folder."),
    _flag("source", "output_dir", "path", "tllm_checkpoint", "Folder of the checkpoint."),
    _flag(
        "source", "dtype", "choice", "auto", "auto takes the source's, float16 for float32.", choices=DTYPES
    ),
    _size("tp_size", f"Tensor parallel ranks; {_FIXED}"),
    _size("pp_size", f"Pipeline ranks; {_FIXED}"),
    _size("cp_size", f"Context parallel ranks; {_FIXED}"),
    _flag("ranks", "moe_tp_size", "int", -1, "Tensor parallel ranks of the experts; -1 decides by itself."),
    _flag("ranks", "moe_ep_size", "int", -1, "Expert parallel ranks; with moe_tp_size they make tp_size."),
    _switch(
        "conversion",
        "use_parallel_embedding",
        "The embedding is split over ranks: less memory on each, a little more to send.",
    ),
    _flag(
        "conversion",
        "embedding_sharding_dim",
        "int",
        0,
        "0 splits the vocabulary, 1 the width.",
        low=0,
        high=1,
    ),
    _switch("quantization", "use_weight_only", "Weights alone are quantised."),
    _flag("quantization", "weight_only_precision", "choice", "int8", "Their type.", choices=WEIGHT_ONLY),
    _switch(
        "weights",
        "disable_weight_only_quant_plugin",
        "TensorRT's own kernels for quantised weights; slower, and fast_build then fails.",
    ),
    _flag(
        "quantization",
        "group_size",
        "int",
        128,
        "Weights that share a scale; kernels know 64 and 128.",
        low=1,
    ),
    _switch("quantization", "per_group", "Scales by group, as GPTQ and AWQ have them."),
    _flag("quantization", "quant_ckpt_path", "path", None, "Weights that are quantised already."),
    _flag("quantization", "smoothquant", "float", None, "W8A8; usually 0.5.", low=0, high=1),
    _switch("quantization", "per_channel", "SmoothQuant weights' scale by channel; more exact."),
    _switch("quantization", "per_token", "SmoothQuant activations' scale by token; more exact, slower."),
    _switch("quantization", "int8_kv_cache", "Halves the KV cache; no KV reuse, needs calibration."),
    _switch("quantization", "fp8_kv_cache", "Halves the KV cache."),
    _switch("weights", "use_fp8", "FP8 by the unified converter, without calibration: less exact.", "0.16"),
    _switch("weights", "use_nvfp4", "NVFP4 by the unified converter; Blackwell.", "0.17"),
    _switch("quantization", "use_fp8_rowwise", "FP8 by channel and token; Hopper.", "0.12"),
    _switch(
        "weights",
        "use_meta_fp8_rowwise_recipe",
        "Row-wise FP8 leaves out the layers that Meta leaves out.",
        "0.13",
    ),
    _switch("quantization", "use_qserve", "W4A8 of QServe.", "0.15"),
    _flag(
        "quantization",
        "calib_dataset",
        "text",
        "ccdv/cnn_dailymail",
        "Texts for calibration; a folder works offline.",
    ),
    _flag("quantization", "calib_size", "int", 512, "How many; -1 for all.", low=-1),
    _flag("quantization", "calib_max_seq_length", "int", 512, "Their length in tokens.", low=1),
    _switch("conversion", "load_by_shard", "Less host memory for checkpoints of many files; slower."),
    _switch("conversion", "load_model_on_cpu", "No GPU while converting; slower where it would calibrate."),
    _flag("conversion", "workers", "int", 1, "Ranks at once; host memory grows with it.", low=1),
    _switch("conversion", "remove_duplicated_kv_heads", "For checkpoints with repeated KV heads."),
    _switch("source", "save_config_only", "Writes config.json alone: nothing to build from."),
    _flag("conversion", "log_level", "choice", "info", "How much is logged.", choices=LOG_LEVELS),
    _shape("vocab_size", "int", 32000),
    _shape("n_positions", "int", 2048),
    _shape("n_layer", "int", 32),
    _shape("n_head", "int", 32),
    _shape("n_kv_head", "int", None),
    _shape("n_embd", "int", 4096),
    _shape("inter_size", "int", 11008),
    _shape("rms_norm_eps", "float", 1e-06),
    _shape("hidden_act", "text", "silu"),
    _shape("rotary_base", "float", 10000.0),
    _shape("multiple_of", "int", None),
    _shape("ffn_dim_multiplier", "float", None),
    _shape("moe_num_experts", "int", 0),
    _shape("moe_top_k", "int", 0),
    _shape("moe_renorm_mode", "int", None),
)
QUANTIZE_FLAGS: tuple[Flag, ...] = (
    _flag("source", "model_dir", "path", None, "The Hugging Face folder."),
    _flag("nemo", "nemo_ckpt_path", "path", None, "A NeMo checkpoint in place of the folder."),
    _flag(
        "nemo",
        "decoder_type",
        "choice",
        "gptnext",
        "What the NeMo checkpoint is.",
        choices=("gptnext", "llama"),
    ),
    _flag("nemo", "calib_tp_size", "int", 1, "Tensor parallel ranks while calibrating; NeMo alone.", low=1),
    _flag("nemo", "calib_pp_size", "int", 1, "Pipeline ranks while calibrating; NeMo alone.", low=1),
    _flag("calibration", "device", "choice", "cuda", "A GPU is needed either way.", choices=("cuda", "cpu")),
    _flag(
        "calibration",
        "device_map",
        "choice",
        "auto",
        "Where layers lie while calibrating: sequential fills GPU after GPU, cpu and gpu keep all in one place.",
        choices=("auto", "sequential", "cpu", "gpu"),
    ),
    _flag("source", "dtype", "choice", "auto", "Type of what stays unquantised.", choices=DTYPES),
    _flag("quantization", "qformat", "choice", "full_prec", "What weights become.", choices=QFORMATS),
    _flag("quantization", "kv_cache_dtype", "choice", None, "Unset means 16 bit.", choices=("int8", "fp8")),
    _switch("quantization", "quantize_lm_head", "The last layer too; fp8 alone."),
    _flag("quantization", "awq_block_size", "int", 128, "64 or 128.", low=1),
    _flag(
        "quantization",
        "calib_dataset",
        "text",
        "cnn_dailymail",
        "A name, or a folder whose path contains cnn_dailymail.",
    ),
    _flag("quantization", "calib_size", "int", 512, "Texts; AWQ takes at most 32.", low=-1),
    _flag("quantization", "calib_max_seq_length", "int", 512, "Their length in tokens.", low=1),
    _flag("quantization", "batch_size", "int", 1, "Texts at once; GPU memory grows with it.", low=1),
    _flag(
        "calibration",
        "tokenizer_max_seq_length",
        "int",
        2048,
        "Where the tokenizer cuts texts; shorter than the calibration length, texts are cut there.",
        low=1,
    ),
    _flag(
        "calibration", "seed", "int", 1234, "Order of the texts: the same seed gives the same scales.", low=0
    ),
    _flag("source", "output_dir", "path", "exported_model", "Folder of the checkpoint."),
    _size("tp_size", f"Tensor parallel ranks; {_FIXED}"),
    _size("pp_size", f"Pipeline ranks; {_FIXED}"),
    _size("cp_size", f"Context parallel ranks; {_FIXED}"),
    _flag(
        "calibration",
        "autoq_format",
        "text",
        None,
        "Formats that are tried layer by layer, as fp8,int4_awq; takes much longer than one format.",
    ),
    _flag(
        "calibration",
        "auto_quantize_bits",
        "float",
        None,
        "Effective bits a weight that autoq_format aims at; moved into 4 (8 without a 4-bit format) to 16.",
        low=1,
        high=16,
    ),
    _flag("medusa", "num_medusa_heads", "int", 4, "Heads of the Medusa model.", low=1),
    _flag("medusa", "num_medusa_layers", "int", 1, "Layers of each head.", low=1),
    _flag("medusa", "max_draft_len", "int", 63, "Most draft tokens.", low=1),
    _flag("medusa", "medusa_hidden_act", "text", "silu", "Activation of the heads."),
    _flag("medusa", "medusa_model_dir", "path", None, "Folder of the heads."),
    _switch("medusa", "quant_medusa_head", "The heads are quantised too."),
    _flag(
        "source",
        "export_format",
        "choice",
        "tensorrt_llm",
        "For which backend.",
        choices=("tensorrt_llm", "hf"),
        since="0.18",
    ),
)
CONVERT: dict[str, Flag] = {flag.name: flag for flag in CONVERT_FLAGS}
QUANTIZE: dict[str, Flag] = {flag.name: flag for flag in QUANTIZE_FLAGS}
# Groups whose flags are fields of their own (folders, ranks) or a quantization profile's.
ELSEWHERE = ("source", "ranks", "quantization")
CONVERT_OPTIONS: dict[str, Flag] = {flag.name: flag for flag in CONVERT_FLAGS if flag.group not in ELSEWHERE}
QUANTIZE_OPTIONS: dict[str, Flag] = {
    flag.name: flag for flag in QUANTIZE_FLAGS if flag.group not in ELSEWHERE
}
