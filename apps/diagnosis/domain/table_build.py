"""Rules about quantising, converting and building with TensorRT-LLM. See table.py for the order."""

from __future__ import annotations

from apps.diagnosis.domain.rule import Rule, rule

# Follows a line about memory where TensorRT merely passed over one candidate.
TACTIC_SKIPPED = r"Skipping tactic"

RULES: tuple[Rule, ...] = (
    rule(
        "shell_line_continuation",
        "The shell ended the command early: a backslash at a line's end has something behind it.",
        [
            r"(?:^|: )(?P<flag>--[\w-]+)(?:[ =]\S+)?: (?:command )?not found",
            r"error: unrecognized arguments:\s*\\?\s*$",
        ],
        ["Remove the spaces behind each backslash, or write the command in one line."],
        kinds=("build", "server"),
    ),
    rule(
        "unknown_flag",
        "The command has a flag that this version does not know.",
        [
            r"error: unrecognized arguments: (?P<flag>--?[A-Za-z][\w-]*)(?:[ =](?P<asked>[\w.]+))?",
            r"error: argument (?P<flag>--?[A-Za-z][\w-]*)(?:/\S+)?: (?:expected|invalid|not allowed|ignored)",
            r"error: ambiguous option: (?P<flag>--?[A-Za-z][\w-]*)",
            r"(?:unrecogni[sz]ed|unknown|invalid|no such) (?:command[- ]line )?(?:option|argument|flag):? ['\"]?"
            r"(?P<flag>--?[A-Za-z][\w-]*)",
        ],
        [
            "Translate the flag for the version that is installed: each release has its own set.",
            "For --max_output_len: set --max_seq_len to the sum of input and output; renaming it halves the length.",
        ],
    ),
    rule(
        "fp8_fmha_not_in_this_release",
        "This release has no FP8 attention for this GPU.",
        [r"FP8 (?:context |paged )*FMHA (?:can(?:not| only)|is (?:not|only)|requires|does not|not)"],
        ["Switch use_fp8_context_fmha off, or use a release and a GPU that have it."],
    ),
    rule(
        "fp8_unsupported_gpu",
        "The GPU has no FP8; that begins with compute capability 8.9.",
        [
            r"FP8 precision require\w* hardware with FP8 support",
            r"FP8\b.{0,80}(?:not supported|unsupported|requires?|needs?|only (?:supported|available)).{0,80}"
            r"(?:\bSM ?_?\d+|compute capability|hardware|device|GPU|Ada|Hopper|arch)",
            r"(?:hardware|device|GPU|SM ?_?\d+).{0,60}(?:does not|doesn't|not) support.{0,20}\bFP8",
        ],
        [
            "Build on an Ada, Hopper or newer GPU; the compute capability decides, not the product's name.",
            "Choose int8, int4-awq or 16-bit weights for this GPU.",
        ],
        # A GPU that is too new for one plugin, named with its value.
        unless=r"\w+=\w+ is not supported on SM",
        states={"min_compute_capability": "8.9"},
    ),
    rule(
        "quantization_unsupported_gpu",
        "This quantisation does not run on the GPU's architecture.",
        [
            r"(?:INT8/INT4 quantization|SmoothQuant|Per-channel or per-token scaling) is not supported on SM",
            r"(?P<feature>\w+(?:=\S+)?) is not supported on SM ?>?=? ?(?P<sm>\d+)",
        ],
        ["Use FP8 or NVFP4 on Blackwell; see the table of quantisations by GPU."],
    ),
    rule(
        "plugin_workspace_too_small",
        "A plugin needs more workspace than the builder may give it.",
        [
            r"insufficient workspace",
            r"try increasing the workspace size",
            r"workspace (?:size )?.{0,40}(?:too small|insufficient|not enough|exceeds)",
            r"(?:requests?|requires?|requested|required|needs?) .{0,60}workspace.{0,80}"
            r"(?:\bbut\b|\bonly\b|available|limit|max)",
            r"Could not find any implementation for node (?P<node>\S+)",
        ],
        ["Lower max_batch_size, max_num_tokens or max_input_len; free the GPU of other programs."],
    ),
    rule(
        "gpu_out_of_memory",
        "The GPU has too little free memory.",
        [
            r"Requested amount of GPU memory \((?P<bytes>\d+) bytes\) could not be allocated",
            r"Error Code \d: OutOfMemory",
            r"Error Code \d: Cuda (?:Driver|Runtime) \(out of memory\)",
        ],
        [
            "End what else uses the GPU.",
            "Lower the maximum batch size, sequence length or number of tokens, or use more GPUs (tp).",
            "Choose a narrower weight type.",
        ],
        levels="any",
        recoverable=True,
        undone=TACTIC_SKIPPED,
    ),
    rule(
        "transformers_too_old_for_rope_type",
        "The installed transformers does not know this model's rope scaling.",
        [
            r"`?rope_scaling`? must be a dictionary with .*'rope_type': '(?P<rope_type>\w+)'",
            r"`?rope_scaling`? must be a dictionary with (?:\w+ )?fields",
            r"`?rope_scaling`?'s (?:\w+ )?type field must be one of .*got (?P<rope_type>\w+)",
        ],
        [
            "Use a newer container, or transformers 4.43 and later.",
            "Leave rope_scaling in config.json as it is: cut down, the model loads and long texts come out damaged.",
        ],
    ),
    rule(
        "transformers_too_old",
        "The installed transformers does not know this model.",
        [
            r"has model type `(?P<model_type>[^`]+)` but Transformers does not recognize",
            r"cannot import name '(?P<name>\w+)' from 'transformers",
            r"module 'transformers\S*' has no attribute",
        ],
        [
            "Use a TensorRT-LLM release that knows the model; it pins transformers, so do not upgrade that alone."
        ],
    ),
    rule(
        "transformers_cannot_read_config",
        "The installed transformers cannot read the model's config.json.",
        [r"AutoConfig cannot load the huggingface config"],
        ["Use a newer container, or a model that this one knows."],
        strength="hint",
        levels="any",
        recoverable=True,
    ),
    rule(
        "calibration_dataset_path_needs_cnn_dailymail",
        "The calibration set is not recognised: its path must contain cnn_dailymail.",
        [
            r"ValueError: Config name is missing",
            r"pick one among the available configs: \['\d+\.0\.0'",
            r"BuilderConfig '?\d+\.0\.0'? not found",
        ],
        ["Rename the folder of the calibration set so that its path contains cnn_dailymail."],
        kinds=("build",),
    ),
    rule(
        "calibration_dataset_unreachable",
        "The calibration set cannot be fetched.",
        [
            r"Couldn't (?:reach|find|connect to)(?: the)?(?: dataset)? ?'?(?P<dataset>[\w./-]+)'?.*\bHub\b",
            r"ConnectionError: .*(?:cnn_dailymail|dataset)",
            r"OfflineModeIsEnabled",
            r"Unsupported dataset name or local repo directory: (?P<dataset>\S+?)\.?$",
            r"Dataset scripts are no longer supported|trust_remote_code\W* is not supported anymore",
            r"Repository id must be",
        ],
        [
            "Fetch the set where there is a network and name its folder with --calib_dataset; the weights are fine."
        ],
        kinds=("build",),
    ),
    rule(
        "head_dim_ignored_by_converter",
        "The converter took hidden size by heads for the head size; this model says another one.",
        [
            r"The value updated is not the same shape as the original\. ?Updated: \((?P<updated>[\d, ]+)\), "
            r"original: \((?P<original>[\d, ]+)\)",
            r"shape '\[[^\]]*\]' is invalid for input of size (?P<size>\d+)",
            r"split_with_sizes expects split_sizes to sum exactly to (?P<size>\d+)",
        ],
        ["Use a release whose converter reads head_dim of config.json."],
        kinds=("build",),
    ),
    rule(
        "unsupported_architecture",
        "The model's architecture is not known to this release.",
        [
            r"Unsupported model architecture: (?P<architecture>\w+)",
            r"KeyError: '(?P<architecture>\w+For(?:CausalLM|ConditionalGeneration))'",
            r"(?:NotImplemented|Value|Assertion)Error: .*?(?P<architecture>\w+For(?:CausalLM|ConditionalGeneration))",
            r"Model architectures? \[?'?(?P<architecture>\w+)'?\]? .*not supported",
        ],
        ["Use scripts and package of one version that knows it, or serve it with the PyTorch backend."],
    ),
    rule(
        "gptq_desc_act",
        "The GPTQ checkpoint was made with act-order, which is not supported.",
        [r"GPTQ with desc_act=True is not implemented"],
        ["Use a checkpoint made with desc_act false."],
    ),
    rule(
        "parallel_sizes",
        "The parallel sizes do not fit each other or the model.",
        [
            r"world_size must equal to (?:pp_size \* cp_size \* tp_size|tp_size).*?got (?P<world_size>\d+)",
            r"world_size must equal to",
            r"tp_size must equal to moe_tp_size \* moe_ep_size",
            r"num_attention_heads \((?P<heads>\d+)\) (?:must|should) be divisible",
            r"assert \S*num_(?:attention_)?heads % \S*tp_size == 0",
        ],
        ["Choose a tp that divides the heads, and convert again: the checkpoint fixes it, not the build."],
    ),
    rule(
        "checkpoint_lacks_tensors",
        "The converted checkpoint lacks weights that its configuration asks for.",
        [r"Required but not provided tensors"],
        ["Convert again with one version, and see that the files of every rank are there."],
    ),
    rule(
        "plugin_dtype",
        "A plugin is set to another data type than the model has.",
        [r"could not find any supported formats consistent with input/output data types"],
        ["Set gemm_plugin and gpt_attention_plugin to auto."],
    ),
    rule(
        "multiple_profiles_with_opt_num_tokens",
        "multiple_profiles and opt_num_tokens exclude each other.",
        [r"multiple_profiles is enabled, while opt_num_tokens is set"],
        ["Leave opt_num_tokens out."],
    ),
    rule(
        "streamingllm_removed",
        "StreamingLLM is not in this release any more.",
        [r"StreamingLLM is no longer supported"],
        ["Leave --streamingllm out."],
    ),
    rule(
        "gpu_out_of_memory_in_python",
        "The GPU has too little free memory for converting or calibrating.",
        [
            r"OutOfMemoryError: CUDA out of memory\. Tried to allocate (?P<asked>[\d.]+ [GM]iB)",
            r"Detailed export error: CUDA out of memory",
        ],
        [
            "End what else uses the GPU, or let more GPUs be seen.",
            "Convert on the processor (--load_model_on_cpu); calibrate with a smaller batch and shorter texts.",
        ],
    ),
)
