"""REST: memory plans, the table of GPUs, and predicted against measured."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.http import HttpRequest
from ninja import Query, Router, Schema
from pydantic import Field

from apps.accounts.rest import REFUSALS, Page, PageQuery, actor_of, page_of
from apps.accounts.roles import Action, require
from apps.engines import learning, memory_plans, selectors
from apps.engines.domain.memory.gpus import GPUS
from apps.engines.domain.memory.inputs import PlanInput
from apps.registry import selectors as registry

router = Router()
TAGS = ["memory"]


class NewPlan(PlanInput):
    """What to plan: a registered checkpoint on a GPU of the table, of this fleet (fleet:NODE/INDEX), or by memory."""

    checkpoint: str = Field(min_length=1, max_length=63, description="Name of a checkpoint.")


class Finding(Schema):
    """One thing worth knowing, with the field to change."""

    id: str
    severity: str
    message: str
    where: str
    remedy: str


class PlanTerm(Schema):
    """What takes memory: bytes of one GPU, at the low end, likely, and at the high end."""

    name: str
    title: str
    group: str
    low: int
    likely: int
    high: int
    formula: str
    source: str


class ConcurrencyRow(Schema):
    """Requests of that size at once; null where such a prompt is refused."""

    prompt: int
    output: int
    sequences: int | None
    held: int | None


class MemoryPlan(Schema):
    """A plan. Bytes are whole and of one GPU; what the engine has no figure for is null."""

    engine: str = Field(description="tensorrt_llm, or llamacpp on a CPU slot of this fleet.")
    target: str | None
    fits: bool | None
    required_bytes: int
    weights_bytes: int
    kv_bytes_per_token: int | None = None
    kv_pool_bytes: int
    kv_capacity_tokens: int
    sequences_at_max_seq_len: int | None = None
    max_concurrency: int | None = None
    longest_prompt_tokens: int | None = None
    activations_bytes: int | None = None
    activations_low: int | None = None
    activations_high: int | None = None
    overhead_bytes: int | None = None
    gpu_memory_bytes: int | None = None
    free_for_kv_bytes: int | None = None
    gpus: int | None = None
    largest_batch: int
    longest_sequence: int
    fewest_gpus: int | None
    fewest_spread: dict[str, int] | None
    calibrated_runs: int
    concurrency: list[ConcurrencyRow]
    terms: list[PlanTerm]
    host: list[PlanTerm] = []
    findings: list[Finding]


class GpuKind(Schema):
    """A row of the table. `sm` is the compute capability times ten."""

    key: str
    label: str
    memory_bytes: int
    sm: int
    seen: bool = Field(description="Whether the memory was read from a running card.")


class Measurement(Schema):
    """One figure that was predicted and measured: bytes, for kv_tokens tokens."""

    event: str
    term: str
    engine: str
    build: int | None
    instance: str | None
    attempt: int
    predicted: int | None
    predicted_low: int | None
    predicted_high: int | None
    measured: int
    error: float | None = Field(description="(predicted - measured) / measured.")
    source: str = Field(description="log (the engine's), proc or file.")
    version: str
    gpu_kind: str
    created_at: datetime


class MeasurementQuery(PageQuery):
    """Narrows the list of measurements."""

    engine: str = Field("", max_length=64, description="Fingerprint of an engine, or a beginning of it.")
    build: int | None = Field(None, ge=1, le=2_147_483_647)
    instance: str = Field("", max_length=40)


@router.post("/memory/plan", response={200: MemoryPlan, **REFUSALS}, operation_id="plan_memory", tags=TAGS)
def plan_memory(request: HttpRequest, body: NewPlan) -> dict[str, Any]:
    """Plan the memory of a checkpoint. What does not fit is an answer, too; only bad input is refused."""
    require(actor_of(request), Action.VIEW)
    given = PlanInput.model_validate(body.model_dump(exclude={"checkpoint"}))
    return memory_plans.answer_dict(memory_plans.answer(registry.checkpoint(body.checkpoint), given))


@router.get(
    "/memory/gpus", response={200: list[GpuKind], **REFUSALS}, operation_id="list_gpu_kinds", tags=TAGS
)
def list_gpu_kinds(request: HttpRequest) -> list[Any]:
    """The usual GPUs, with the memory that a program sees."""
    require(actor_of(request), Action.VIEW)
    return list(GPUS)


@router.get(
    "/memory/measurements",
    response={200: Page[Measurement], **REFUSALS},
    operation_id="list_memory_measurements",
    tags=TAGS,
)
def list_memory_measurements(request: HttpRequest, query: Query[MeasurementQuery]) -> dict[str, Any]:
    """Predicted against measured memory of builds and loads, newest first."""
    require(actor_of(request), Action.VIEW)
    engine = selectors.engine(query.engine) if query.engine else None
    build = selectors.build(query.build) if query.build else None
    rows = learning.measurements(engine=engine, build=build, instance=query.instance)
    return page_of(rows, query, learning.as_dict)
