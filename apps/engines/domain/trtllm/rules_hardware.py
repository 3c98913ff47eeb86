"""Rules of ranks, plugins, fusions and the GPU's architecture."""

from __future__ import annotations

from collections.abc import Iterator

from apps.core.exceptions import Finding
from apps.engines.domain.trtllm.asked import (
    FLOATS,
    FP8_WEIGHTS,
    GROUPED,
    OFF,
    error,
    note,
    on,
    value,
    warn,
    whole,
)
from apps.engines.domain.trtllm.request import BuildRequest
from apps.registry.domain.model_facts import ModelFacts
from apps.registry.domain.parallel import pp_problem, tp_problem

# Architectures whose norm the builder fuses with the reduction; for others it turns reduce_fusion off.
REDUCE_FUSION = ("LlamaForCausalLM", "Gemma2ForCausalLM", "MedusaForCausalLM")
SWIGLU = ("gemm_swiglu_plugin", "low_latency_gemm_swiglu_plugin")
FP8_PLUGINS = (*SWIGLU, "low_latency_gemm_plugin")
TYPED_PLUGINS = (
    *("gpt_attention_plugin", "bert_attention_plugin", "gemm_plugin", "moe_plugin"),
    *("mamba_conv1d_plugin", "nccl_plugin", "lora_plugin", "gemm_allreduce_plugin"),
)
# Most GPUs that one host is known to have: an engine over several hosts is not placed yet.
HOST_GPUS = 16


def parallel(request: BuildRequest, facts: ModelFacts | None) -> Iterator[Finding]:
    """Ranks against the host, the experts and the model."""
    ranks, gpus = request.parallel.world, request.target.gpus
    if ranks > HOST_GPUS:
        message = f"{ranks} ranks need several hosts, over which one engine is not placed yet."
        yield error("several_hosts", "parallel", message, f"Use at most {HOST_GPUS} ranks.")
    elif gpus is not None and ranks > gpus:
        yield warn(
            "more_ranks_than_gpus",
            "parallel",
            f"The engine needs {ranks} GPUs to serve, and the host has {gpus}.",
            "Build it here if you like; serve it on a larger host.",
        )
    workers = whole(request, "workers")
    if gpus is not None and workers is not None and workers > gpus:
        message = f"workers {workers} is more than the host's {gpus} GPUs; that many are used."
        yield warn("workers_capped", "build.workers", message, f"Write workers: {gpus}.")
    elif workers is not None and workers > ranks:
        message = f"workers {workers} is more than the engine's {ranks} ranks."
        yield warn("workers_idle", "build.workers", message, f"Write workers: {ranks}.")
    if request.parallel.cp > 1:
        message = "Context parallelism is passed on, and not verified."
        yield warn("cp_unverified", "parallel.cp", message, "Use tp or pp where they do.")
    if "embedding_sharding_dim" in request.convert and not request.convert.get("use_parallel_embedding"):
        message = "embedding_sharding_dim acts only with use_parallel_embedding."
        yield warn(
            "sharding_idle", "convert.embedding_sharding_dim", message, "Write use_parallel_embedding: true."
        )
    yield from _experts(request, facts)
    if facts is not None:
        yield from _split(request, facts)


def _experts(request: BuildRequest, facts: ModelFacts | None) -> Iterator[Finding]:
    split = request.parallel
    where = "parallel.moeEp"
    if split.moe_ep == 1:
        return
    if split.tp % split.moe_ep:
        message = f"moeEp {split.moe_ep} does not divide tp {split.tp}."
        yield error("expert_parallel", where, message, "Their product with moe_tp_size is tp_size.")
    if facts is None:
        return
    if facts.moe is None:
        message = f"moeEp {split.moe_ep} splits experts, and this model has none."
        yield error("no_experts", where, message, "Write 1.")
    elif facts.moe.num_experts % split.moe_ep:
        message = f"{facts.moe.num_experts} experts cannot be dealt evenly to {split.moe_ep} ranks."
        yield error("expert_parallel", where, message, f"Use a divisor of {facts.moe.num_experts}.")


