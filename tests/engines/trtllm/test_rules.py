"""What does not go together, one row for each rule: refused or warned of, at the field that is to blame."""

from __future__ import annotations

from typing import Any

import pytest

from tests.engines.trtllm.test_compose import LLAMA, with_profile

MIXTRAL = LLAMA | {
    "model_type": "mixtral",
    "architectures": ["MixtralForCausalLM"],
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
    "max_position_embeddings": 32768,
}
GPTQ = {"quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": False}}
LIMITS = {"max_batch_size": 8, "max_seq_len": 4096}


def build(**flags: Any) -> dict[str, Any]:
    return {"build": LIMITS | flags}


def quantized(format: str, gpu: str = "h100-sxm", **more: Any) -> dict[str, Any]:
    return {**build(), "quantization": {"format": format, **more}, "target": {"gpu": gpu}}


def on(gpu: str, **flags: Any) -> dict[str, Any]:
    return {**build(**flags), "target": {"gpu": gpu}}


CNN: dict[str, Any] = {"calibration": {"dataset": "/data/cnn_dailymail"}}
PYTORCH: dict[str, Any] = {"recipe": "checkpoint", "build": {}}
# (fields of the profile, id of the finding, where it points)
REFUSED: dict[str, tuple[dict[str, Any], str, str]] = {
    "a misspelled flag": (build(max_batch_sizes=4), "unknown_flag", "build.max_batch_sizes"),
    "a flag of the conversion": (build(load_by_shard=True), "unknown_flag", "build.load_by_shard"),
    "ranks in the conversion": ({**build(), "convert": {"tp_size": 2}}, "flag_is_ours", "convert.tp_size"),
    "the configuration alone": (
        {**build(), "convert": {"save_config_only": True}},
        "flag_is_ours",
        "convert.save_config_only",
    ),
    "too small": (build(max_beam_width=0), "limit_too_small", "build.max_beam_width"),
    "a block of no power of two": (build(tokens_per_block=48), "tokens_per_block", "build.tokens_per_block"),
    "a folder of one attempt": (
        build(visualize_network="drawings"),
        "path_not_absolute",
        "build.visualize_network",
    ),
    "a module that is none": (
        build(lora_plugin="auto", lora_target_modules=["attention"]),
        "flag_value",
        "build.lora_target_modules",
    ),
    "modules without the plugin": (
        build(lora_target_modules=["attn_q"]),
        "lora_needs_plugin",
        "build.lora_plugin",
    ),
    "DoRA without LoRA": (build(dora_plugin="enable"), "lora_needs_plugin", "build.dora_plugin"),
    "FP8 attention without fused": (
        build(context_fmha="disable", use_fp8_context_fmha="enable"),
        "fp8_fmha_needs_fmha",
        "build.use_fp8_context_fmha",
    ),
    "old paging off": (build(paged_kv_cache="disable"), "in_flight_needs_paged_kv", "build.paged_kv_cache"),
    "no engine": (build(dry_run=True), "dry_run_leaves_nothing", "build.dry_run"),
    "no weights": (build(strip_plan=True), "strip_plan_needs_refit", "build.strip_plan"),
    "a class without a name": (
        build(model_cls_file="/m.py"),
        "model_class_unnamed",
        "build.model_cls_name",
    ),
    "all logits with drafts": (
        build(gather_all_token_logits=True, max_draft_len=4, speculative_decoding_mode="medusa"),
        "logits_with_drafts",
        "build.gather_all_token_logits",
    ),
    "a large batch of EAGLE": (
        build(speculative_decoding_mode="eagle", max_batch_size=1024),
        "eagle_batch",
        "build.max_batch_size",
    ),
    "a long draft of EAGLE": (
        build(speculative_decoding_mode="eagle", max_draft_len=300),
        "eagle_draft",
        "build.max_draft_len",
    ),
    "lookahead without drafts": (
        build(speculative_decoding_mode="lookahead_decoding"),
        "mode_without_drafts",
        "build.max_draft_len",
    ),
    "a plugin of another type": (
        {**build(gemm_plugin="float16"), "dtype": "bfloat16"},
        "plugin_dtype",
        "build.gemm_plugin",
    ),
    "a plugin of another type than the checkpoint": (
        {**build(gpt_attention_plugin="float16"), "config": LLAMA | {"torch_dtype": "bfloat16"}},
        "plugin_dtype",
        "build.gpt_attention_plugin",
    ),
    "whole numbers": (build(nccl_plugin="int32"), "plugin_dtype", "build.nccl_plugin"),
    "FP8 products of float weights": (build(gemm_plugin="fp8"), "plugin_dtype", "build.gemm_plugin"),
    "FP4 products of float weights": (build(gemm_plugin="nvfp4"), "plugin_dtype", "build.gemm_plugin"),
    "a gate for FP8": (build(gemm_swiglu_plugin="fp8"), "plugin_needs_fp8", "build.gemm_swiglu_plugin"),
    "a gate without the fused MLP": (
        {**quantized("fp8"), **build(gemm_swiglu_plugin="fp8", use_fused_mlp="disable")},
        "swiglu_needs_fused_mlp",
        "build.gemm_swiglu_plugin",
    ),
    "a gate on Ada": (
        {**quantized("fp8", "l4"), **build(gemm_swiglu_plugin="fp8")},
        "plugin_unsupported_gpu",
        "build.gemm_swiglu_plugin",
    ),
    "two fusions": (
        {
            **quantized("nvfp4", "b200"),
            **build(norm_quant_fusion="enable", reduce_fusion="enable"),
            "parallel": {"tp": 2},
        },
        "fusions_exclude",
        "build.norm_quant_fusion",
    ),
    "a fusion for FP4": (build(norm_quant_fusion="enable"), "norm_quant_fusion", "build.norm_quant_fusion"),
    "pipeline against layers": ({**build(), "parallel": {"pp": 5}}, "pp_illegal", "parallel.pp"),
    "experts of a dense model": (
        {**build(), "parallel": {"tp": 2, "moeEp": 2}},
        "no_experts",
        "parallel.moeEp",
    ),
    "experts that do not share out": (
        {**build(), "config": MIXTRAL | {"num_local_experts": 6}, "parallel": {"tp": 4, "moeEp": 4}},
        "expert_parallel",
        "parallel.moeEp",
    ),
    "several hosts": ({**build(), "parallel": {"tp": 8, "pp": 4}}, "several_hosts", "parallel"),
    "groups over tp": (
        {
            **quantized("int4_awq", **CNN),
            "parallel": {"tp": 16},
            "config": LLAMA | {"intermediate_size": 11008},
        },
        "group_over_tp",
        "parallel.tp",
    ),
    "another group than the checkpoint's": (
        {**quantized("gptq", groupSize=64), "config": LLAMA | GPTQ},
        "group_size_differs",
        "quantization.groupSize",
    ),
    "groups of 32": (
        {
            **quantized("gptq"),
            "config": LLAMA | {"quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 32}},
        },
        "group_size",
        "checkpoint",
    ),
    "the order of activations": (
        {
            **build(),
            "config": LLAMA
            | {
                "quantization_config": {
                    "quant_method": "gptq",
                    "bits": 4,
                    "group_size": 128,
                    "desc_act": True,
                }
            },
        },
        "gptq_desc_act",
        "checkpoint",
    ),
    "SmoothQuant of experts": ({**quantized("int8_sq", **CNN), "config": MIXTRAL}, "smoothquant_moe", ""),
    "no texts": (
        quantized("fp8", calibration={"dataset": "/d/cnn_dailymail", "size": 0}),
        "calibration_empty",
        "quantization.calibration.size",
    ),
    "a file of texts": (
        quantized("fp8", calibration={"dataset": "/data/cnn_dailymail/train.json"}),
        "calibration_dataset_is_a_file",
        "",
    ),
    "no such set": (
        quantized("int8_sq", calibration={"dataset": "wikitext"}),
        "calibration_dataset_unknown",
        "",
    ),
    "bits without a format": (
        quantized("fp8", **CNN, options={"auto_quantize_bits": 6.0}),
        "autoq_without_format",
        "quantization.options.auto_quantize_bits",
    ),
    "formats that do not mix": (
        quantized("fp8", **CNN, options={"autoq_format": "fp8,int8_sq", "auto_quantize_bits": 9.0}),
        "autoq_fp8_with_int8",
        "",
    ),
    "no such automatic format": (
        quantized("fp8", **CNN, options={"autoq_format": "fp8,int3"}),
        "autoq_format_unknown",
        "",
    ),
    "an option that is a field": (quantized("fp8", **CNN, options={"calib_size": 4}), "flag_is_ours", ""),
    "weights in one's own folder": (
        quantized("gptq", weights="here"),
        "path_not_absolute",
        "quantization.weights",
    ),
    "an FP8 cache on Ampere": (quantized("none", "a100-80", kvCacheDtype="fp8"), "fp8_unsupported_gpu", ""),
    "unified FP8 on Ampere": (
        {**on("a10"), "convert": {"use_fp8": True}},
        "fp8_unsupported_gpu",
        "quantization",
    ),
    "rows of FP8 on Ada": (quantized("fp8_rowwise", "l4"), "fp8_rowwise_gpu", ""),
    "an INT8 cache on Blackwell": (quantized("none", "b200", kvCacheDtype="int8"), "int_unsupported_gpu", ""),
    "a plugin on Blackwell": (
        on("b200", bert_context_fmha_fp32_acc="enable"),
        "plugin_unsupported_gpu",
        "build.bert_context_fmha_fp32_acc",
    ),
    "PyTorch: no such format": (
        {**PYTORCH, "quantization": {"format": "int8_sq"}},
        "format_unknown_here",
        "",
    ),
    "PyTorch: an INT8 cache": (
        {**PYTORCH, "quantization": {"format": "none", "kvCacheDtype": "int8"}},
        "kv_unknown_here",
        "",
    ),
    "PyTorch: AWQ on Blackwell": (
        {**PYTORCH, "quantization": {"format": "int4_awq", **CNN}, "target": {"gpu": "b200"}},
        "format_unsupported_gpu",
        "",
    ),
    "PyTorch: FP8 on Ampere": (
        {**PYTORCH, "quantization": {"format": "fp8", **CNN}, "target": {"gpu": "a30"}},
        "fp8_unsupported_gpu",
        "",
    ),
    "PyTorch: tp against heads": ({**PYTORCH, "parallel": {"tp": 3}}, "tp_illegal", "parallel.tp"),
    "an old release's sum": (
        {**build(), "target": {"gpu": "a30", "tensorrtLlm": "0.10.0"}},
        "unknown_flag",
        "build.max_seq_len",
    ),
}
WARNED: dict[str, tuple[dict[str, Any], str, str]] = {
    "no batch": ({"build": {"max_seq_len": 64}}, "max_batch_size_unset", "build.max_batch_size"),
    "longer than the model": (build(max_seq_len=16384), "max_seq_len_over_model", "build.max_seq_len"),
    "a prompt that needs chunks": (
        build(max_seq_len=8192, max_num_tokens=2048),
        "prompt_needs_chunks",
        "build.max_num_tokens",
    ),
    "a prompt without chunks": (
        build(max_seq_len=8192, max_num_tokens=2048, use_paged_context_fmha="disable"),
        "prompt_limit",
        "build.max_num_tokens",
    ),
    "a prompt without chunks, by the cache": (
        {**build(max_num_tokens=2048), "quantization": {"format": "none", "kvCacheDtype": "int8", **CNN}},
        "prompt_limit",
        "build.max_num_tokens",
    ),
    "no fused attention": (build(context_fmha="disable"), "paged_fmha_off", "build.context_fmha"),
    "a prompt over the sum": (build(max_input_len=8192), "max_input_len_over_seq_len", "build.max_input_len"),
    "few tokens": (build(max_num_tokens=16), "max_num_tokens_raised", "build.max_num_tokens"),
    "tuned beyond": (build(opt_num_tokens=16384), "opt_num_tokens_clamped", "build.opt_num_tokens"),
    "drafts without a mode": (build(max_draft_len=4), "drafts_without_mode", "build.max_draft_len"),
    "few tokens for drafts": (
        build(speculative_decoding_mode="medusa", max_draft_len=63, max_batch_size=512),
        "max_num_tokens_raised",
        "build.max_num_tokens",
    ),
    "logits of the prompt": (
        build(gather_context_logits=True),
        "kv_reuse_lost",
        "build.gather_context_logits",
    ),
    "old paging": (build(paged_kv_cache="enable"), "flag_deprecated", "build.paged_kv_cache"),
    "old logits": (build(gather_generation_logits=True), "flag_deprecated", "build.gather_generation_logits"),
    "more workers than ranks": (build(workers=4), "workers_idle", "build.workers"),
    "experts' plugin": (build(moe_plugin="float16"), "plugin_idle", "build.moe_plugin"),
    "rows' plugin": (build(fp8_rowwise_gemm_plugin="auto"), "plugin_idle", "build.fp8_rowwise_gemm_plugin"),
    "a reduction of one rank": (
        build(gemm_allreduce_plugin="float16"),
        "plugin_idle",
        "build.gemm_allreduce_plugin",
    ),
    "a fusion of another model": (
        {**build(reduce_fusion="enable"), "config": MIXTRAL, "parallel": {"tp": 2}},
        "reduce_fusion_idle",
        "build.reduce_fusion",
    ),
    "buffers without FP8": (
        {**build(reduce_fusion="enable", user_buffer="enable"), "parallel": {"tp": 2}},
        "user_buffer_idle",
        "build.user_buffer",
    ),
    "FP4's fusion": (build(fuse_fp4_quant="enable"), "fuse_fp4_idle", "build.fuse_fp4_quant"),
    "one pipeline rank": (
        {**build(pp_reduce_scatter="enable"), "config": MIXTRAL},
        "pp_reduce_scatter_idle",
        "build.pp_reduce_scatter",
    ),
    "context ranks": ({**build(), "parallel": {"cp": 2}}, "cp_unverified", "parallel.cp"),
    "a split that is not made": (
        {**build(), "convert": {"embedding_sharding_dim": 1}},
        "sharding_idle",
        "convert.embedding_sharding_dim",
    ),
    "quantization among the flags": (
        {**build(), "convert": {"use_weight_only": True}},
        "belongs_to_quantization",
        "convert.use_weight_only",
    ),
    "many at once": (
        quantized("int4_awq", calibration={"dataset": "/d/cnn_dailymail", "size": 32, "batchSize": 64}),
        "calibration_batch",
        "",
    ),
    "all texts of AWQ": (
        quantized("w4a8_awq", calibration={"dataset": "/d/cnn_dailymail", "size": -1}),
        "calibration_cut",
        "",
    ),
    "texts cut by the tokenizer": (
        quantized("fp8", calibration={"dataset": "/d/cnn_dailymail", "maxSeqLength": 4096}),
        "calibration_length_cut",
        "",
    ),
    "texts over the model": (
        quantized("int8_sq", calibration={"dataset": "/d/cnn_dailymail", "maxSeqLength": 9000}),
        "calibration_over_model",
        "",
    ),
    "a set from a hub": (quantized("fp8"), "calibration_needs_network", "quantization.calibration.dataset"),
    "options of another program": (quantized("int8_wo", options={"seed": 4}), "quantize_options_idle", ""),
    "bits out of reach": (
        quantized("fp8", **CNN, options={"autoq_format": "fp8", "auto_quantize_bits": 5.0}),
        "autoq_bits_moved",
        "",
    ),
    "weights without a use": (quantized("fp8", **CNN, weights="/q"), "weights_idle", ""),
    "Mixtral in four bits": ({**quantized("int4_awq", **CNN), "config": MIXTRAL}, "format_not_listed", ""),
    "INT8 on a desktop Blackwell": (quantized("int8_wo", "rtx-5090"), "int_unverified_gpu", "quantization"),
    "AWQ on Blackwell": (quantized("int4_awq", "b200", **CNN), "int_unverified_gpu", "quantization"),
    "little memory to calibrate": (
        {**quantized("fp8", "l4", **CNN), "target": {"gpu": "l4", "gpus": 1}},
        "calibration_memory",
        "quantization",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_contradiction_is_refused_with_field_reason_and_remedy(name: str) -> None:
    fields, id, where = REFUSED[name]
    found = with_profile(**fields)
    faults = [finding for finding in found.findings if finding.id == id and finding.severity == "error"]
    assert faults, [finding.id for finding in found.findings]
    assert all(fault.message and fault.remedy for fault in faults)
    assert not where or where in [fault.where for fault in faults]
    assert found.steps == ()


@pytest.mark.parametrize("name", WARNED)
def test_what_may_surprise_is_said_and_still_composed(name: str) -> None:
    fields, id, where = WARNED[name]
    found = with_profile(**fields)
    said = [finding for finding in found.findings if finding.id == id and finding.severity != "error"]
    assert said, [finding.id for finding in found.findings]
    assert all(finding.message and finding.remedy for finding in said)
    assert not where or where in [finding.where for finding in said]
    assert found.good, [finding.id for finding in found.findings if finding.severity == "error"]
