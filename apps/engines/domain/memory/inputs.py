"""A plan's input as people give it: by command line, REST body or address of the page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from apps.core.exceptions import Finding, InvalidInput
from apps.engines.domain.memory.formats import kv_format, weight_format
from apps.engines.domain.memory.gpus import BY_KEY, GpuKind
from apps.engines.domain.memory.request import (
    DEFAULT_KV_FRACTION,
    DEFAULT_MAX_NUM_TOKENS,
    TOKENS_PER_BLOCK,
    Draft,
    Lora,
    PlanRequest,
)
from apps.engines.domain.memory.shape import Shape
from apps.engines.domain.memory.units import parse_bytes

AUTO = "auto"
DEFAULT_BATCH = 64
DEFAULT_SEQ_LEN = 8192
DRAFT_TOKENS = 4


class PlanInput(BaseModel):
    """One plan. Give `gpu` (a name of the table) or `gpu_memory`; what is left out has the default of the builder.

    `weights` auto: as the checkpoint is stored, else FP16. `max_seq_len` null: 8,192, or the model's positions where
    they are fewer.
    """

    model_config = ConfigDict(extra="forbid")

    gpu: str = Field("", max_length=40, description="A GPU of the table, such as h100-sxm.")
    gpu_memory: str = Field(
        "", max_length=40, description="Memory of one GPU, such as 80GiB; wins over `gpu`."
    )
    tp: int = 1
    pp: int = 1
    ep: int = 1
    weights: str = Field(AUTO, max_length=40)
    group_size: int | None = None
    kv: str = Field("fp16", max_length=40)
    max_batch_size: int = DEFAULT_BATCH
    max_seq_len: int | None = None
    max_num_tokens: int = DEFAULT_MAX_NUM_TOKENS
    kv_fraction: float = DEFAULT_KV_FRACTION
    kv_max_tokens: int | None = None
    beam_width: int = 1
    tokens_per_block: int = TOKENS_PER_BLOCK
    chunked_context: bool = False
    windows: bool = True
    gather_context_logits: bool = False
    parallel_embedding: bool = False
    cuda_graphs: int = 0
    draft: str = Field("", max_length=1000, description="A draft model: another checkpoint on the same GPUs.")
    draft_tokens: int = 0
    lora_rank: int = 0
    lora_adapters: int = 8
    reserved: str = Field("", max_length=40, description="Memory of the GPU that others hold, such as 2GiB.")


def parse_input(values: Mapping[str, Any]) -> PlanInput:
    """Typed input. Raises InvalidInput with a finding for each field that is wrong."""
    try:
        return PlanInput.model_validate(dict(values))
    except ValidationError as error:
        findings = tuple(
            Finding(
                "input_unreadable",
                "error",
                f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}.",
                ".".join(map(str, problem["loc"])),
                "Correct it, or leave it out for the default.",
            )
            for problem in error.errors(include_url=False, include_input=False, include_context=False)
        )
        first = findings[0]
        raise InvalidInput(
            first.id, first.message, field=first.where, remedy=first.remedy, findings=findings
        ) from error


def gpu_of(given: PlanInput) -> tuple[int, int | None, GpuKind | None]:
    """Memory of one GPU, its compute capability where it is known, and its row. Raises InvalidInput."""
    kind = BY_KEY.get(given.gpu.lower()) if given.gpu else None
    if given.gpu and kind is None:
        raise InvalidInput(
            "gpu_unknown",
            f"There is no GPU {given.gpu!r} in the table.",
            field="gpu",
            remedy=f"Use one of {', '.join(BY_KEY)}, or give gpu_memory.",
        )
    if given.gpu_memory:
        return parse_bytes(given.gpu_memory, "gpu_memory"), kind.sm if kind else None, kind
    if kind is None:
        raise InvalidInput(
            "gpu_missing",
            "Neither a GPU nor its memory is given.",
            field="gpu_memory",
            remedy="Give gpu_memory, such as 80GiB, or a gpu of the table.",
        )
    return kind.memory_bytes, kind.sm, kind


def request_of(
    given: PlanInput,
    shape: Shape,
    *,
    memory: int | None = None,
    sm: int | None = None,
    scale: tuple[float, float, float] | None = None,
    runs: int = 0,
    draft: Shape | None = None,
) -> PlanRequest:
    """The plan that is asked for. `memory` and `sm` are those of a GPU of this fleet, in place of the table's.

    Raises InvalidInput.
    """
    if memory is None:
        memory, sm, _kind = gpu_of(given)
    auto = given.weights == AUTO
    name = (shape.stored_as or "fp16") if auto else given.weights
    group = given.group_size if given.group_size is not None else (shape.stored_group if auto else None)
    tokens = given.max_seq_len
    if tokens is None:
        tokens = min(DEFAULT_SEQ_LEN, shape.max_positions or DEFAULT_SEQ_LEN)
    return PlanRequest(
        gpu_memory=memory,
        weights=weight_format(name, group),
        kv=kv_format(given.kv),
        tp=given.tp,
        pp=given.pp,
        ep=given.ep,
        max_batch_size=given.max_batch_size,
        max_seq_len=tokens,
        max_num_tokens=given.max_num_tokens,
        kv_fraction=given.kv_fraction,
        beam_width=given.beam_width,
        tokens_per_block=given.tokens_per_block,
        kv_max_tokens=given.kv_max_tokens,
        windows=given.windows,
        chunked_context=given.chunked_context,
        gather_context_logits=given.gather_context_logits,
        parallel_embedding=given.parallel_embedding,
        cuda_graphs=given.cuda_graphs,
        draft=Draft(draft, weight_format(draft.stored_as or "fp16", draft.stored_group)) if draft else None,
        draft_tokens=given.draft_tokens or (DRAFT_TOKENS if draft else 0),
        lora=Lora(given.lora_rank, given.lora_adapters) if given.lora_rank else None,
        reserved=parse_bytes(given.reserved, "reserved") if given.reserved else 0,
        sm=sm,
        activations_scale=scale,
        calibrated_runs=runs,
    )
