"""Rules of quantization: alone, against a checkpoint, and for the PyTorch backend."""

from __future__ import annotations

from collections.abc import Iterator

from apps.core.exceptions import Finding
from apps.engines.domain.memory.gpus import find_gpu
from apps.engines.domain.trtllm.asked import GROUPED, MODELOPT, READY_MADE, error, note, warn
from apps.engines.domain.trtllm.request import BuildRequest, Quantization
from apps.registry.domain.model_facts import ModelFacts

# quantize.py cuts the calibration of AWQ formats to this many texts.
AWQ_MOST_TEXTS = 32
GROUP_SIZES = (64, 128)
CALIBRATED = MODELOPT | {"int8_sq"}
AUTO_FORMATS = ("fp8", "int4_awq", "w4a8_awq", "int8_sq")
# Peak of calibration and export over the 16-bit weights: 1.5, and a tenth of headroom (an estimate).
CALIBRATION_MEMORY = 1.5 * 1.1
# What the PyTorch backend lists for each architecture (compute capability times ten), of what is made here.
PYTORCH: dict[str, tuple[int, ...]] = {
    "fp8": (89, 90, 100, 103, 120),
    "fp8_rowwise": (90,),
    "nvfp4": (100, 103, 120),
    "int4_awq": (80, 86, 89, 90),
    "w4a8_awq": (89, 90),
}


def check(quantization: Quantization) -> Iterator[Finding]:
    """What is wrong with a quantization by itself."""
    kind = quantization.format
    if kind in GROUPED and quantization.group_size not in GROUP_SIZES:
        yield error(
            "group_size",
            "quantization.groupSize",
            f"The kernels know groups of 64 and 128, not {quantization.group_size}.",
            "Use 128, or quantise the checkpoint again.",
        )
    if quantization.quantize_lm_head and kind != "fp8":
        message = "The last layer is quantised with fp8 alone."
        yield error("lm_head_needs_fp8", "quantization.quantizeLmHead", message, "Remove it, or use fp8.")
    if quantization.weights and not quantization.weights.startswith("/"):
        message = f"{quantization.weights} is no whole path."
        yield error("path_not_absolute", "quantization.weights", message, "Begin it with /.")
    if quantization.weights and kind not in READY_MADE:
        message = f"Weights that are quantised already have no use with {kind}."
        yield warn("weights_idle", "quantization.weights", message, "Remove it, or use gptq or awq.")
    yield from _calibration(quantization)
    yield from _automatic(quantization)


def _calibration(quantization: Quantization) -> Iterator[Finding]:
    kind, calibration = quantization.format, quantization.calibration
    begin = "quantization.calibration"
    if kind not in CALIBRATED and quantization.kv_cache != "int8":
        return
    if calibration.size == 0:
        yield error(
            "calibration_empty", f"{begin}.size", "A calibration needs texts.", "Write 512, or -1 for all."
        )
    if kind in ("int4_awq", "w4a8_awq") and not 0 < calibration.size <= AWQ_MOST_TEXTS:
        message = f"AWQ calibrates with at most {AWQ_MOST_TEXTS} texts; {calibration.size} are cut."
        if calibration.size < 0:
            message = f"AWQ calibrates with at most {AWQ_MOST_TEXTS} texts, not with all."
        yield warn("calibration_cut", f"{begin}.size", message, f"Write {AWQ_MOST_TEXTS}.")
    texts = min(calibration.size, AWQ_MOST_TEXTS) if kind in ("int4_awq", "w4a8_awq") else calibration.size
    if 0 < texts < calibration.batch_size:
        message = f"{calibration.batch_size} texts at once are more than the {texts} of the calibration."
        yield warn("calibration_batch", f"{begin}.batchSize", message, f"Write {texts} or less.")
    cut = quantization.options.get("tokenizer_max_seq_length", 2048)
    if kind in MODELOPT and isinstance(cut, int) and calibration.max_seq_length > cut:
        message = f"The tokenizer cuts texts at {cut} tokens, before {calibration.max_seq_length}."
        remedy = f"Write {cut}, or raise tokenizer_max_seq_length."
        yield warn("calibration_length_cut", f"{begin}.maxSeqLength", message, remedy)
    yield from _dataset(calibration.dataset)


