"""Flags of convert_checkpoint.py (the common set, llama's) and quantize.py, 1.x."""

from __future__ import annotations

from apps.engines.domain.trtllm.flag import Flag

DTYPES = ("auto", "float16", "bfloat16", "float32")
QFORMATS = ("nvfp4", "fp8", "int8_sq", "int4_awq", "w4a8_awq", "int8_wo", "int4_wo", "full_prec")
WEIGHT_ONLY = ("int8", "int4", "int8_gptq", "int4_gptq", "int4_awq")

CONVERT_FLAGS: tuple[Flag, ...] = (
    Flag("model_dir", "path", does="The Hugging Face folder."),
    Flag("meta_ckpt_dir", "path", does="Weights in Meta's own form."),
    Flag("output_dir", "path", "tllm_checkpoint", does="Folder of the checkpoint."),
    Flag("dtype", "choice", "auto", DTYPES, does="auto takes the source's, float16 for float32."),
    Flag("tp_size", "int", 1, does="Tensor parallel ranks; fixes the world size of all that follows."),
    Flag("pp_size", "int", 1, does="Pipeline ranks; likewise."),
    Flag("cp_size", "int", 1, does="Context parallel ranks; likewise."),
    Flag("moe_tp_size", "int", -1, does="Tensor parallel ranks of the experts; -1 decides by itself."),
    Flag("moe_ep_size", "int", -1, does="Expert parallel ranks; with moe_tp_size they make tp_size."),
    Flag("use_parallel_embedding", "switch", False, does="The embedding is split over ranks."),
    Flag("embedding_sharding_dim", "int", 0, does="0 splits the vocabulary, 1 the width."),
    Flag("use_weight_only", "switch", False, does="Weights alone are quantised."),
    Flag("weight_only_precision", "choice", "int8", WEIGHT_ONLY, does="Their type."),
    Flag("disable_weight_only_quant_plugin", "switch", False, does="TensorRT's own kernels; slower."),
    Flag("group_size", "int", 128, does="Weights that share a scale; the kernels know 64 and 128."),
    Flag("per_group", "switch", False, does="Scales by group, as GPTQ and AWQ have them."),
    Flag("quant_ckpt_path", "path", does="Weights that are quantised already."),
    Flag("smoothquant", "float", None, does="W8A8; 0 to 1, usually 0.5."),
    Flag("per_channel", "switch", False, does="SmoothQuant weights' scale by channel; more exact."),
    Flag("per_token", "switch", False, does="SmoothQuant activations' scale by token; more exact, slower."),
    Flag("int8_kv_cache", "switch", False, does="Halves the KV cache; no KV reuse, needs calibration."),
    Flag("fp8_kv_cache", "switch", False, does="Halves the KV cache."),
    Flag("use_fp8", "switch", False, since="0.16", does="FP8 without calibration."),
    Flag("use_nvfp4", "switch", False, since="0.17", does="NVFP4."),
    Flag("use_fp8_rowwise", "switch", False, since="0.12", does="FP8 by channel and token; Hopper."),
    Flag("use_meta_fp8_rowwise_recipe", "switch", False, since="0.13", does="Leaves out Meta's layers."),
    Flag("use_qserve", "switch", False, since="0.15", does="W4A8 of QServe."),
    Flag(
        "calib_dataset", "text", "ccdv/cnn_dailymail", does="Texts for calibration; a folder works offline."
    ),
    Flag("calib_size", "int", 512, does="How many; -1 for all."),
    Flag("calib_max_seq_length", "int", 512, does="Their length in tokens."),
    Flag("load_by_shard", "switch", False, does="Less host memory for large checkpoints."),
    Flag("load_model_on_cpu", "switch", False, does="No GPU while converting."),
    Flag("workers", "int", 1, does="Ranks at once; host memory grows with it."),
    Flag("remove_duplicated_kv_heads", "switch", False, does="For checkpoints with repeated KV heads."),
    Flag("save_config_only", "switch", False, does="Writes config.json alone."),
    Flag("log_level", "text", "info", does="How much is logged."),
)
QUANTIZE_FLAGS: tuple[Flag, ...] = (
    Flag("model_dir", "path", does="The Hugging Face folder."),
    Flag("device", "choice", "cuda", ("cuda", "cpu"), does="A GPU is needed either way."),
    Flag("device_map", "choice", "auto", ("auto", "sequential", "cpu", "gpu"), does="Where layers lie."),
    Flag("dtype", "choice", "auto", DTYPES, does="Type of what stays unquantised."),
    Flag("qformat", "choice", "full_prec", QFORMATS, does="What weights become."),
    Flag("kv_cache_dtype", "choice", None, ("int8", "fp8"), does="Unset means 16 bit."),
    Flag("quantize_lm_head", "switch", False, does="fp8 alone."),
    Flag("awq_block_size", "int", 128, does="64 or 128."),
    Flag(
        "calib_dataset",
        "text",
        "cnn_dailymail",
        does="A name, or a folder whose path contains cnn_dailymail.",
    ),
    Flag("calib_size", "int", 512, does="Texts; AWQ takes at most 32."),
    Flag("calib_max_seq_length", "int", 512, does="Their length in tokens."),
    Flag("batch_size", "int", 1, does="Texts at once."),
    Flag("tokenizer_max_seq_length", "int", 2048, does="Where texts are cut."),
    Flag("seed", "int", 1234, does="Order of the texts."),
    Flag("output_dir", "path", "exported_model", does="Folder of the checkpoint."),
    Flag("tp_size", "int", 1, does="Tensor parallel ranks; fixes the world size of all that follows."),
    Flag("pp_size", "int", 1, does="Pipeline ranks; likewise."),
    Flag("cp_size", "int", 1, does="Context parallel ranks; likewise."),
    Flag("autoq_format", "text", None, does="Formats that are tried layer by layer."),
    Flag("auto_quantize_bits", "float", None, does="Effective bits that are aimed at."),
    Flag(
        "export_format",
        "choice",
        "tensorrt_llm",
        ("tensorrt_llm", "hf"),
        since="0.18",
        does="For which backend.",
    ),
)
CONVERT: dict[str, Flag] = {flag.name: flag for flag in CONVERT_FLAGS}
QUANTIZE: dict[str, Flag] = {flag.name: flag for flag in QUANTIZE_FLAGS}
