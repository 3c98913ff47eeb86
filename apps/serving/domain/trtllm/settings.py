"""Every setting of the TensorRT-LLM model as data: what it means, what it costs, which figure shows that it works.

Source: the C++ backend's reader and the llmapi model's arguments, 0.19 to 1.2. Keys are the backend's own;
form, default and choices are those that `repository_check.trtllm_parameters` checks existing repositories with.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from apps.core.exceptions import Finding, InvalidInput
from apps.serving.domain.repository_check.trtllm_parameters import TENSORRT_LLM, Form

Place = Literal["profile", "deployment", "fixed"]
Value = bool | int | float | str
_PARAMETERS = {parameter.key: parameter for parameter in TENSORRT_LLM}
_INTS = re.compile(r"\d{1,9}(,\d{1,9})*\Z")
_SETS = re.compile(r"\d{1,4}(,\d{1,4})*(;\d{1,4}(,\d{1,4})*)*\Z")
_CHOICE_TREE = re.compile(r"\{\d+(,\d+)*\}(,\{\d+(,\d+)*\})*\Z")
_BIG = 2**63 - 1
LOOKAHEAD = ("lookahead_window_size", "lookahead_ngram_size", "lookahead_verification_set_size")


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting. `place` says who has it: the batching profile, the deployment, or nobody ("fixed": we write it).

    `yaml` is its path among the arguments of the llmapi model, empty where that model has none. `metric` is a name of
    the telemetry vocabulary or an output of the model, empty where nothing shows it. `engine` is false for what the
    C++ backend does not read.
    """

    key: str
    title: str
    meaning: str
    cost: str = "none."
    metric: str = ""
    place: Place = "profile"
    yaml: str = ""
    least: int = 0
    most: int = _BIG
    engine: bool = True
    own_form: Form = "int"
    own_default: str | None = None
    own_choices: tuple[str, ...] = ()

    @property
    def form(self) -> Form:
        """Which values it takes."""
        return _PARAMETERS[self.key].form if self.key in _PARAMETERS else self.own_form

    @property
    def default(self) -> str | None:
        """What the engine takes where it is not set; None: it depends, and `meaning` says on what."""
        return _PARAMETERS[self.key].default if self.key in _PARAMETERS else self.own_default

    @property
    def choices(self) -> tuple[str, ...]:
        """The words that it takes; empty for every other form."""
        return _PARAMETERS[self.key].choices if self.key in _PARAMETERS else self.own_choices


