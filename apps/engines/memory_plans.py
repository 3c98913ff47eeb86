"""Plans of registered checkpoints: for the page, the REST API and the form of a build."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from django.utils.translation import gettext as _

from apps.core.exceptions import Finding, InvalidInput, NotFound
from apps.engines import learning
from apps.engines.domain.memory import as_dict, plan, shape_of
from apps.engines.domain.memory.answers import (
    Concurrency,
    Spread,
    concurrency_table,
    fewest_gpus,
    largest_batch,
    longest_sequence,
)
from apps.engines.domain.memory.formats import kv_format, weight_format
from apps.engines.domain.memory.inputs import AUTO, PlanInput, gpu_of, request_of
from apps.engines.domain.memory.llamacpp import (
    GgufSizes,
    LlamaCppRequest,
    largest_slots,
    longest_context,
    plan_llamacpp,
    sizes_of,
)
from apps.engines.domain.memory.plan import Plan
from apps.engines.domain.memory.shape import Shape
from apps.engines.domain.memory.terms import Term
from apps.engines.models import Quantization
from apps.fleet.models import Gpu
from apps.registry import selectors as registry
from apps.registry.domain.checkpoint_reader import read_checkpoint
from apps.registry.models import Checkpoint

FLEET = "fleet:"
SLOT = re.compile(r"^fleet:(?P<node>[^/]{1,40})/(?P<index>\d{1,4})$")
DEFAULT_CONTEXT = 1024
# What the embedded engine's builder writes for each of the planner's words.
BUILDABLE = {"fp16": "F16", "bf16": "BF16", "fp32": "F16"} | {
    name.lower(): name for name in Quantization.values
}


@dataclass(frozen=True, slots=True)
class Segment:
    """One colour of the memory bar, bytes. `name` is weights, kv, activations, overhead or free."""

    name: str
    bytes: int
    low: int
    high: int


@dataclass(frozen=True)
class Answer:
    """A plan with what was asked around it. `engine` is tensorrt_llm or llamacpp; bytes are those of one GPU or slot.

    `sequences` is what the cache holds at the longest length; `longest` the longest sequence of which one fits.
    """

    engine: str
    given: PlanInput
    target: str
    memory: int
    fits: bool
    required: int
    segments: tuple[Segment, ...]
    terms: tuple[Term, ...]
    host: tuple[Term, ...]
    kv_bytes_per_token: int
    kv_capacity_tokens: int
    max_seq_len: int
    sequences: int
    max_concurrency: int
    longest_prompt: int
    concurrency: tuple[Concurrency, ...]
    largest_batch: int
    fewest: Spread | None
    longest: int
    findings: tuple[Finding, ...]
    weights: str
    gpus: int
    calibration: learning.Calibration | None
    detail: Mapping[str, Any]

    @property
    def quantization(self) -> str | None:
        """The weight type with which the embedded engine's builder makes this plan's engine; None: it cannot."""
        return BUILDABLE.get(self.weights)


def shape_for(checkpoint: Checkpoint) -> Shape:
    """The planner's view of a registered checkpoint. Raises InvalidInput."""
    path = _path_of(checkpoint)
    return _shape(str(path), _stamp(path))


def _path_of(checkpoint: Checkpoint) -> Path:
    if not checkpoint.path:
        raise InvalidInput(
            "checkpoint_not_ready",
            _("%(name)s has no files yet.") % {"name": checkpoint.name},
            field="checkpoint",
            remedy=_("Wait until it is fetched, or see why it failed."),
        )
    return Path(checkpoint.path)


def _stamp(path: Path) -> int:
    """Changes when the checkpoint does, so that its headers are read once."""
    config = path / "config.json"
    try:
        return (config if config.exists() else path).stat().st_mtime_ns
    except OSError:
        return 0


@lru_cache(maxsize=64)
def _shape(path: str, stamp: int) -> Shape:
    return shape_of(read_checkpoint(Path(path)).facts)


@lru_cache(maxsize=64)
def _sizes(path: str, stamp: int, kind: str | None) -> GgufSizes:
    header = read_checkpoint(Path(path)).header
    if header is None:
        raise InvalidInput(
            "not_a_gguf",
            _("The embedded engine needs a GGUF file."),
            field="gpu",
            remedy=_("Choose a GPU, or register a GGUF file of the same model."),
        )
    return sizes_of(header, kind)


def slot_of(name: str) -> Gpu | None:
    """The slot that `fleet:<node id>/<index>` names; None for another word. Raises NotFound."""
    found = SLOT.match(name)
    if found is None:
        return None
    row = (
        Gpu.objects.select_related("node")
        .filter(node__node_id=found["node"], index=int(found["index"]))
        .first()
    )
    if row is None:
        raise NotFound(
            "slot_unknown", _("There is no such slot."), field="gpu", remedy=_("Choose one of the fleet's.")
        )
    return row


def slot_name(slot: Gpu) -> str:
    """The word for a slot of this fleet in an address."""
    return f"{FLEET}{slot.node.node_id}/{slot.index}"


