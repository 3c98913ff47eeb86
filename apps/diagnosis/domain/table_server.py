"""Rules about loading engines and starting servers. See table.py for the order."""

from __future__ import annotations

from apps.diagnosis.domain.rule import Rule, rule

RULES: tuple[Rule, ...] = (
    rule(
        "tensorrt_version_mismatch",
        "The engine was built with another version of TensorRT.",
        [
            r"Version tag does not match\..*Current Version: (?P<runtime_tag>\d+), "
            r"Serialized Engine Version: (?P<engine_tag>\d+)",
            r"not compatible with this version of TensorRT, expecting library version (?P<runtime_version>[\d.]+\d) "
            r"got (?P<engine_version>[\d.]+\d)",
            r"stdVersionRead == |Version tag does not match",
        ],
        ["Build the engine again in the image that serves it, or serve it in the one that built it."],
    ),
    rule(
        "engine_built_for_other_gpu",
        "The engine was built for another GPU architecture.",
        [
            r"incompatible device, expecting compute (?P<this_gpu>[\d.]+\d) got compute (?P<engine>[\d.]+\d)",
            r"(?:engine|plan).{0,80}(?:generated|built|compiled).{0,40}(?:different|another|incompatible) "
            r"(?:device|GPU|compute)",
        ],
        ["Build the engine again on a GPU of the same compute capability as the one that serves it."],
        unless=r"different models of devices",
    ),
    rule(
        "engine_config_json_unreadable",
        "The engine's config.json is missing, empty or not JSON.",
        [
            r"json\.exception\.parse_error\.101\].*line 1, column 1.*last read: '(?P<last_read>[^']*)'",
            r"json\.exception\.parse_error\.101\].*line 1, column 1",
        ],
        [
            "Check that the engine's folder, as the server sees it, is the one that was built and holds config.json.",
            "A file that begins with 'version https' is a pointer of Git LFS: fetch the file itself.",
        ],
        kinds=("server",),
    ),
    rule(
        "unfilled_placeholder",
        "A placeholder of the configuration was never filled in.",
        [
            r"(?:error|fail|invalid|unexpected|cannot|unable|no such|not ).*\$\{(?P<placeholder>\w+)\}",
            r"\$\{(?P<placeholder>\w+)\}.*(?:error|fail|invalid|unexpected|cannot|unable|no such|not )",
            r"Expected \w+(?: or \w+)*, got: \$",
            r"Invalid gpt_model_type",
        ],
        ["Fill in every parameter of config.pbtxt; Inflight writes it whole, without templates."],
        kinds=("server",),
    ),
    rule(
        "engine_missing",
        "The engine's file is not where it should be.",
        [
            r"failed to open GGUF file '(?P<path>[^']+)' \(No such file",
            r"engine_missing: (?P<path>\S+)",
            r"failed to open (?P<path>\S+\.gguf): No such file",
            r"Error opening engine file: (?P<path>[^\s()]+)",
            r"File does not exist: (?P<path>\S+config\.json)",
            r"Both encoder and decoder model paths are empty",
            r"(?:cannot|can't|could not|failed to) (?:find|open|read) .*?(?P<path>/\S*rank\d+\.engine)",
        ],
        [
            "Build the engine again: the same profile makes the same engine.",
            "Check the engine's path as the server sees it: in a container it must be mounted.",
        ],
    ),
    rule(
        "tokenizer_missing",
        "The tokenizer cannot be loaded.",
        [
            r"Can't load tokenizer for '(?P<path>[^']+)'",
            r"Incorrect path_or_model_id: '(?P<path>[^']+)'",
            r"Repo id must (?:be in the form|use alphanumeric).*?: '(?P<path>[^']+)'",
            r"Tokenizer class (?P<tokenizer>\w+) does not exist or is not currently imported",
            r"We couldn't connect to '\S+' to load",
            r"Unable to load vocabulary from file|Couldn't instantiate the backend tokenizer",
            r"(?P<path>/\S+) (?:is not a local folder|does not appear to have a file named tokenizer)",
        ],
        ["Put the tokenizer's files beside the engine and name their folder by its absolute path."],
    ),
    rule(
        "mpi_world_size",
        "The number of processes is not the one that the engine was built for.",
        [
            r"MPI size (?P<launched>\d+) != TP size (?P<tp>\d+) \* PP size (?P<pp>\d+)",
            r"mpiSize == tp ?\* ?pp",
            r"MPI ?world ?size is expected to be equal to tp ?\* ?pp",
            r"world_?size.{0,30}(?:does not match|mismatch|is not equal|!=).{0,60}(?:engine|mapping|tp|rank)",
        ],
        [
            "Start as many processes as tp times pp in the engine's config.json.",
            "Flags of the build do not change them: they are fixed where the checkpoint is converted.",
        ],
        context=(r"MPI size: (?P<mpi_size>\d+)",),
    ),
    rule(
        "too_few_gpus",
        "There are fewer GPUs than the engine has ranks.",
        [
            r"Only (?P<available>\d+) GPUs are available, but (?P<required>\d+) are required",
            r"Number of GPUs per node \d+ must be at least as large as TP",
            r"Detect \d+ GPUs, the GPU number is incompatible with \d+ gpusPerNode",
            r"invalid device ordinal|Number of device IDs \d+ is greater than GPUs per node",
        ],
        ["Let the server see as many GPUs as the engine has ranks."],
    ),
    rule(
        "kv_cache_smaller_than_one_sequence",
        "The KV cache is smaller than one sequence of full length.",
        [
            r"maxTokensInPagedKvCache \((?P<pool_tokens>\d+)\) must be large enough to process at least 1 sequence",
            r"must be large enough to process at least 1 sequence to completion",
            r"Attention window too large to fit even a single sequence",
        ],
        ["Lower max_seq_len, give the cache a larger share, store it in FP8, or use more GPUs."],
    ),
    rule(
        "kv_cache_smaller_than_one_sequence",
        "The KV cache is smaller than one sequence of full length, so the limits were lowered.",
        [
            r"too large (?:for|to fit) at least one sequence (?:to fit )?in kvCache\. "
            r"Old: \[?(?P<asked_tokens>\d+)[^\]]*\]?, New: \[?(?P<pool_tokens>\d+)",
            r"too large (?:for|to fit) at least one sequence (?:to fit )?in kvCache",
        ],
        ["Longer requests are refused now: lower max_seq_len, or give the cache more room."],
        levels="any",
        fatal=False,
    ),
    rule(
        "gpu_oom_runtime_buffers",
        "The GPU's memory ran out before the KV cache: buffers that grow with the batch take it.",
        [r"cudaMalloc\w*\(.*out of memory", r"Failed to allocate memory for weights"],
        [
            "Build again with the max_batch_size and max_num_tokens that are really needed.",
            "A smaller share for the KV cache does not help: it was not allocated yet.",
        ],
        kinds=("server",),
        unless_before=r"(?:Allocated?|Number of (?:blocks|tokens)).{0,80}(?:k/v|\bKV|paged)[ _-]?cache"
        r"|(?:k/v|\bKV)[ _-]?cache.{0,60}Allocated",
        states={"reduce": "engine max_batch_size", "not": "kv_cache_free_gpu_mem_fraction"},
        context=(r"maxBatchSize: (?P<max_batch_size>\d+)",),
    ),
    rule(
        "gpu_out_of_memory",
        "The GPU has too little free memory.",
        [
            r"CUDA (?:runtime |driver )?error.*out of memory",
            r"cudaMalloc\w*.*out of memory",
            r"CUDA out of memory",
            r"Executor creation failed due to insufficient GPU memory",
            r"failed to allocate (?:\S+ )?buffer .*(?:CUDA|GPU).* of size (?P<bytes>\d+)",
        ],
        [
            "End what else uses the GPU.",
            "Lower the KV cache's share, the maximum batch size or the sequence length; or use more GPUs.",
            "Choose a narrower weight type.",
        ],
        kinds=("build", "server", "request"),
    ),
    rule(
        "kv_cache_fraction",
        "The KV cache's share of the memory is not below 1.",
        [r"freeMemFraction \((?P<fraction>[\d.]+)\) must be smaller than 1"],
        ["Give it a share from 0.5 to 0.95."],
    ),
    rule(
        "plugin_not_registered",
        "The engine needs plugins of TensorRT-LLM that are not loaded.",
        [
            r"getPluginCreator could not find plugin:? (?P<plugin>\S+)",
            r"IPluginCreator not found in Plugin Registry",
        ],
        ["Serve it with the TensorRT-LLM backend of the version that built it."],
    ),
    rule(
        "engine_of_another_release",
        "The engine was built by another release of TensorRT-LLM.",
        [r"Tensor names in engine are not the same as expected", r"Input tensor '(?P<tensor>\S+)' not found"],
        ["Build it again with the release that serves it."],
    ),
    rule(
        "engine_not_for_inflight_batching",
        "The engine was not built for in-flight batching.",
        [r"requires GPT attention.*packed input and paged KV cache", r"TrtGptModelInflightBatching requires"],
        ["Build again with remove_input_padding, paged KV cache and the attention plugin (the defaults)."],
    ),
    rule(
        "cross_kv_cache_fraction",
        "crossKvCacheFraction belongs to encoder-decoder models alone.",
        [r"(?:Must|Do not) set crossKvCacheFraction"],
        ["Leave it empty for a decoder-only model, and set it for the other kind."],
    ),
    rule(
        "template_of_another_release",
        "The model's configuration lacks a parameter that this release reads, or has one that it refuses.",
        [
            r"Cannot find parameter with name: (?P<parameter>\w+)",
            r"Static batching type is deprecated",
        ],
        ["Render the configuration for the release that serves it."],
        kinds=("server",),
        strength="hint",
        recoverable=True,
    ),
    rule(
        "capability_switched_off",
        "The engine lacks what reuse of the KV cache or chunked context needs, so it was switched off.",
        [
            r"KV cache reuse disabled because model was",
            r"Chunked context is not supported for this configuration and will be disabled",
        ],
        ["Build again with use_paged_context_fmha, without INT8 KV and without context logits."],
        kinds=("server",),
        levels="any",
        fatal=False,
    ),
)