def _dataset(dataset: str) -> Iterator[Finding]:
    where = "quantization.calibration.dataset"
    if dataset.endswith((".json", ".jsonl", ".csv", ".parquet", ".txt")):
        message = f"{dataset} is a file; a folder of the set is expected."
        yield error("calibration_dataset_is_a_file", where, message, "Name the folder of the downloaded set.")
    elif "cnn_dailymail" in dataset:
        if not dataset.startswith("/"):
            yield note(
                "calibration_needs_network",
                where,
                f"{dataset} is fetched from a hub while the build runs; a host without network fails there.",
                "Download it to a folder whose path contains cnn_dailymail, and name that.",
            )
    elif dataset.startswith("/"):
        yield error(
            "calibration_dataset_path_needs_cnn_dailymail",
            where,
            "A local set is recognised by the text cnn_dailymail in its path.",
            "Rename the folder so that its path contains cnn_dailymail.",
        )
    elif "pileval" in dataset:
        message = "pileval is fetched from the internet while the build runs."
        yield note("calibration_needs_network", where, message, "Use a folder on the host.")
    else:
        message = f"The quantiser knows no set {dataset}."
        remedy = "Use cnn_dailymail, or a folder whose path contains cnn_dailymail."
        yield error("calibration_dataset_unknown", where, message, remedy)


def _automatic(quantization: Quantization) -> Iterator[Finding]:
    options, kind = quantization.options, quantization.format
    if options and kind not in MODELOPT and "autoq_format" not in options:
        names = ", ".join(options)
        message = f"{names}: {kind} is not made by quantize.py, so this has no effect."
        yield warn(
            "quantize_options_idle", "quantization.options", message, "Remove it, or use fp8 or int4_awq."
        )
    wanted, bits = options.get("autoq_format"), options.get("auto_quantize_bits")
    if bits is not None and not wanted:
        message = "auto_quantize_bits alone ends the quantisation: there is no format to choose from."
        where = "quantization.options.auto_quantize_bits"
        yield error("autoq_without_format", where, message, "Write autoq_format too, as fp8,int4_awq.")
    if not isinstance(wanted, str):
        return
    where = "quantization.options.autoq_format"
    formats = [part.strip() for part in wanted.split(",")]
    unknown = [part for part in formats if part not in AUTO_FORMATS]
    if unknown:
        message = f"autoq_format does not know {', '.join(unknown)}."
        yield error("autoq_format_unknown", where, message, f"Use {', '.join(AUTO_FORMATS)}.")
    if {"fp8", "int8_sq"} <= set(formats):
        yield error("autoq_fp8_with_int8", where, "fp8 and int8_sq cannot be mixed.", "Keep one of the two.")
    low = 4 if any("4" in part for part in formats) else 8
    if isinstance(bits, int | float) and not low <= bits <= 16:
        message = f"auto_quantize_bits {bits:g} is outside of {low} to 16; the quantiser moves it there."
        yield warn(
            "autoq_bits_moved", "quantization.options.auto_quantize_bits", message, f"Write {low} to 16."
        )


def against(request: BuildRequest, facts: ModelFacts | None) -> Iterator[Finding]:
    """A quantization against the checkpoint it is for."""
    quantization, kind = request.quantization, request.quantization.format
    stored = facts.quantization if facts is not None else None
    if stored is not None and kind != "none" and kind not in READY_MADE:
        yield error(
            "quantized_twice",
            "quantization",
            f"The checkpoint is quantised already ({stored.method}).",
            "Use none, gptq or awq, or begin with the 16-bit checkpoint.",
        )
    if stored is not None and stored.desc_act:
        message = (
            "The checkpoint was quantised in the order of its activations (desc_act), which is not converted."
        )
        yield error("gptq_desc_act", "checkpoint", message, "Use a checkpoint with desc_act false.")
    if kind in ("gptq", "gptq_int8") and not quantization.weights and stored is None:
        message = f"{kind} needs weights that are quantised already."
        yield error("gptq_weights", "quantization.weights", message, "Write weights: /folder/of/them.")
    by_group = stored is not None and stored.method in ("gptq", "awq")
    if by_group and stored is not None and stored.group_size not in (None, -1, *GROUP_SIZES):
        message = f"The checkpoint's groups are of {stored.group_size} weights; the kernels know 64 and 128."
        yield error("group_size", "checkpoint", message, "Use a checkpoint quantised in groups of 128.")
    if stored is not None and kind in READY_MADE and stored.group_size in GROUP_SIZES:
        given = quantization.group_size
        if given != stored.group_size:
            message = f"The checkpoint's groups are of {stored.group_size}, not of {given}."
            yield error(
                "group_size_differs", "quantization.groupSize", message, f"Write {stored.group_size}."
            )
    yield from _model(request, facts)