def slot_memory(slot: Gpu) -> int | None:
    """Memory of a GPU, of a CPU slot that of its host."""
    if slot.memory_bytes:
        return slot.memory_bytes
    return int(slot.node.versions.get("memory_bytes") or 0) or None


def answer(checkpoint: Checkpoint, given: PlanInput) -> Answer:
    """Plan a checkpoint. Raises InvalidInput, NotFound."""
    slot = slot_of(given.gpu) if given.gpu.startswith(FLEET) else None
    if slot is None:
        return _on_gpus(checkpoint, given, None)
    if slot.device == Gpu.Device.CPU:
        return _on_cpu(checkpoint, given, slot)
    return _on_gpus(checkpoint, given, slot)


def _memory_of(given: PlanInput, slot: Gpu) -> int:
    if given.gpu_memory:
        return gpu_of(given.model_copy(update={"gpu": ""}))[0]
    memory = slot_memory(slot)
    if memory is None:
        raise InvalidInput(
            "slot_memory_unknown",
            _("The memory of %(slot)s is not known.") % {"slot": slot},
            field="gpu_memory",
            remedy=_("Give the memory to plan with."),
        )
    return memory


def _on_gpus(checkpoint: Checkpoint, given: PlanInput, slot: Gpu | None) -> Answer:
    shape = shape_for(checkpoint)
    calibrated = learning.newest_calibration(slot.product, learning.TENSORRT) if slot is not None else None
    draft = shape_for(registry.checkpoint(given.draft)) if given.draft else None
    if slot is not None:
        request = request_of(
            given,
            shape,
            memory=_memory_of(given, slot),
            sm=_sm(slot),
            scale=calibrated.scale if calibrated else None,
            runs=calibrated.runs if calibrated else 0,
            draft=draft,
        )
        target = f"{slot} {slot.product}"
    else:
        request = request_of(given, shape, draft=draft)
        kind = gpu_of(given)[2]
        target = kind.label if kind and not given.gpu_memory else ""
    found = plan(shape, request)
    rank = found.rank
    return Answer(
        engine="tensorrt_llm",
        given=given,
        target=target,
        memory=request.gpu_memory,
        fits=found.fits,
        required=rank.required,
        segments=_segments(found),
        terms=rank.terms,
        host=found.host,
        kv_bytes_per_token=rank.bytes_per_token,
        kv_capacity_tokens=found.kv_capacity_tokens,
        max_seq_len=request.max_seq_len,
        sequences=found.sequences_at_max_seq_len,
        max_concurrency=found.max_concurrency,
        longest_prompt=found.longest_prompt,
        concurrency=tuple(concurrency_table(found)),
        largest_batch=largest_batch(shape, request),
        fewest=fewest_gpus(shape, request),
        longest=longest_sequence(shape, request),
        findings=found.findings,
        weights=request.weights.name,
        gpus=request.world_size,
        calibration=calibrated,
        detail=as_dict(found),
    )


def _segments(found: Plan) -> tuple[Segment, ...]:
    rank = found.rank
    parts = [
        Segment("weights", rank.weights.likely, rank.weights.low, rank.weights.high),
        Segment("activations", rank.activations.likely, rank.activations.low, rank.activations.high),
        Segment("overhead", rank.overhead.likely, rank.overhead.low, rank.overhead.high),
    ]
    cache = rank.pool.bytes if found.fits else rank.one_sequence
    parts.insert(1, Segment("kv", cache, cache, cache))
    left = max(found.request.gpu_memory - sum(part.bytes for part in parts), 0)
    return (*parts, Segment("free", left, left, left))


def _sm(slot: Gpu) -> int | None:
    digits = slot.compute_capability.replace(".", "")
    return int(digits) if digits.isdigit() else None


def _on_cpu(checkpoint: Checkpoint, given: PlanInput, slot: Gpu) -> Answer:
    """The embedded engine: slots are max_batch_size, the context of each is max_seq_len."""
    path = _path_of(checkpoint)
    memory = _memory_of(given, slot)
    kind = None if given.weights == AUTO else _buildable(given.weights)
    sizes = _sizes(str(path), _stamp(path), kind)
    calibrated = learning.newest_calibration(slot.product, learning.LLAMACPP)
    context = given.max_seq_len or DEFAULT_CONTEXT
    request = LlamaCppRequest(
        slots=_within("max_batch_size", given.max_batch_size, 1, 256),
        context_per_slot=_within("max_seq_len", context, 64, 1_048_576),
        kv=kv_format(given.kv),
        memory=memory,
        activations_scale=calibrated.scale if calibrated else None,
    )
    found = plan_llamacpp(sizes, request)
    parts = [_total(found.terms, name) for name in ("weights", "kv", "activations", "overhead")]
    left = max(memory - sum(part.bytes for part in parts), 0)
    each = found.kv // max(found.kv_tokens, 1)
    return Answer(
        engine="llamacpp",
        given=given,
        target=f"{slot} {slot.product}",
        memory=memory,
        fits=bool(found.fits),
        required=found.required,
        segments=(*parts, Segment("free", left, left, left)),
        terms=found.terms,
        host=(),
        kv_bytes_per_token=each,
        kv_capacity_tokens=found.kv_tokens,
        max_seq_len=context,
        sequences=request.slots,
        max_concurrency=request.slots,
        longest_prompt=context - 1,
        concurrency=(),
        largest_batch=largest_slots(sizes, request),
        fewest=Spread(1, 1, left) if found.fits else None,
        longest=longest_context(sizes, request),
        findings=found.findings,
        weights=(kind or str(checkpoint.facts.get("file_type") or "")).lower(),
        gpus=1,
        calibration=calibrated,
        detail=found.as_dict(),
    )


