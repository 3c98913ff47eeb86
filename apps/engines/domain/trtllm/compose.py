"""A build request as steps: programs with every argument, in order, with what each must leave behind."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from apps.core.exceptions import Finding, InvalidInput
from apps.engines.domain.memory.gpus import GPUS, find_gpu
from apps.engines.domain.trtllm import rules
from apps.engines.domain.trtllm.asked import MODELOPT, READY_MADE
from apps.engines.domain.trtllm.build_flags import BUILD_FLAGS, BY_NAME
from apps.engines.domain.trtllm.conversion_flags import CONVERT, QUANTIZE
from apps.engines.domain.trtllm.flag import Version
from apps.engines.domain.trtllm.request import BuildRequest, read_request, release_of
from apps.engines.domain.trtllm.rules_quantization import AWQ_MOST_TEXTS
from apps.registry.domain.model_config import facts_of
from apps.registry.domain.model_facts import ModelFacts

# Folder names of the model's scripts where they are not the family's name.
SCRIPTS: dict[str, str] = {
    "llama": "llama",
    "mistral": "llama",
    "mixtral": "llama",
    "qwen": "qwen",
    "qwen2": "qwen",
    "qwen2_moe": "qwen",
    "qwen3": "qwen",
    "qwen3_moe": "qwen",
    "gemma": "gemma",
    "gemma2": "gemma",
    "gemma3_text": "gemma",
    "gpt2": "gpt",
    "gpt_bigcode": "gpt",
    "phi": "phi",
    "phi3": "phi",
    "chatglm": "glm-4-9b",
    "glm": "glm-4-9b",
    "nemotron": "nemotron",
    "internlm2": "internlm2",
    "mamba": "mamba",
    "recurrentgemma": "recurrentgemma",
}
CONTRIB: dict[str, str] = {
    "falcon": "falcon",
    "mpt": "mpt",
    "bloom": "bloom",
    "gptj": "gptj",
    "gpt_neox": "gptneox",
    "baichuan": "baichuan",
    "internlm": "internlm",
    "deepseek": "deepseek_v1",
    "deepseek_v2": "deepseek_v2",
}
# From this release on scripts lie under models/core and models/contrib.
MOVED: Version = (0, 18, 0)


@dataclass(frozen=True, slots=True)
class ComposedStep:
    """One process. `outputs` must be there when it has ended with exit code 0."""

    name: str
    argv: tuple[str, ...]
    cwd: str
    env: dict[str, str] = field(default_factory=dict)
    outputs: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """JSON form."""
        return {
            "name": self.name,
            "argv": list(self.argv),
            "cwd": self.cwd,
            "env": dict(self.env),
            "outputs": list(self.outputs),
        }


@dataclass(frozen=True, slots=True)
class Composed:
    """The recipe that was chosen, its steps, and what is to be known; no steps where an error stands against it."""

    recipe: str
    steps: tuple[ComposedStep, ...]
    findings: tuple[Finding, ...]

    @property
    def good(self) -> bool:
        """Whether it may be run."""
        return all(found.severity != "error" for found in self.findings)

    def as_dict(self) -> dict[str, Any]:
        """JSON form: recipe, steps, findings."""
        return {
            "recipe": self.recipe,
            "steps": [step.as_dict() for step in self.steps],
            "findings": [found.as_dict() for found in self.findings],
        }


def compose(request: BuildRequest, work: str, facts: ModelFacts | None = None) -> Composed:
    """Compose a build that works in the folder `work` (absolute). Raises InvalidInput for a release that is none.

    `facts` are those of the checkpoint; left out, they are read from the request's `config` where it has one.
    """
    release = release_of(request.target)
    recipe, findings = _recipe(request, release)
    if facts is None and request.config is not None:
        facts = facts_of(request.config)
    sm, unknown = _sm(request.target.gpu)
    findings += unknown
    if recipe == "engine":
        findings += rules.check(request, release, facts, sm)
    else:
        findings += rules.check_checkpoint(request, facts, sm)
    if any(found.severity == "error" for found in findings):
        return Composed(recipe, (), tuple(findings))
    if recipe == "checkpoint":
        return Composed(recipe, tuple(_checkpoint_steps(request, work)), tuple(findings))
    steps, more = _engine_steps(request, work, release, facts)
    return Composed(recipe, tuple(steps), tuple(findings + more))


def _recipe(request: BuildRequest, release: Version) -> tuple[str, list[Finding]]:
    gone = release >= rules.ENGINES_END
    if request.recipe == "engine" and gone:
        message = (
            f"TensorRT-LLM {request.target.tensorrt_llm} builds no engines: trtllm-build ended with 1.2."
        )
        return "engine", [
            Finding(
                "engines_gone", "error", message, "recipe", "Use recipe: checkpoint, or a host with 1.2.1."
            )
        ]
    if request.recipe == "auto":
        return ("checkpoint" if gone else "engine"), []
    return request.recipe, []


def _sm(gpu: str) -> tuple[int | None, list[Finding]]:
    if not gpu:
        message = "No GPU is named, so what it can run was not checked."
        return None, [Finding("gpu_unnamed", "info", message, "target.gpu", "Write target: {gpu: h100-sxm}.")]
    found = find_gpu(gpu)
    if found is None:
        keys = ", ".join(row.key for row in GPUS)
        message = f"There is no GPU {gpu} in the table."
        return None, [Finding("gpu_unknown", "error", message, "target.gpu", f"Use one of {keys}.")]
    return found.sm, []


def _engine_steps(
    request: BuildRequest, work: str, release: Version, facts: ModelFacts | None
) -> tuple[list[ComposedStep], list[Finding]]:
    checkpoint, engine = f"{work}/checkpoint", f"{work}/engine"
    ranks = request.parallel.world
    findings: list[Finding] = []
    weights = ("config.json", *(f"rank{rank}.safetensors" for rank in range(ranks)))
    if by_quantizer(request):
        argv = _quantize(request, checkpoint)
        name = "quantize"
    else:
        argv, findings = _convert(request, checkpoint, release, facts)
        name = "convert"
    # Without DEBUG the quantiser says nothing until it ends, so there would be no progress.
    env = {"TLLM_LOG_LEVEL": "DEBUG"} if name == "quantize" else {}
    first = ComposedStep(name, argv, work, env, tuple(f"{checkpoint}/{file}" for file in weights))
    files = ("config.json", *(f"rank{rank}.engine" for rank in range(ranks)))
    second = ComposedStep(
        "build",
        _build(request, checkpoint, engine, work),
        work,
        {},
        tuple(f"{engine}/{file}" for file in files),
    )
    return [first, second], findings


def by_quantizer(request: BuildRequest) -> bool:
    """Whether quantize.py makes the checkpoint; else convert_checkpoint.py does."""
    return request.quantization.format in MODELOPT or "autoq_format" in request.quantization.options


def _quantize(request: BuildRequest, output: str) -> tuple[str, ...]:
    quantization = request.quantization
    values: dict[str, Any] = {
        "model_dir": request.model,
        "output_dir": output,
        "dtype": request.dtype,
        "qformat": quantization.format if quantization.format in MODELOPT else "full_prec",
        "tp_size": request.parallel.tp,
        "pp_size": request.parallel.pp,
        "calib_dataset": quantization.calibration.dataset,
        "calib_size": _calibration_size(request),
        "calib_max_seq_length": quantization.calibration.max_seq_length,
        "batch_size": quantization.calibration.batch_size,
    }
    if quantization.kv_cache != "auto":
        values["kv_cache_dtype"] = quantization.kv_cache
    if quantization.format in ("int4_awq", "w4a8_awq"):
        values["awq_block_size"] = quantization.group_size
    if quantization.quantize_lm_head:
        values["quantize_lm_head"] = True
    if request.parallel.cp > 1:
        values["cp_size"] = request.parallel.cp
    values |= quantization.options
    program = f"{request.target.examples}/quantization/quantize.py"
    return (request.target.python, program, *_words(QUANTIZE, values))


def _calibration_size(request: BuildRequest) -> int:
    size = request.quantization.calibration.size
    if request.quantization.format in ("int4_awq", "w4a8_awq"):
        return min(size, AWQ_MOST_TEXTS) if size > 0 else AWQ_MOST_TEXTS
    return size


def _convert(
    request: BuildRequest, output: str, release: Version, facts: ModelFacts | None
) -> tuple[tuple[str, ...], list[Finding]]:
    script, findings = _script(request, release, facts)
    values: dict[str, Any] = {
        "model_dir": request.model,
        "output_dir": output,
        "dtype": request.dtype,
        "tp_size": request.parallel.tp,
        "pp_size": request.parallel.pp,
        **({"cp_size": request.parallel.cp} if request.parallel.cp > 1 else {}),
        **_expert_parallel(request),
        **_converted_quantization(request),
        **request.convert,
    }
    return (request.target.python, script, *_words(CONVERT, values)), findings


def _expert_parallel(request: BuildRequest) -> dict[str, int]:
    expert = request.parallel.moe_ep
    return {"moe_tp_size": request.parallel.tp // expert, "moe_ep_size": expert} if expert > 1 else {}


def _converted_quantization(request: BuildRequest) -> dict[str, Any]:
    quantization = request.quantization
    found: dict[str, Any] = {}
    kind = quantization.format
    if kind in ("int8_wo", "int4_wo"):
        found |= {"use_weight_only": True, "weight_only_precision": kind.removesuffix("_wo")}
    elif kind in READY_MADE:
        found |= {
            "use_weight_only": True,
            "weight_only_precision": "int8_gptq" if kind == "gptq_int8" else f"int4_{kind}",
            "per_group": True,
            "group_size": quantization.group_size,
        }
        if quantization.weights:
            found["quant_ckpt_path"] = quantization.weights
    elif kind == "int8_sq":
        found |= {
            "smoothquant": quantization.smoothquant,
            "per_channel": quantization.per_channel,
            "per_token": quantization.per_token,
        }
    elif kind == "fp8_rowwise":
        found["use_fp8_rowwise"] = True
    elif kind == "qserve":
        found |= {"use_qserve": True, "per_group": not quantization.per_channel}
    if quantization.kv_cache != "auto":
        found[f"{quantization.kv_cache}_kv_cache"] = True
    if kind == "int8_sq" or quantization.kv_cache == "int8":
        calibration = quantization.calibration
        dataset = calibration.dataset
        found["calib_dataset"] = "ccdv/cnn_dailymail" if dataset == "cnn_dailymail" else dataset
        found["calib_size"] = calibration.size
        found["calib_max_seq_length"] = calibration.max_seq_length
    return found


def _script(request: BuildRequest, release: Version, facts: ModelFacts | None) -> tuple[str, list[Finding]]:
    family = facts.family if facts is not None else None
    examples = request.target.examples
    findings: list[Finding] = []
    if family in SCRIPTS:
        folder = f"models/core/{SCRIPTS[family]}" if release >= MOVED else SCRIPTS[family]
    elif family in CONTRIB:
        folder = f"models/contrib/{CONTRIB[family]}" if release >= MOVED else CONTRIB[family]
    else:
        folder = "models/core/llama" if release >= MOVED else "llama"
        known = (
            f"The family {family} has no script known to Inflight" if family else "The family is not known"
        )
        findings.append(
            Finding(
                "script_guessed",
                "warning",
                f"{known}; llama's convert_checkpoint.py was taken.",
                "checkpoint",
                "Write the checkpoint's config, or check the script before the build.",
            )
        )
    return f"{examples}/{folder}/convert_checkpoint.py", findings


def _build(request: BuildRequest, checkpoint: str, engine: str, work: str) -> tuple[str, ...]:
    values: dict[str, Any] = {
        "checkpoint_dir": checkpoint,
        "output_dir": engine,
        # Relative to the working folder by default, where builds side by side would spoil it.
        "output_timing_cache": f"{work}/timing.cache",
    }
    for name, value in request.build.items():
        values[BY_NAME[name].name] = value
    if "gemm_plugin" not in values and request.quantization.format in ("none", "int8_wo", "int4_wo"):
        values["gemm_plugin"] = "auto"
    ranks = request.parallel.world
    if "workers" not in values and ranks > 1:
        values["workers"] = min(ranks, request.target.gpus or ranks)
    ordered = {flag.name: values[flag.name] for flag in BUILD_FLAGS if flag.name in values}
    return ("trtllm-build", *_words(BY_NAME, ordered))


def _words(table: dict[str, Any], values: dict[str, Any]) -> list[str]:
    return [word for name, value in values.items() for word in table[name].words(value)]


def _checkpoint_steps(request: BuildRequest, work: str) -> list[ComposedStep]:
    model, steps = request.model, []
    if by_quantizer(request):
        model = f"{work}/checkpoint"
        argv = _quantize(request, model)
        export = QUANTIZE["export_format"].words("hf")
        steps.append(
            ComposedStep(
                "quantize", (*argv, *export), work, {"TLLM_LOG_LEVEL": "DEBUG"}, (f"{model}/config.json",)
            )
        )
    step = "workers.builders.trtllm_steps"
    python = request.target.python
    report = f"{work}/checkpoint.json"
    steps.append(
        ComposedStep(
            "validate",
            (python, "-P", "-u", "-m", f"{step}.validate", "--model", model, "--report", report),
            work,
            {},
            (report,),
        )
    )
    parallel = request.parallel
    sizes = ("--tp", str(parallel.tp), "--pp", str(parallel.pp))
    warm = (python, "-P", "-u", "-m", f"{step}.warm_up", "--model", model, *sizes)
    steps.append(
        ComposedStep(
            "warm_up", (*warm, "--report", f"{work}/warm_up.json"), work, {}, (f"{work}/warm_up.json",)
        )
    )
    return steps


def compose_documents(documents: list[Any], work: str) -> Composed:
    """Read documents and compose them; a refusal becomes findings."""
    try:
        return compose(read_request(documents), work)
    except InvalidInput as error:
        found = error.findings or (Finding(error.code, "error", error.sentence, error.field, error.remedy),)
        return Composed("", (), tuple(found))