_S = Setting
KV_CACHE: tuple[Setting, ...] = (
    _S(
        "kv_cache_free_gpu_mem_fraction",
        "KV cache: share of free GPU memory",
        "Share of the memory that is free after the weights are loaded.",
        "what the cache takes is not there for anything else on this GPU; above 0.95 peaks run out of memory.",
        "kv_use",
        yaml="kv_cache_config.free_gpu_memory_fraction",
    ),
    _S(
        "max_tokens_in_paged_kv_cache",
        "KV cache: tokens",
        "Size of the cache in tokens, whatever is free; not set, the share of free memory decides.",
        "too few and requests wait for blocks; needed where two engines share a GPU.",
        "kv_tokens_capacity",
        yaml="kv_cache_config.max_tokens",
        least=1,
    ),
    _S(
        "enable_kv_cache_reuse",
        "KV reuse",
        "Blocks of earlier prompts are kept, so that a prompt that begins alike skips their computation.",
        "kept blocks count as used; needs an engine with paged context FMHA.",
        "kv_blocks_reused_per_second",
        yaml="kv_cache_config.enable_block_reuse",
    ),
    _S(
        "kv_cache_host_memory_bytes",
        "Host cache (bytes)",
        "Host memory to which blocks are moved before they are dropped.",
        "pinned host memory, and copies over PCIe when a block comes back.",
        "runtime_pinned_memory_bytes",
        yaml="kv_cache_config.host_cache_size",
    ),
    _S(
        "kv_cache_onboard_blocks",
        "Bring host blocks back",
        "Blocks from the host cache are copied to the GPU before they are used, and not read over PCIe.",
        yaml="kv_cache_config.onboard_blocks",
    ),
    _S(
        "max_attention_window_size",
        "Attention window (tokens)",
        "Tokens that attention looks back, one number for each layer of a repeating pattern, as 4096,8192; not set, "
        "the whole sequence.",
        "answers lose what lies before the window.",
        "kv_tokens_used",
        yaml="kv_cache_config.max_attention_window",
    ),
    _S(
        "sink_token_length",
        "Sink tokens",
        "First tokens that always stay inside the window.",
        "they take a part of the window.",
        yaml="kv_cache_config.sink_token_length",
    ),
    _S(
        "cross_kv_cache_fraction",
        "KV cache: share for cross attention",
        "Encoder-decoder models alone, where it must be set; a decoder-only engine with it does not load.",
        "taken from the share of self attention.",
        "kv_use",
        yaml="kv_cache_config.cross_kv_cache_fraction",
    ),
)
SCHEDULING: tuple[Setting, ...] = (
    _S(
        "batch_scheduler_policy",
        "Scheduler policy",
        "guaranteed_no_evict admits a request when its whole answer fits into the cache; max_utilization admits "
        "what fits now.",
        "max_utilization pauses requests when the cache is full and computes their prompts again: ITL jumps.",
        "requests_paused",
        yaml="scheduler_config.capacity_scheduler_policy",
    ),
    _S(
        "enable_chunked_context",
        "Chunked context",
        "Long prompts are computed in pieces beside running answers, and may be longer than one step.",
        "TTFT of a long prompt grows a little; needs an engine with paged context FMHA.",
        "context_tokens",
        yaml="enable_chunked_prefill",
    ),
    _S(
        "max_num_tokens",
        "Tokens of one step",
        "Tokens of all requests together in one step, prompts included. The engine recipe fixes it in the build.",
        "activations grow with it; too few and long prompts are refused or split.",
        "context_tokens",
        yaml="max_num_tokens",
        least=32,
        most=1_048_576,
        engine=False,
        own_default="8192",
    ),
    _S(
        "max_beam_width",
        "Beams",
        "Most beams that a request may ask for; at most those of the build.",
        "the KV cache of every request is taken this many times.",
        "kv_tokens_used",
        yaml="max_beam_width",
        least=1,
        most=64,
    ),
    _S(
        "cancellation_check_period_ms",
        "Look for cancelled requests (ms)",
        "How often the backend asks which clients went away.",
        "shorter frees slots sooner and asks more often.",
        "requests_cancelled_per_second",
        least=1,
        most=60_000,
    ),
    _S(
        "recv_poll_period_ms",
        "Poll for requests (ms)",
        "Pause between two looks for new requests; 0 looks without a pause.",
        "0 keeps one CPU core busy; more adds to TTFT.",
        "ttft_p50_ms",
        most=1_000,
    ),
    _S(
        "gpu_weights_percent",
        "Weights on the GPU",
        "Share that stays there; the rest is streamed in each step. Needs weight streaming in the build.",
        "every step waits for the copies.",
        "itl_p50_ms",
    ),
)
KERNELS: tuple[Setting, ...] = (
    _S(
        "multi_block_mode",
        "Multi-block attention",
        "Attention of a long context with few requests is spread over more of the GPU.",
        metric="itl_p50_ms",
    ),
    _S(
        "enable_context_fmha_fp32_acc",
        "FP32 sums in context attention",
        "Adds up attention of the prompt in 32 bits.",
        "slower prompts; for models whose answers decay without.",
        "ttft_p50_ms",
    ),
    _S(
        "cuda_graph_mode",
        "CUDA graphs",
        "Steps are recorded once and replayed, which saves launches on the CPU.",
        "GPU memory for each recorded shape.",
        "itl_p50_ms",
    ),
    _S(
        "cuda_graph_cache_size",
        "CUDA graphs kept",
        "How many recorded shapes are kept; 0 keeps none although the mode is on.",
        "GPU memory for each.",
        "runtime_gpu_memory_bytes",
        most=1024,
    ),
)
DECODING: tuple[Setting, ...] = (
    _S(
        "decoding_mode",
        "Decoding",
        "How the next token is chosen; not set, top_k_top_p, or beam_search with more than one beam.",
        "medusa, redrafter, lookahead and eagle need an engine built for them.",
        "output acceptance_rate",
    ),
    *(
        _S(key, title, meaning, "more computation in each step.", "output acceptance_rate", least=1, most=256)
        for key, title, meaning in (
            (LOOKAHEAD[0], "Lookahead: window", "Width of the lookahead window; needed with lookahead."),
            (LOOKAHEAD[1], "Lookahead: n-gram", "Length of guessed n-grams; needed with lookahead."),
            (LOOKAHEAD[2], "Lookahead: verified", "Guesses checked in one step; needed with lookahead."),
        )
    ),
    _S(
        "medusa_choices",
        "Medusa tree",
        "Paths of the guess tree, as {0},{0,0},{1}; not set, mc_sim_7b_63.",
        "more computation in each step.",
        "output acceptance_rate",
    ),
    _S(
        "eagle_choices",
        "EAGLE tree",
        "Paths of the guess tree, as {0},{0,0},{1}; not set, mc_sim_7b_63.",
        "more computation in each step.",
        "output acceptance_rate",
    ),
    _S(
        "speculative_decoding_fast_logits",
        "Fast logits of a draft model",
        "The draft model's logits pass between the processes directly; needs orchestrator mode without spawning.",
        "a process layout of its own.",
        "output acceptance_rate",
    ),
    _S(
        "guided_decoding_backend",
        "Guided decoding",
        "What holds answers to a schema or grammar; not set, requests cannot ask for it.",
        "each token waits for a mask made on the CPU.",
        "itl_p50_ms",
        yaml="guided_decoding_backend",
    ),
    _S(
        "exclude_input_in_output",
        "Leave the prompt out",
        "The prompt is not repeated before the answer.",
        metric="output output_ids",
    ),
    _S(
        "normalize_log_probs",
        "Normalise log probabilities",
        "The sum for each beam is divided by its length.",
        metric="output cum_log_probs",
    ),
)
LORA: tuple[Setting, ...] = (
    _S(
        "lora_cache_gpu_memory_fraction",
        "LoRA: share of free GPU memory",
        "Taken for adapters before the KV cache.",
        "the KV cache is smaller by it.",
        "kv_tokens_capacity",
    ),
    _S(
        "lora_cache_host_memory_bytes",
        "LoRA: host memory (bytes)",
        "Adapters that are kept on the host.",
        "host memory.",
        "runtime_cpu_memory_bytes",
    ),
    _S(
        "lora_cache_optimal_adapter_size",
        "LoRA: usual rank",
        "Rank for which the cache is laid out.",
        "too small and fewer adapters fit than expected.",
        least=1,
        most=1024,
    ),
    _S(
        "lora_cache_max_adapter_size",
        "LoRA: largest rank",
        "Requests with a larger rank are refused.",
        "the smallest unit of the cache grows with it.",
        least=1,
        most=1024,
    ),
)
STATISTICS: tuple[Setting, ...] = (
    _S(
        "stats_check_period_ms",
        "Statistics every (ms)",
        "How often the backend's figures are renewed.",
        "shorter costs CPU time.",
        "engine_stale",
        least=1,
        most=60_000,
    ),
    _S(
        "iter_stats_max_iterations",
        "Steps kept in the statistics",
        "0 keeps none, and every figure of the engine stays away.",
        metric="iterations_per_second",
        yaml="iter_stats_max_iterations",
        most=1_000_000,
    ),
    _S(
        "request_stats_max_iterations",
        "Steps kept with their requests",
        "For looking into single requests.",
        "host memory and CPU time for each step.",
        yaml="request_stats_max_iterations",
        most=1_000_000,
    ),
)
DEPLOYMENT: tuple[Setting, ...] = tuple(
    _S(key, title, meaning, cost, place="deployment", least=least, most=4096, yaml=yaml)
    for key, title, meaning, cost, least, yaml in (
        ("gpt_model_path", "Engine folder", "The engine; Inflight fills it in.", "none.", 0, "model"),
        ("encoder_model_path", "Encoder's engine", "Encoder-decoder models alone.", "none.", 0, ""),
        ("tokenizer_dir", "Tokenizer folder", "Not set, the checkpoint's.", "none.", 0, "tokenizer"),
        (
            "xgrammar_tokenizer_info_path",
            "Tokenizer for guided decoding",
            "A file made once from the tokenizer; not set, it is made at each load.",
            "none.",
            0,
            "",
        ),
        ("lora_prefetch_dir", "LoRA adapters", "Folder whose adapters are loaded at start.", "load time.", 0, ""),
        ("gpu_device_ids", "GPUs", "Inside one instance with ',', between them with ';'.", "none.", 0, ""),
        ("participant_ids", "MPI ranks", "Of each instance; orchestrator without spawning.", "none.", 0, ""),
        ("num_nodes", "Hosts", "Only 1: one engine over several hosts is not there yet.", "none.", 1, ""),
        ("executor_worker_path", "Worker program", "What orchestrator mode starts for each rank.", "none.", 0, ""),
    )
)  # fmt: skip
# Of the repository around the engine, not of the engine: who answers, how ranks are started, how many of each model.
ENSEMBLE, BLS = "ensemble", "tensorrt_llm_bls"
AROUND: tuple[Setting, ...] = tuple(
    _S(key, title, meaning, cost, place="deployment", engine=False, least=1, most=4096, own_default=default,
       own_form="choice" if choices else "int", own_choices=choices)
    for key, title, meaning, cost, default, choices in (
        ("answering_model", "Model that answers", "ensemble: Triton passes a request through the steps; "
         "tensorrt_llm_bls: a Python model calls them.", "tensorrt_llm_bls: a process for each request at once.",
         ENSEMBLE, (ENSEMBLE, BLS)),
        ("rank_mode", "How ranks are started", "leader: a server for each rank; orchestrator: one server that "
         "starts a worker for each rank.", "none.", "leader", ("leader", "orchestrator")),
        ("engine_instances", "Instances of the engine", "More than one need gpu_device_ids, and orchestrator with "
         "several ranks.", "each has weights and a KV cache of its own.", "1", ()),
        ("preprocessing_instances", "Instances of preprocessing", "Prompts that are tokenised at once.",
         "a process for each.", "1", ()),
        ("postprocessing_instances", "Instances of postprocessing", "Answers that become text at once.",
         "a process for each.", "1", ()),
        ("bls_instances", "Instances of tensorrt_llm_bls", "Requests that it answers at once; not set, the largest "
         "batch.", "a process for each.", None, ()),
    )
)  # fmt: skip
FIXED: tuple[Setting, ...] = (
    _S("gpt_model_type", "Batching", "inflight_fused_batching; V1 is refused since 1.0.", place="fixed"),
    _S("FORCE_CPU_ONLY_INPUT_TENSORS", "Inputs on the CPU", "no: the backend reads both.", place="fixed"),
)
GROUPS: tuple[tuple[str, tuple[Setting, ...]], ...] = (
    ("KV cache", KV_CACHE),
    ("Scheduler", SCHEDULING),
    ("Decoding", DECODING),
    ("Kernels", KERNELS),
    ("LoRA", LORA),
    ("Statistics", STATISTICS),
)
PROFILE: dict[str, Setting] = {item.key: item for _title, group in GROUPS for item in group}
PLACED: dict[str, Setting] = {item.key: item for item in (*DEPLOYMENT, *AROUND)}