def host_bytes(checkpoint: Checkpoint, weights: str, max_batch_size: int, max_seq_len: int) -> int:
    """What a server of the embedded engine needs of its host, bytes, without what was measured of others.

    Reads the checkpoint's header, once. Raises InvalidInput, OSError.
    """
    path = _path_of(checkpoint)
    request = LlamaCppRequest(slots=max_batch_size, context_per_slot=max_seq_len, kv=kv_format("fp16"))
    return plan_llamacpp(_sizes(str(path), _stamp(path), weights), request).required


def _buildable(weights: str) -> str:
    found = BUILDABLE.get(weight_format(weights).name)
    if found is None:
        raise InvalidInput(
            "weights_not_buildable",
            _("The embedded engine's builder does not write %(format)s.") % {"format": weights},
            field="weights",
            remedy=_("Choose one of %(types)s.") % {"types": ", ".join(Quantization.values)},
        )
    return found


def _within(field: str, value: int, low: int, high: int) -> int:
    if low <= value <= high:
        return value
    raise InvalidInput(
        "out_of_range",
        _("%(field)s is %(value)d; the embedded engine takes %(low)d to %(high)d.")
        % {"field": field, "value": value, "low": low, "high": high},
        field=field,
        remedy=_("Choose a number in that range."),
    )


# The planner's words for what TensorRT-LLM's builder calls otherwise; 16 bit is no quantisation.
TRTLLM_FORMATS = {
    "fp16": "none",
    "bf16": "none",
    "fp32": "none",
    "fp8": "fp8",
    "int8": "int8_wo",
    "int8_sq": "int8_sq",
    "int4_wo": "int4_wo",
    "int4": "int4_awq",
    "int4_awq": "int4_awq",
    "int4_awq_zeros": "awq",
    "int4_gptq": "gptq",
    "w4a8_awq": "w4a8_awq",
    "nvfp4": "nvfp4",
}
DTYPES = {"fp16": "float16", "bf16": "bfloat16", "fp32": "float32"}


def build_documents(checkpoint: Checkpoint, found: Answer) -> list[dict[str, Any]]:
    """The plan as documents for compose_build and apply; empty where TensorRT-LLM's builder has no such format."""
    form = TRTLLM_FORMATS.get(found.weights)
    if found.engine != "tensorrt_llm" or form is None or checkpoint.format != Checkpoint.Format.HUGGING_FACE:
        return []
    given = found.given
    name = f"{checkpoint.name[:48]}-{found.weights.replace('_', '-')}"
    narrow = given.kv if given.kv in ("fp8", "int8") else "auto"
    quantized = form != "none" or narrow != "auto"
    spec: dict[str, Any] = {
        "builder": "trtllm",
        "checkpoint": checkpoint.name,
        "quantization": name if quantized else "none",
        "parallel": {"tp": given.tp, "pp": given.pp, "moeEp": given.ep},
        "build": {
            "max_batch_size": given.max_batch_size,
            "max_seq_len": found.max_seq_len,
            "max_num_tokens": given.max_num_tokens,
            "max_beam_width": given.beam_width,
        },
    }
    if found.weights in DTYPES:
        spec["dtype"] = DTYPES[found.weights]
    source: dict[str, Any] = {"source": {"path": checkpoint.path}}
    documents = [("Checkpoint", checkpoint.name, source)]
    if quantized:
        documents.append(("QuantizationProfile", name, {"format": form, "kvCacheDtype": narrow}))
    documents.append(("BuildProfile", name, spec))
    return [
        {"apiVersion": "inflight/v1", "kind": kind, "metadata": {"name": title}, "spec": body}
        for kind, title, body in documents
    ]


def _total(terms: tuple[Term, ...], group: str) -> Segment:
    found = [term for term in terms if term.group == group]
    return Segment(
        group,
        sum(term.likely for term in found),
        sum(term.low for term in found),
        sum(term.high for term in found),
    )


def answer_dict(found: Answer) -> dict[str, Any]:
    """JSON form for the API."""
    return {
        **found.detail,
        "engine": found.engine,
        "target": found.target or None,
        "calibrated_runs": found.calibration.runs if found.calibration else 0,
        "largest_batch": found.largest_batch,
        "longest_sequence": found.longest,
        "fewest_gpus": found.fewest.gpus if found.fewest else None,
        "fewest_spread": {"tp": found.fewest.tp, "pp": found.fewest.pp} if found.fewest else None,
        "concurrency": [
            {
                "prompt": row.prompt,
                "output": row.output,
                "sequences": row.running if row.possible else None,
                "held": row.held if row.possible else None,
            }
            for row in found.concurrency
        ],
    }