def _split(request: BuildRequest, facts: ModelFacts) -> Iterator[Finding]:
    split = request.parallel
    if why := tp_problem(facts, split.tp, facts.quantization):
        legal = ", ".join(map(str, facts.valid_tp or ())) or "none"
        yield error("tp_illegal", "parallel.tp", f"tp {split.tp}: {why}.", f"Legal sizes are: {legal}.")
    if facts.num_layers and (why := pp_problem(facts.num_layers, split.pp)):
        legal = ", ".join(map(str, facts.valid_pp or ())) or "1"
        yield error("pp_illegal", "parallel.pp", f"pp {split.pp}: {why}.", f"Legal sizes are: {legal}.")
    group = request.quantization.group_size
    if request.quantization.format not in GROUPED:
        return
    for name, width in facts.row_widths.items():
        if width % split.tp == 0 and (width // split.tp) % group:
            message = f"{name} {width} / tp {split.tp} is not a multiple of the group size {group}."
            yield error("group_over_tp", "parallel.tp", message, "Use a smaller tp, or groupSize 64.")


def plugins(request: BuildRequest, facts: ModelFacts | None) -> Iterator[Finding]:
    """Types of plugins against the model's, and plugins without a part of the model to act on."""
    kind = request.dtype if request.dtype != "auto" else (facts.dtype if facts is not None else None)
    # The converter makes float16 of a float32 source.
    if request.dtype == "auto" and kind == "float32":
        kind = "float16"
    weights = request.quantization.format
    for name in TYPED_PLUGINS:
        given = request.build.get(name)
        where = f"build.{name}"
        if given == "int32":
            yield error("plugin_dtype", where, f"{name} int32: no model computes in int32.", "Use auto.")
        elif given in FLOATS and kind in FLOATS and given != kind:
            message = f"{name} {given} differs from the model's {kind}: the builder finds no kernel for it."
            yield error("plugin_dtype", where, message, f"Use auto, or dtype: {given}.")
    gemm = request.build.get("gemm_plugin")
    if gemm == "fp8" and weights not in ("fp8", "fp8_rowwise"):
        message = "gemm_plugin fp8 acts on FP8 weights."
        yield error("plugin_dtype", "build.gemm_plugin", message, "Use auto, or quantise to fp8.")
    if gemm == "nvfp4" and weights != "nvfp4":
        message = "gemm_plugin nvfp4 acts on NVFP4 weights."
        yield error("plugin_dtype", "build.gemm_plugin", message, "Use auto, or quantise to nvfp4.")
    for name in FP8_PLUGINS:
        if request.build.get(name) == "fp8" and weights not in FP8_WEIGHTS:
            message = f"{name} is for FP8 weights; these are {weights}."
            yield error("plugin_needs_fp8", f"build.{name}", message, "Remove it, or quantise to fp8.")
    row = request.build.get("fp8_rowwise_gemm_plugin")
    if row not in (None, "disable") and weights != "fp8_rowwise":
        message = "fp8_rowwise_gemm_plugin acts on row-wise FP8 weights, which turn it on by themselves."
        yield warn("plugin_idle", "build.fp8_rowwise_gemm_plugin", message, "Remove it.")
    if (
        facts is not None
        and facts.moe is None
        and request.build.get("moe_plugin") not in (None, "auto", "disable")
    ):
        message = "moe_plugin has no effect: this model has no experts."
        yield warn("plugin_idle", "build.moe_plugin", message, "Remove it.")
    for name in ("nccl_plugin", "gemm_allreduce_plugin"):
        if request.build.get(name) not in (None, "auto", "disable") and request.parallel.world == 1:
            message = f"{name} has no effect with one rank."
            yield warn("plugin_idle", f"build.{name}", message, "Remove it.")


def fusions(request: BuildRequest, facts: ModelFacts | None) -> Iterator[Finding]:
    """Fusions against each other, the ranks and the model."""
    weights = request.quantization.format
    if on(request, "reduce_fusion"):
        yield from _reduce_fusion(request, facts)
    if request.build.get("user_buffer") in (True, "enable"):
        if not on(request, "reduce_fusion"):
            message = "user_buffer needs reduce_fusion."
            yield error("user_buffer_alone", "build.user_buffer", message, "Enable reduce_fusion too.")
        elif weights != "fp8":
            message = f"user_buffer is for FP8 weights; these are {weights}."
            yield warn("user_buffer_idle", "build.user_buffer", message, "Remove it, or quantise to fp8.")
    if on(request, "norm_quant_fusion"):
        if on(request, "reduce_fusion"):
            message = "norm_quant_fusion and reduce_fusion exclude each other."
            yield error("fusions_exclude", "build.norm_quant_fusion", message, "Keep one of them.")
        if weights != "nvfp4":
            message = f"norm_quant_fusion is for NVFP4 Llama; these weights are {weights}."
            yield error("norm_quant_fusion", "build.norm_quant_fusion", message, "Remove it.")
    if on(request, "fuse_fp4_quant") and weights != "nvfp4":
        message = f"fuse_fp4_quant acts on NVFP4 weights; these are {weights}."
        yield warn("fuse_fp4_idle", "build.fuse_fp4_quant", message, "Remove it.")
    if on(request, "pp_reduce_scatter"):
        if facts is None or facts.family != "mixtral":
            message = "pp_reduce_scatter is supported for Mixtral alone."
            yield error("pp_reduce_scatter", "build.pp_reduce_scatter", message, "Remove it.")
        elif request.parallel.pp == 1:
            message = "pp_reduce_scatter has no effect with one pipeline rank."
            yield warn("pp_reduce_scatter_idle", "build.pp_reduce_scatter", message, "Remove it.")
    for name in SWIGLU:
        if request.build.get(name) == "fp8" and value(request, "use_fused_mlp") in OFF:
            message = f"{name} needs use_fused_mlp."
            yield error("swiglu_needs_fused_mlp", f"build.{name}", message, "Enable use_fused_mlp.")


def _reduce_fusion(request: BuildRequest, facts: ModelFacts | None) -> Iterator[Finding]:
    where = "build.reduce_fusion"
    if request.parallel.tp == 1:
        message = "reduce_fusion does nothing with one rank; the builder turns it off."
        yield warn("reduce_fusion_idle", where, message, "Remove it.")
    elif facts is not None and facts.architecture and facts.architecture not in REDUCE_FUSION:
        message = f"The builder turns reduce_fusion off for {facts.architecture}."
        yield warn("reduce_fusion_idle", where, message, "Remove it.")


def gpu(request: BuildRequest, sm: int) -> Iterator[Finding]:
    """What the architecture can run; `sm` is compute capability times ten."""
    kind, kv = request.quantization.format, request.quantization.kv_cache
    if sm < 80:
        message = "TensorRT-LLM 1.x supports Ampere and later (SM 80); this GPU is older."
        yield error("gpu_too_old", "target.gpu", message, "Choose another GPU.")
        return
    if sm < 89 and (kind in FP8_WEIGHTS - {"nvfp4"} or request.convert.get("use_fp8")):
        message = f"FP8 weights need Ada or Hopper (SM 89 and later); this GPU is SM {sm}."
        yield error("fp8_unsupported_gpu", "quantization", message, "Use int8_sq, int4_awq or int8_wo.")
    elif sm < 89 and kv == "fp8":
        message = f"An FP8 KV cache needs Ada or Hopper (SM 89 and later); this GPU is SM {sm}."
        remedy = "Use int8 or 16 bit. Some sources list it for Ampere: not verified for engines."
        yield error("fp8_unsupported_gpu", "quantization.kvCacheDtype", message, remedy)
    if sm < 100 and (kind == "nvfp4" or request.convert.get("use_nvfp4")):
        message = f"NVFP4 needs Blackwell (SM 100 and later); this GPU is SM {sm}."
        yield error("nvfp4_unsupported_gpu", "quantization", message, "Use fp8.")
    if kind == "fp8_rowwise" and sm != 90:
        message = "Row-wise FP8 is for Hopper (SM 90)."
        yield error("fp8_rowwise_gpu", "quantization", message, "Use fp8.")
    if 100 <= sm < 120:
        yield from _datacentre_blackwell(request, sm)
    elif sm >= 120 and (kind in _INTEGER or kv == "int8"):
        message = f"INT8 and INT4 on SM {sm} are not refused by the builder, and not verified."
        yield warn("int_unverified_gpu", "quantization", message, "Use fp8 or nvfp4, or try it.")
    for name in SWIGLU[:1]:
        if request.build.get(name) == "fp8" and sm != 90 and not 100 <= sm < 120:
            message = f"{name} is for Hopper (SM 90); this GPU is SM {sm}."
            yield error("plugin_unsupported_gpu", f"build.{name}", message, "Remove it.")


_INTEGER = frozenset(
    {"int8_sq", "int8_wo", "int4_wo", "int4_awq", "w4a8_awq", "gptq", "gptq_int8", "awq", "qserve"}
)


def _datacentre_blackwell(request: BuildRequest, sm: int) -> Iterator[Finding]:
    kind, kv = request.quantization.format, request.quantization.kv_cache
    if kind in ("int8_sq", "int8_wo", "int4_wo", "w4a8_awq", "gptq_int8", "qserve") or kv == "int8":
        message = f"The builder refuses INT8 and INT4 on SM {sm}."
        yield error("int_unsupported_gpu", "quantization", message, "Use fp8 or nvfp4.")
    elif kind in ("int4_awq", "gptq", "awq"):
        message = (
            f"One table lists 4-bit weights for SM {sm}, the builder refuses some of them: not verified."
        )
        yield warn("int_unverified_gpu", "quantization", message, "Use fp8 or nvfp4, or try it.")
    for name in FP8_PLUGINS:
        if request.build.get(name) == "fp8":
            message = f"{name} is not supported on SM {sm}."
            yield error("plugin_unsupported_gpu", f"build.{name}", message, "Remove it.")
    for name in ("fp8_rowwise_gemm_plugin", "bert_context_fmha_fp32_acc"):
        if request.build.get(name) not in (None, False, "disable"):
            message = f"{name} is not supported on SM {sm}."
            yield error("plugin_unsupported_gpu", f"build.{name}", message, "Remove it.")


__all__ = ["fusions", "gpu", "note", "parallel", "plugins"]