def _model(request: BuildRequest, facts: ModelFacts | None) -> Iterator[Finding]:
    if facts is None:
        return
    kind, calibration = request.quantization.format, request.quantization.calibration
    if kind == "int8_sq" and facts.moe is not None:
        message = "SmoothQuant does not know mixtures of experts."
        yield error("smoothquant_moe", "quantization", message, "Use fp8 or int8_wo.")
    if facts.family == "mixtral" and kind in GROUPED:
        message = f"{kind} is not listed for Mixtral; only a build tells."
        yield warn("format_not_listed", "quantization", message, "Use fp8 or int8_wo, or try it.")
    longest = facts.max_position_embeddings
    if kind in CALIBRATED and longest and calibration.max_seq_length > longest:
        message = f"Texts of {calibration.max_seq_length} tokens are longer than the model's {longest}."
        where = "quantization.calibration.maxSeqLength"
        yield warn("calibration_over_model", where, message, f"Write {longest} or less.")
    row, gpus = find_gpu(request.target.gpu), request.target.gpus
    if kind in MODELOPT and row is not None and gpus and facts.params:
        needed, there = int(facts.params * 2 * CALIBRATION_MEMORY), gpus * row.memory_bytes
        if needed > there:
            yield warn(
                "calibration_memory",
                "quantization",
                f"Calibrating takes about {needed / 1e9:.0f} GB over all GPUs, and {gpus} of this kind have "
                f"{there / 1e9:.0f} GB (an estimate).",
                "Quantise on a host with more GPUs, use device_map sequential, or begin with a quantised checkpoint.",
            )


def pytorch(request: BuildRequest, facts: ModelFacts | None, sm: int | None) -> Iterator[Finding]:
    """What the PyTorch backend can run of it, where nothing is compiled."""
    kind, kv = request.quantization.format, request.quantization.kv_cache
    if kind not in ("none", *MODELOPT):
        message = f"The PyTorch backend has no {kind}."
        yield error("format_unknown_here", "quantization", message, "Use none, fp8, nvfp4 or int4_awq.")
    if kv == "int8":
        message = "The PyTorch backend has no INT8 KV cache."
        yield error("kv_unknown_here", "quantization.kvCacheDtype", message, "Use fp8, or 16 bit.")
    stored = facts.quantization if facts is not None else None
    if stored is not None and kind != "none":
        message = f"The checkpoint is quantised already ({stored.method})."
        yield error("quantized_twice", "quantization", message, "Use none.")
    if sm is None:
        return
    if sm < 80:
        message = "The PyTorch backend supports Ampere and later (SM 80); this GPU is older."
        yield error("gpu_too_old", "target.gpu", message, "Choose another GPU.")
        return
    listed = PYTORCH.get(kind)
    if listed is None or sm in listed:
        return
    if kind == "nvfp4":
        message = f"NVFP4 needs Blackwell (SM 100 and later); this GPU is SM {sm}."
        yield error("nvfp4_unsupported_gpu", "quantization", message, "Use fp8.")
    elif sm < 89:
        message = f"FP8 weights need Ada or Hopper (SM 89 and later); this GPU is SM {sm}."
        yield error("fp8_unsupported_gpu", "quantization", message, "Use int4_awq.")
    else:
        message = f"The PyTorch backend does not list {kind} for SM {sm}."
        yield error("format_unsupported_gpu", "quantization", message, "Use fp8 or nvfp4.")
