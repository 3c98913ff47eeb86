"""What does not go together in a TensorRT-LLM build: refused with the field, the reason and the remedy, or warned of.

Source: the derivations and checks of trtllm-build 1.x, ModelOpt's limits, and the legacy support matrix.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from apps.core.exceptions import Finding, Severity
from apps.engines.domain.trtllm.build_flags import BY_NAME, GONE
from apps.engines.domain.trtllm.conversion_flags import CONVERT
from apps.engines.domain.trtllm.flag import Flag, Version, parse_version
from apps.engines.domain.trtllm.request import BuildRequest
from apps.registry.domain.model_facts import ModelFacts
from apps.registry.domain.parallel import tp_problem

# First release without the engine flow, and the first that knows the flags of today.
ENGINES_END: Version = (1, 3, 0)
# Flags that the composer writes itself: a second value would contradict the request.
OURS_BUILD = {"checkpoint_dir", "output_dir", "input_timing_cache", "output_timing_cache"}
OURS_CONVERT = {"model_dir", "output_dir", "dtype", "tp_size", "pp_size", "moe_tp_size", "moe_ep_size"}
ON = (True, "enable")
OFF = (False, "disable")
FP8_WEIGHTS = {"fp8", "fp8_rowwise", "nvfp4", "w4a8_awq"}
CALIBRATED = {"fp8", "nvfp4", "int4_awq", "w4a8_awq", "int8_sq"}
AWQ_MOST_TEXTS = 32


def check(request: BuildRequest, release: Version, facts: ModelFacts | None, sm: int | None) -> list[Finding]:
    """Every finding about an engine build; `sm` is compute capability times ten, None where it is not known."""
    found = [
        *_flags(request, release),
        *_limits(request),
        *_attention(request),
        *_quantization(request, facts),
    ]
    found += [*_parallel(request, facts), *_fusions(request, facts)]
    if sm is not None:
        found += _gpu(request, sm)
    return found


def _flags(request: BuildRequest, release: Version) -> Iterator[Finding]:
    tables: tuple[tuple[str, Mapping[str, Any], dict[str, Flag], set[str]], ...] = (
        ("build", request.build, BY_NAME, OURS_BUILD),
        ("convert", request.convert, CONVERT, OURS_CONVERT),
    )
    for section, values, table, ours in tables:
        for name, value in values.items():
            where = f"{section}.{name}"
            flag = table.get(name)
            if flag is None:
                yield _unknown(name, where, section)
            elif not flag.known_in(release):
                yield _out_of_time(flag, where, release, request)
            elif name in ours:
                message = f"{flag.option} is written by Inflight."
                yield Finding("flag_is_ours", "error", message, where, "Remove it.")
            elif why := flag.problem(value):
                message = f"{flag.option} is {value!r}: {why}."
                yield Finding("flag_value", "error", message, where, "Correct the value.")


def _unknown(name: str, where: str, section: str) -> Finding:
    program = "trtllm-build" if section == "build" else "convert_checkpoint.py"
    instead = GONE.get(name) if section == "build" else None
    message = f"{program} has no flag --{name}."
    return Finding("unknown_flag", "error", message, where, f"Use {instead}." if instead else "Remove it.")


def _out_of_time(flag: Flag, where: str, release: Version, request: BuildRequest) -> Finding:
    known = ".".join(map(str, release))
    gone = bool(flag.until) and release >= parse_version(flag.until)
    when = f"removed in {flag.until}" if gone else f"since {flag.since}"
    message = f"{flag.option} is not known to TensorRT-LLM {known} ({when})."
    remedy = "Remove it."
    if flag.name == "max_output_len":
        prompt = request.build.get("max_input_len", 1024)
        answer = request.build.get("max_output_len")
        if isinstance(prompt, int) and isinstance(answer, int):
            remedy = f"Write max_seq_len: {prompt + answer} (prompt and answer together)."
    return Finding("unknown_flag", "error", message, where, remedy)


def _value(request: BuildRequest, name: str) -> Any:
    value = request.build.get(name)
    flag = BY_NAME[name]
    return flag.default if value is None else value


def _whole(request: BuildRequest, name: str) -> int | None:
    value = _value(request, name)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _limits(request: BuildRequest) -> Iterator[Finding]:
    batch, tokens, length = (
        _whole(request, "max_batch_size"),
        _whole(request, "max_num_tokens"),
        _whole(request, "max_seq_len"),
    )
    for name in (
        "max_batch_size",
        "max_num_tokens",
        "max_seq_len",
        "max_beam_width",
        "workers",
        "tokens_per_block",
    ):
        value = _whole(request, name)
        if value is not None and value < 1:
            yield _error("limit_too_small", f"build.{name}", f"{name} is {value}.", "Use 1 or more.")
    if length is None:
        yield _warn(
            "max_seq_len_unset",
            "build.max_seq_len",
            "max_seq_len is not set: the engine takes the model's own length, often far more than is served.",
            "Write the longest prompt and answer together.",
        )
    if batch and tokens and length and tokens > batch * length:
        message = f"max_num_tokens {tokens} is more than max_batch_size x max_seq_len = {batch * length}."
        yield _warn(
            "max_num_tokens_clamped", "build.max_num_tokens", message, "The builder lowers it to that."
        )
    if tokens and tokens > 16384:
        message = f"max_num_tokens {tokens} is above 16384; activation memory grows with it."
        yield _warn(
            "max_num_tokens_large", "build.max_num_tokens", message, "Use 8192 unless it was measured."
        )
    if "max_input_len" in request.build and _packed(request):
        yield _warn(
            "max_input_len_ignored",
            "build.max_input_len",
            "max_input_len is ignored with packed inputs and fused attention; max_num_tokens bounds the prompt.",
            "Remove it.",
        )
    if "opt_num_tokens" in request.build and _value(request, "multiple_profiles") in ON:
        message = "opt_num_tokens and multiple_profiles exclude each other."
        yield _error("profiles_with_opt_tokens", "build.opt_num_tokens", message, "Remove opt_num_tokens.")
    if request.build.get("build_config"):
        message = "With build_config the builder ignores every size on the command line."
        yield _warn("build_config_wins", "build.build_config", message, "Write the sizes into that file.")


def _packed(request: BuildRequest) -> bool:
    return _value(request, "remove_input_padding") not in OFF and _value(request, "context_fmha") not in OFF


def _attention(request: BuildRequest) -> Iterator[Finding]:
    fused, paged = _value(request, "context_fmha"), request.build.get("use_paged_context_fmha")
    if fused in OFF and paged in ON:
        yield _error(
            "paged_fmha_needs_fmha",
            "build.use_paged_context_fmha",
            "context_fmha off turns paged attention off too.",
            "Enable context_fmha.",
        )
    if _value(request, "remove_input_padding") in OFF:
        yield _error(
            "in_flight_needs_packed_inputs",
            "build.remove_input_padding",
            "Without packed inputs there is no in-flight batching, and activations grow with the whole batch.",
            "Enable remove_input_padding.",
        )
    if _value(request, "gpt_attention_plugin") == "disable":
        yield _error(
            "in_flight_needs_attention_plugin",
            "build.gpt_attention_plugin",
            "In-flight batching needs the attention plugin.",
            "Use auto.",
        )
    if request.build.get("kv_cache_type") in ("continuous", "disabled"):
        message = "In-flight batching needs the paged KV cache."
        yield _error("in_flight_needs_paged_kv", "build.kv_cache_type", message, "Use paged.")
    if _value(request, "streamingllm") in ON:
        message = "StreamingLLM is no longer supported; the build ends there."
        yield _error("streamingllm_gone", "build.streamingllm", message, "Remove it.")
    kv, weights = request.quantization.kv_cache, request.quantization.format
    if kv == "int8" or (kv == "fp8" and weights not in FP8_WEIGHTS):
        yield _warn(
            "paged_fmha_lost",
            "quantization.kvCacheDtype",
            f"With a KV cache of {kv} and weights of {weights} the builder turns paged attention off: no KV reuse, "
            "no chunked context.",
            "Use fp8 weights with an fp8 KV cache, or a 16-bit KV cache.",
        )
    if request.build.get("use_fp8_context_fmha") in ON and not (weights in FP8_WEIGHTS and kv == "fp8"):
        yield _warn(
            "fp8_fmha_idle",
            "build.use_fp8_context_fmha",
            "FP8 attention acts only with FP8 weights and an FP8 KV cache.",
            "Set kvCacheDtype: fp8, or remove it.",
        )
    if _value(request, "gather_context_logits") is True and request.build.get("max_draft_len"):
        message = "Logits of the prompt cannot be kept with draft tokens."
        yield _error("logits_with_drafts", "build.gather_context_logits", message, "Remove one of the two.")


def _quantization(request: BuildRequest, facts: ModelFacts | None) -> Iterator[Finding]:
    quantization = request.quantization
    kind = quantization.format
    if kind in ("int4_awq", "w4a8_awq", "gptq", "awq") and quantization.group_size not in (64, 128):
        yield _error(
            "group_size",
            "quantization.groupSize",
            f"The kernels know groups of 64 and 128, not {quantization.group_size}.",
            "Use 128, or quantise the checkpoint again.",
        )
    stored = facts.quantization if facts is not None else None
    if stored is not None and kind not in ("none", "gptq", "awq"):
        yield _error(
            "quantized_twice",
            "quantization",
            f"The checkpoint is quantised already ({stored.method}).",
            "Use none, gptq or awq, or begin with the 16-bit checkpoint.",
        )
    if kind in ("int4_awq", "w4a8_awq") and quantization.calibration.size > AWQ_MOST_TEXTS:
        message = (
            f"AWQ calibrates with at most {AWQ_MOST_TEXTS} texts; {quantization.calibration.size} are cut."
        )
        yield _warn("calibration_cut", "quantization.calibration.size", message, f"Write {AWQ_MOST_TEXTS}.")
    dataset = quantization.calibration.dataset
    if kind in CALIBRATED and dataset.startswith("/") and "cnn_dailymail" not in dataset:
        yield _error(
            "calibration_dataset_path_needs_cnn_dailymail",
            "quantization.calibration.dataset",
            "A local set is recognised by the text cnn_dailymail in its path.",
            "Rename the folder so that its path contains cnn_dailymail.",
        )
    if quantization.quantize_lm_head and kind != "fp8":
        message = "The last layer is quantised with fp8 alone."
        yield _error("lm_head_needs_fp8", "quantization.quantizeLmHead", message, "Remove it, or use fp8.")
    if kind == "int8_sq" and facts is not None and facts.moe is not None:
        message = "SmoothQuant does not know mixtures of experts."
        yield _error("smoothquant_moe", "quantization", message, "Use fp8 or int8_wo.")
    if kind == "gptq" and not quantization.weights and stored is None:
        message = "gptq needs weights that are quantised already."
        yield _error("gptq_weights", "quantization.weights", message, "Write weights: /folder/of/them.")


def _parallel(request: BuildRequest, facts: ModelFacts | None) -> Iterator[Finding]:
    parallel = request.parallel
    if parallel.moe_ep > 1 and parallel.tp % parallel.moe_ep:
        message = f"moeEp {parallel.moe_ep} does not divide tp {parallel.tp}."
        yield _error(
            "expert_parallel", "parallel.moeEp", message, "Their product with moe_tp_size is tp_size."
        )
    gpus = request.target.gpus
    if gpus is not None and parallel.tp * parallel.pp > gpus:
        yield _warn(
            "more_ranks_than_gpus",
            "parallel",
            f"The engine needs {parallel.tp * parallel.pp} GPUs to serve, and the host has {gpus}.",
            "Build it here if you like; serve it on a larger host.",
        )
    workers = _whole(request, "workers")
    if gpus is not None and workers is not None and workers > gpus:
        message = f"workers {workers} is more than the host's {gpus} GPUs; that many are used."
        yield _warn("workers_capped", "build.workers", message, f"Write workers: {gpus}.")
    if facts is None:
        return
    if why := tp_problem(facts, parallel.tp, facts.quantization):
        legal = ", ".join(map(str, facts.valid_tp or ())) or "none"
        yield _error("tp_illegal", "parallel.tp", f"tp {parallel.tp}: {why}.", f"Legal sizes are: {legal}.")
    group = request.quantization.group_size
    if request.quantization.format in ("int4_awq", "w4a8_awq", "gptq", "awq"):
        for name, width in facts.row_widths.items():
            if width % parallel.tp == 0 and (width // parallel.tp) % group:
                message = f"{name} {width} / tp {parallel.tp} is not a multiple of the group size {group}."
                yield _error("group_over_tp", "parallel.tp", message, "Use a smaller tp, or groupSize 64.")


def _fusions(request: BuildRequest, facts: ModelFacts | None) -> Iterator[Finding]:
    if _value(request, "reduce_fusion") in ON and request.parallel.tp == 1:
        message = "reduce_fusion does nothing with one rank; the builder turns it off."
        yield _warn("reduce_fusion_idle", "build.reduce_fusion", message, "Remove it.")
    if request.build.get("user_buffer") in ON and _value(request, "reduce_fusion") not in ON:
        message = "user_buffer needs reduce_fusion."
        yield _error("user_buffer_alone", "build.user_buffer", message, "Enable reduce_fusion too.")
    if _value(request, "norm_quant_fusion") in ON and _value(request, "reduce_fusion") in ON:
        message = "norm_quant_fusion and reduce_fusion exclude each other."
        yield _error("fusions_exclude", "build.norm_quant_fusion", message, "Keep one of them.")
    if _value(request, "pp_reduce_scatter") in ON and (facts is None or facts.family != "mixtral"):
        message = "pp_reduce_scatter is supported for Mixtral alone."
        yield _error("pp_reduce_scatter", "build.pp_reduce_scatter", message, "Remove it.")
    for name in ("gemm_swiglu_plugin", "low_latency_gemm_swiglu_plugin"):
        if request.build.get(name) == "fp8" and _value(request, "use_fused_mlp") in OFF:
            message = f"{name} needs use_fused_mlp."
            yield _error("swiglu_needs_fused_mlp", f"build.{name}", message, "Enable use_fused_mlp.")
    if request.build.get("lora_dir") and _value(request, "lora_plugin") == "disable":
        message = "Adapters act only with lora_plugin."
        yield _error("lora_needs_plugin", "build.lora_plugin", message, "Write lora_plugin: auto.")


def _gpu(request: BuildRequest, sm: int) -> Iterator[Finding]:
    kind, kv = request.quantization.format, request.quantization.kv_cache
    if sm < 80:
        message = "TensorRT-LLM 1.x supports Ampere and later (SM 80); this GPU is older."
        yield _error("gpu_too_old", "target.gpu", message, "Choose another GPU.")
        return
    if sm < 89 and (kind in FP8_WEIGHTS - {"nvfp4"} or kv == "fp8"):
        what = "an FP8 KV cache" if kind not in FP8_WEIGHTS else "FP8 weights"
        message = f"{what[0].upper()}{what[1:]} need Ada or Hopper (SM 89 and later); this GPU is SM {sm}."
        yield _error("fp8_unsupported_gpu", "quantization", message, "Use int8_sq, int4_awq or int8_wo.")
    if kind == "nvfp4" and sm < 100:
        message = f"NVFP4 needs Blackwell (SM 100 and later); this GPU is SM {sm}."
        yield _error("nvfp4_unsupported_gpu", "quantization", message, "Use fp8.")
    if kind == "fp8_rowwise" and sm != 90:
        message = "Row-wise FP8 is for Hopper (SM 90)."
        yield _error("fp8_rowwise_gpu", "quantization", message, "Use fp8.")
    if 100 <= sm < 120:
        if kind in ("int8_sq", "int8_wo", "int4_wo", "w4a8_awq") or kv == "int8":
            message = f"The builder refuses INT8 and INT4 on SM {sm}."
            yield _error("int_unsupported_gpu", "quantization", message, "Use fp8 or nvfp4.")
        for name in ("gemm_swiglu_plugin", "low_latency_gemm_plugin", "low_latency_gemm_swiglu_plugin"):
            if request.build.get(name) == "fp8":
                message = f"{name} is not supported on SM {sm}."
                yield _error("plugin_unsupported_gpu", f"build.{name}", message, "Remove it.")


def _error(id: str, where: str, message: str, remedy: str) -> Finding:
    return _finding(id, "error", where, message, remedy)


def _warn(id: str, where: str, message: str, remedy: str) -> Finding:
    return _finding(id, "warning", where, message, remedy)


def _finding(id: str, severity: Severity, where: str, message: str, remedy: str) -> Finding:
    return Finding(id, severity, message, where, remedy)