def check(values: Mapping[str, Any], known: Mapping[str, Setting], where: str) -> dict[str, Value]:
    """The settings with what is not set left out. Raises InvalidInput with one finding for each refused value.

    `where` is the name of the field that holds them; findings are at `where.key`.
    """
    found: dict[str, Value] = {}
    findings: list[Finding] = []
    for key, value in values.items():
        if value is None or value == "":
            continue
        wrong = f"there is no such setting; known are {', '.join(known)}" if key not in known else ""
        wrong = wrong or wrong_value(known[key], value)
        if wrong:
            remedy = f"Write {known[key].default or 'another value'}." if key in known else "Remove it."
            findings.append(Finding("setting_refused", "error", f"{key}: {wrong}.", f"{where}.{key}", remedy))
        else:
            found[key] = value
    if found.get("decoding_mode") == "lookahead":
        for key in (key for key in LOOKAHEAD if key not in found):
            message = f"decoding_mode is lookahead, and {key} is not set: the model would not load."
            findings.append(
                Finding("lookahead_incomplete", "error", message, f"{where}.{key}", f"Set {key}.")
            )
    if findings:
        first = findings[0]
        raise InvalidInput(
            first.id, first.message, field=first.where, remedy=first.remedy, findings=tuple(findings)
        )
    return {key: found[key] for key in known if key in found}


