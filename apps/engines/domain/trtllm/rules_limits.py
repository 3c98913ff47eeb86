"""Rules between limits, attention and how an engine is built."""

from __future__ import annotations

from collections.abc import Iterator

from apps.core.exceptions import Finding
from apps.engines.domain.trtllm.asked import (
    FP8_WEIGHTS,
    OFF,
    error,
    note,
    on,
    packed,
    paged_context,
    value,
    warn,
    whole,
)
from apps.engines.domain.trtllm.request import BuildRequest
from apps.registry.domain.model_facts import ModelFacts

# The builder warns above this number of tokens in a step.
MANY_TOKENS = 16384
# Bounds that the builder asserts for EAGLE.
EAGLE_BATCH, EAGLE_DRAFT = 512, 256
AT_LEAST_ONE = (
    *("max_batch_size", "max_num_tokens", "max_seq_len", "max_input_len", "max_beam_width", "workers"),
    *("tokens_per_block", "opt_num_tokens", "max_lora_rank"),
)


def limits(request: BuildRequest, facts: ModelFacts | None) -> Iterator[Finding]:
    """Batch, tokens and lengths against each other and against the model."""
    for name in AT_LEAST_ONE:
        number = whole(request, name)
        if number is not None and number < 1:
            yield error("limit_too_small", f"build.{name}", f"{name} is {number}.", "Use 1 or more.")
    if request.build.get("build_config"):
        message = "With build_config the builder ignores every size on the command line."
        yield warn("build_config_wins", "build.build_config", message, "Write the sizes into that file.")
    yield from _length(request, facts)
    yield from _tokens(request)
    yield from _prompt(request)
    yield from _drafts(request)


def _length(request: BuildRequest, facts: ModelFacts | None) -> Iterator[Finding]:
    length = whole(request, "max_seq_len")
    longest = facts.max_position_embeddings if facts is not None else None
    if length is None and not request.build.get("build_config"):
        taken = f" ({longest} tokens)" if longest else ""
        yield warn(
            "max_seq_len_unset",
            "build.max_seq_len",
            f"max_seq_len is not set: the engine takes the model's own length{taken}, often far more than is served.",
            "Write the longest prompt and answer together.",
        )
    if length and longest and length > longest:
        yield warn(
            "max_seq_len_over_model",
            "build.max_seq_len",
            f"max_seq_len {length} is more than the model's {longest}; answers get worse beyond it.",
            f"Write {longest} or less.",
        )
    if "max_batch_size" not in request.build and not request.build.get("build_config"):
        yield warn(
            "max_batch_size_unset",
            "build.max_batch_size",
            "max_batch_size is not set: the engine gets 2048, and the runtime's buffers are sized by it before any "
            "KV cache.",
            "Write as many sequences as are served at once.",
        )


def _tokens(request: BuildRequest) -> Iterator[Finding]:
    batch, tokens, length = (
        whole(request, "max_batch_size"),
        whole(request, "max_num_tokens"),
        whole(request, "max_seq_len"),
    )
    where = "build.max_num_tokens"
    if batch and tokens and length and tokens > batch * length:
        message = f"max_num_tokens {tokens} is more than max_batch_size x max_seq_len = {batch * length}."
        yield warn("max_num_tokens_clamped", where, message, "The builder lowers it to that.")
    if tokens and tokens > MANY_TOKENS:
        message = f"max_num_tokens {tokens} is above {MANY_TOKENS}; activation memory grows with it."
        yield warn("max_num_tokens_large", where, message, "Use 8192 unless it was measured.")
    block = whole(request, "tokens_per_block")
    if tokens and block and tokens < block and value(request, "context_fmha") not in OFF:
        message = f"max_num_tokens {tokens} is less than tokens_per_block {block}."
        yield warn("max_num_tokens_raised", where, message, f"The builder raises it to {block}.")
    if block and block & (block - 1):
        message = f"tokens_per_block {block} is no power of two."
        yield error("tokens_per_block", "build.tokens_per_block", message, "Use 16, 32, 64 or 128.")
    tuned = whole(request, "opt_num_tokens")
    if tuned and on(request, "multiple_profiles"):
        message = "opt_num_tokens and multiple_profiles exclude each other."
        yield error("profiles_with_opt_tokens", "build.opt_num_tokens", message, "Remove opt_num_tokens.")
    elif tuned and tokens and tuned > tokens:
        message = f"opt_num_tokens {tuned} is more than max_num_tokens {tokens}."
        yield warn(
            "opt_num_tokens_clamped", "build.opt_num_tokens", message, "The builder lowers it to that."
        )


def _prompt(request: BuildRequest) -> Iterator[Finding]:
    """How long a prompt may be: chunked context lifts max_num_tokens, and needs paged attention."""
    tokens, length, prompt = (
        whole(request, "max_num_tokens"),
        whole(request, "max_seq_len"),
        whole(request, "max_input_len"),
    )
    if "max_input_len" in request.build:
        if packed(request):
            message = (
                "max_input_len is ignored with packed inputs and fused attention; max_num_tokens counts."
            )
            yield warn("max_input_len_ignored", "build.max_input_len", message, "Remove it.")
        if prompt and length and prompt > length:
            message = (
                f"max_input_len {prompt} is more than max_seq_len {length}, which counts the answer too."
            )
            yield warn("max_input_len_over_seq_len", "build.max_input_len", message, "Raise max_seq_len.")
        if prompt and tokens and tokens < prompt and not packed(request):
            message = f"max_num_tokens {tokens} is less than max_input_len {prompt}."
            yield warn(
                "max_num_tokens_raised",
                "build.max_num_tokens",
                message,
                f"The builder raises it to {prompt}.",
            )
    if not tokens or not length or length <= tokens:
        return
    if paged_context(request):
        yield note(
            "prompt_needs_chunks",
            "build.max_num_tokens",
            f"Prompts over {tokens} tokens need chunked context, although max_seq_len is {length}.",
            "Enable chunked context in the batching profile, or raise max_num_tokens.",
        )
    else:
        yield warn(
            "prompt_limit",
            "build.max_num_tokens",
            f"Prompts over {tokens} tokens will be refused, although max_seq_len is {length}: without paged "
            "attention there is no chunked context.",
            "Enable use_paged_context_fmha (and a KV cache that allows it), or raise max_num_tokens.",
        )


def _drafts(request: BuildRequest) -> Iterator[Finding]:
    mode, drafts = value(request, "speculative_decoding_mode"), whole(request, "max_draft_len") or 0
    batch, tokens = whole(request, "max_batch_size") or 0, whole(request, "max_num_tokens") or 0
    for name in ("gather_context_logits", "gather_all_token_logits"):
        if value(request, name) is True and drafts:
            message = "Logits of the prompt cannot be kept with draft tokens."
            yield error("logits_with_drafts", f"build.{name}", message, "Remove one of the two.")
    if mode is None:
        if drafts:
            message = f"max_draft_len {drafts} has no effect without speculative_decoding_mode."
            yield warn("drafts_without_mode", "build.max_draft_len", message, "Choose a mode, or remove it.")
        return
    yield note(
        "speculation_unproven",
        "build.speculative_decoding_mode",
        "Speculative decoding is built and counted in the plan; serving it is not proven here.",
    )
    if mode in ("draft_tokens_external", "lookahead_decoding") and not drafts:
        message = f"{mode} needs max_draft_len above 0."
        yield error(
            "mode_without_drafts", "build.max_draft_len", message, "Write the most draft tokens of a step."
        )
    if mode == "eagle" and batch > EAGLE_BATCH:
        message = f"EAGLE allows a max_batch_size of at most {EAGLE_BATCH}; this is {batch}."
        yield error("eagle_batch", "build.max_batch_size", message, f"Write {EAGLE_BATCH} or less.")
    if mode == "eagle" and drafts > EAGLE_DRAFT:
        message = f"EAGLE allows a max_draft_len of at most {EAGLE_DRAFT}; this is {drafts}."
        yield error("eagle_draft", "build.max_draft_len", message, f"Write {EAGLE_DRAFT} or less.")
    if drafts and batch and tokens < batch * (drafts + 1):
        needed = batch * (drafts + 1)
        message = f"max_num_tokens {tokens} is less than max_batch_size x (max_draft_len + 1) = {needed}."
        yield warn("max_num_tokens_raised", "build.max_num_tokens", message, "The builder raises it to that.")