def wrong_value(setting: Setting, value: Any) -> str:
    """Why a value is refused, as the end of a sentence; empty for a good one."""
    form = setting.form
    if form == "bool":
        return "" if isinstance(value, bool) else f"{value!r} is neither true nor false"
    if form in ("int", "fraction"):
        return _wrong_number(setting, value)
    if not isinstance(value, str) or len(value) > 4000 or not value.isprintable():
        return f"{value!r} is no line of text"
    if "${" in value:
        return f"{value!r} is an unfilled variable"
    if setting.choices and value not in setting.choices:
        return f"{value!r} is none of {', '.join(setting.choices)}"
    patterns = {"ints": (_INTS, "4096,8192"), "device_sets": (_SETS, "0,1;2,3")}
    pattern, example = patterns.get(form, (None, ""))
    if setting.key in ("medusa_choices", "eagle_choices"):
        pattern, example = _CHOICE_TREE, "{0},{0,0}"
    return "" if pattern is None or pattern.match(value) else f"{value!r} is not written as {example}"


def _wrong_number(setting: Setting, value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return f"{value!r} is no number"
    if setting.form == "fraction":
        return "" if 0 < value <= 1 else f"{value} is not above 0 and at most 1"
    if not isinstance(value, int):
        return f"{value!r} is no whole number"
    inside = setting.least <= value <= setting.most
    return "" if inside else f"{value} is not from {setting.least} to {setting.most}"


def as_text(value: Value) -> str:
    """A value as a parameter of config.pbtxt."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def json_schema() -> dict[str, dict[str, Any]]:
    """The settings of a profile as JSON schema properties, for the API's description."""
    kinds = {"bool": "boolean", "int": "integer", "fraction": "number"}
    return {
        key: {
            "type": kinds.get(item.form, "string"),
            "description": f"{item.meaning} Default: {item.default or 'it depends'}. Cost: {item.cost}",
            **({"enum": list(item.choices)} if item.choices else {}),
        }
        for key, item in PROFILE.items()
    }