def attention(request: BuildRequest) -> Iterator[Finding]:
    """Fused, paged and FP8 attention; what in-flight batching needs."""
    yield from _in_flight(request)
    fused, paged = value(request, "context_fmha"), request.build.get("use_paged_context_fmha")
    if fused in OFF and paged in (True, "enable"):
        yield error(
            "paged_fmha_needs_fmha",
            "build.use_paged_context_fmha",
            "context_fmha off turns paged attention off too.",
            "Enable context_fmha.",
        )
    elif fused in OFF or paged in OFF:
        yield warn(
            "paged_fmha_off",
            "build.context_fmha" if fused in OFF else "build.use_paged_context_fmha",
            "Without paged attention for prompts there is no KV reuse and no chunked context.",
            "Leave context_fmha and use_paged_context_fmha enabled.",
        )
    kv, weights = request.quantization.kv_cache, request.quantization.format
    if kv == "int8" or (kv == "fp8" and weights not in FP8_WEIGHTS):
        yield warn(
            "paged_fmha_lost",
            "quantization.kvCacheDtype",
            f"With a KV cache of {kv} and weights of {weights} the builder turns paged attention off: no KV reuse, "
            "no chunked context.",
            "Use fp8 weights with an fp8 KV cache, or a 16-bit KV cache.",
        )
    if request.build.get("use_fp8_context_fmha") in (True, "enable"):
        if fused in OFF:
            message = "context_fmha off turns FP8 attention off too."
            yield error("fp8_fmha_needs_fmha", "build.use_fp8_context_fmha", message, "Enable context_fmha.")
        elif not (weights in FP8_WEIGHTS - {"fp8_rowwise"} and kv == "fp8"):
            message = "FP8 attention acts only with FP8 weights and an FP8 KV cache."
            remedy = "Set kvCacheDtype: fp8, or remove it."
            yield warn("fp8_fmha_idle", "build.use_fp8_context_fmha", message, remedy)
    for name in ("gather_context_logits", "gather_all_token_logits"):
        if value(request, name) is True:
            message = f"{name} takes much memory and switches KV reuse off."
            yield warn(
                "kv_reuse_lost", f"build.{name}", message, "Remove it unless the prompt's logits are needed."
            )


def _in_flight(request: BuildRequest) -> Iterator[Finding]:
    if value(request, "remove_input_padding") in OFF:
        yield error(
            "in_flight_needs_packed_inputs",
            "build.remove_input_padding",
            "Without packed inputs there is no in-flight batching, and activations grow with the whole batch.",
            "Enable remove_input_padding.",
        )
    if value(request, "gpt_attention_plugin") == "disable":
        yield error(
            "in_flight_needs_attention_plugin",
            "build.gpt_attention_plugin",
            "In-flight batching needs the attention plugin.",
            "Use auto.",
        )
    if request.build.get("kv_cache_type") in ("continuous", "disabled"):
        message = "In-flight batching needs the paged KV cache."
        yield error("in_flight_needs_paged_kv", "build.kv_cache_type", message, "Use paged.")
    if request.build.get("paged_kv_cache") in OFF:
        message = "In-flight batching needs the paged KV cache."
        yield error("in_flight_needs_paged_kv", "build.paged_kv_cache", message, "Remove it.")
    if on(request, "streamingllm"):
        message = "StreamingLLM is no longer supported; the build ends there."
        yield error("streamingllm_gone", "build.streamingllm", message, "Remove it.")


def building(request: BuildRequest) -> Iterator[Finding]:
    """Flags about how it is built, and what they leave behind."""
    if value(request, "dry_run") is True:
        message = "dry_run builds no engine, so there would be nothing to check and to serve."
        yield error(
            "dry_run_leaves_nothing", "build.dry_run", message, "Remove it; the preview shows the steps."
        )
    if value(request, "strip_plan") is True:
        message = "An engine without weights cannot serve before it is refitted, which Inflight does not do."
        yield error("strip_plan_needs_refit", "build.strip_plan", message, "Remove it.")
    if request.build.get("model_cls_file") and not request.build.get("model_cls_name"):
        message = "model_cls_file needs the name of its class."
        yield error("model_class_unnamed", "build.model_cls_name", message, "Write model_cls_name too.")
    if request.build.get("model_config"):
        message = "model_config replaces the converted checkpoint's own config.json."
        yield warn("model_config_given", "build.model_config", message, "Remove it unless that is meant.")
    plain = request.convert.get("disable_weight_only_quant_plugin") is True
    if (
        value(request, "fast_build") is True
        and plain
        and request.quantization.format in ("int8_wo", "int4_wo")
    ):
        message = "fast_build with quantised weights works only with their plugin."
        yield error("fast_build_needs_plugin", "build.fast_build", message, "Remove one of the two.")
    yield from _adapters(request)


def _adapters(request: BuildRequest) -> Iterator[Finding]:
    plugin = value(request, "lora_plugin") not in (None, "disable")
    if not plugin:
        for name in ("lora_dir", "lora_target_modules"):
            if request.build.get(name):
                message = f"{name} acts only with lora_plugin."
                yield error("lora_needs_plugin", "build.lora_plugin", message, "Write lora_plugin: auto.")
        if on(request, "dora_plugin"):
            message = "dora_plugin needs lora_plugin."
            yield error("lora_needs_plugin", "build.dora_plugin", message, "Write lora_plugin: auto.")
        return
    if not request.build.get("lora_dir") and not request.build.get("lora_target_modules"):
        message = "lora_plugin needs the modules that have adapters."
        remedy = "Write lora_target_modules, or a lora_dir that has them."
        yield warn("lora_without_modules", "build.lora_target_modules", message, remedy)
    yield note(
        "lora_unproven", "build.lora_plugin", "Adapters are built in; serving them is not proven here."
    )
