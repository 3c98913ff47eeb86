"""REST: quality runs, gates, waivers."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.http import HttpRequest
from ninja import Query, Router, Schema, Status
from pydantic import BaseModel, ConfigDict, Field

from apps.accounts.rest import REFUSALS, Number, Page, PageQuery, StatusFields, actor_of, page_of
from apps.accounts.roles import Action, require
from apps.engines import selectors as engines
from apps.loadtests import quality_gate, selectors, serialize, services
from apps.loadtests.policy import QUALITY_ANSWER_TOKENS, QUALITY_WINDOWS
from apps.loadtests.shapes import QualityGateFields
from apps.serving import selectors as serving

router = Router(tags=["quality"])
STRICT = ConfigDict(extra="forbid", strict=True)


class QualityRun(StatusFields):
    """A build against its source. `result` is null before it is there; figures that nothing tells are null in it."""

    number: int
    method: str
    title: str
    engine: str | None
    baseline: str | None
    deployment: str | None
    baseline_deployment: str | None
    settings: dict[str, Any]
    result: dict[str, Any] | None
    requested_by: str | None
    progress: float | None
    eta_seconds: float | None
    cancel_requested: bool
    started_at: datetime | None
    finished_at: datetime | None
    actions: list[str]


class NewQualityRun(BaseModel):
    """An engine (a fingerprint or its unique beginning) and what it is compared with; null: its checkpoint."""

    model_config = STRICT

    engine: str
    baseline: str | None = None
    windows: int = QUALITY_WINDOWS
    answer_tokens: int = QUALITY_ANSWER_TOKENS


class NewAnswerRun(BaseModel):
    """Two deployments that serve: the build's, and its source's."""

    model_config = STRICT

    deployment: str
    baseline: str
    answer_tokens: int = QUALITY_ANSWER_TOKENS


class QualityGate(Schema):
    """What engines of a build profile must keep; null: not looked at."""

    name: str
    build: str
    max_perplexity_ratio: float | None
    max_divergence: float | None
    min_top1: float | None
    min_agreement: float | None
    blocking: bool


class NewQualityGate(QualityGateFields):
    """A gate to make."""

    name: str


class Waiver(BaseModel):
    """Why an engine may pass all the same."""

    model_config = STRICT

    why: str = Field(min_length=1, max_length=500)


class QualityVerdict(Schema):
    """Whether an engine passes its gate; `blocks`: it may not be deployed."""

    gate: str | None
    run: int | None
    passes: bool
    blocks: bool
    failing: list[dict[str, Any]]
    waiver: dict[str, Any] | None


@router.get("/quality-runs", response={200: Page[QualityRun], **REFUSALS}, operation_id="list_quality_runs")
def list_quality_runs(request: HttpRequest, page: Query[PageQuery]) -> dict[str, Any]:
    """All quality runs, newest first, without their answers."""
    require(actor_of(request), Action.VIEW)
    return page_of(selectors.quality_runs(), page, lambda row: serialize.quality_run_dict(row, short=True))


@router.post("/quality-runs", response={201: QualityRun, **REFUSALS}, operation_id="start_quality_run")
def start_quality_run(request: HttpRequest, body: NewQualityRun) -> Status[dict[str, Any]]:
    """Compare a build's log-probabilities with its source's."""
    row = services.start_quality_run(
        actor_of(request),
        engines.engine(body.engine),
        engines.engine(body.baseline) if body.baseline is not None else None,
        windows=body.windows,
        answer_tokens=body.answer_tokens,
    )
    return Status(201, serialize.quality_run_dict(row))


@router.post("/quality-runs/answers", response={201: QualityRun, **REFUSALS}, operation_id="start_answer_run")
def start_answer_run(request: HttpRequest, body: NewAnswerRun) -> Status[dict[str, Any]]:
    """Compare the greedy answers of two deployments."""
    row = services.start_answer_run(
        actor_of(request),
        serving.deployment(body.deployment),
        serving.deployment(body.baseline),
        answer_tokens=body.answer_tokens,
    )
    return Status(201, serialize.quality_run_dict(row))


@router.get("/quality-runs/{number}", response={200: QualityRun, **REFUSALS}, operation_id="get_quality_run")
def get_quality_run(request: HttpRequest, number: Number) -> dict[str, Any]:
    """One quality run with its worst answers and passages."""
    require(actor_of(request), Action.VIEW)
    return serialize.quality_run_dict(selectors.quality_run(number))


@router.post(
    "/quality-runs/{number}/cancel",
    response={200: QualityRun, **REFUSALS},
    operation_id="cancel_quality_run",
)
def cancel_quality_run(request: HttpRequest, number: Number) -> dict[str, Any]:
    """Cancel a quality run."""
    row = services.cancel_quality_run(actor_of(request), selectors.quality_run(number))
    return serialize.quality_run_dict(row)


@router.post(
    "/quality-runs/{number}/repeat",
    response={201: QualityRun, **REFUSALS},
    operation_id="repeat_quality_run",
)
def repeat_quality_run(request: HttpRequest, number: Number) -> Status[dict[str, Any]]:
    """Run an ended comparison again; one that did not come to its end goes on where it stopped."""
    row = services.repeat_quality_run(actor_of(request), selectors.quality_run(number))
    return Status(201, serialize.quality_run_dict(row))


@router.delete("/quality-runs/{number}", response={204: None, **REFUSALS}, operation_id="delete_quality_run")
def delete_quality_run(request: HttpRequest, number: Number) -> Status[None]:
    """Delete a quality run that has ended."""
    services.delete_quality_run(actor_of(request), selectors.quality_run(number))
    return Status(204, None)


@router.get(
    "/quality-gates", response={200: Page[QualityGate], **REFUSALS}, operation_id="list_quality_gates"
)
def list_quality_gates(request: HttpRequest, page: Query[PageQuery]) -> dict[str, Any]:
    """All gates by name."""
    require(actor_of(request), Action.VIEW)
    return page_of(selectors.quality_gates(), page, serialize.quality_gate_dict)


@router.post("/quality-gates", response={201: QualityGate, **REFUSALS}, operation_id="create_quality_gate")
def create_quality_gate(request: HttpRequest, body: NewQualityGate) -> Status[dict[str, Any]]:
    """Make a gate for a build profile."""
    row = services.save_quality_gate(actor_of(request), _values(body))
    return Status(201, serialize.quality_gate_dict(row))


@router.put(
    "/quality-gates/{name}", response={200: QualityGate, **REFUSALS}, operation_id="change_quality_gate"
)
def change_quality_gate(request: HttpRequest, name: str, body: QualityGateFields) -> dict[str, Any]:
    """Change a gate; what serves is not touched."""
    row = services.save_quality_gate(actor_of(request), _values(body), selectors.quality_gate(name))
    return serialize.quality_gate_dict(row)


@router.delete("/quality-gates/{name}", response={204: None, **REFUSALS}, operation_id="delete_quality_gate")
def delete_quality_gate(request: HttpRequest, name: str) -> Status[None]:
    """Delete a gate."""
    services.delete_quality_gate(actor_of(request), selectors.quality_gate(name))
    return Status(204, None)


@router.get(
    "/engines/{fingerprint}/quality", response={200: QualityVerdict, **REFUSALS}, operation_id="get_quality"
)
def get_quality(request: HttpRequest, fingerprint: str) -> dict[str, Any]:
    """Whether an engine passes its gate, and by which run."""
    require(actor_of(request), Action.VIEW)
    return quality_gate.verdict_dict(quality_gate.verdict_of(engines.engine(fingerprint)))


@router.put(
    "/engines/{fingerprint}/quality/waiver",
    response={200: QualityVerdict, **REFUSALS},
    operation_id="waive_quality_gate",
)
def waive_quality_gate(request: HttpRequest, fingerprint: str, body: Waiver) -> dict[str, Any]:
    """Let an engine be deployed whatever its gate says; needs an administrator."""
    engine = engines.engine(fingerprint)
    services.waive_quality_gate(actor_of(request), engine, body.why)
    return quality_gate.verdict_dict(quality_gate.verdict_of(engine))


@router.delete(
    "/engines/{fingerprint}/quality/waiver",
    response={204: None, **REFUSALS},
    operation_id="end_quality_waiver",
)
def end_quality_waiver(request: HttpRequest, fingerprint: str) -> Status[None]:
    """Let the gate hold for an engine again; needs an administrator."""
    services.end_quality_waiver(actor_of(request), engines.engine(fingerprint))
    return Status(204, None)


def _values(body: QualityGateFields) -> dict[str, Any]:
    values = body.model_dump()
    return {
        **{key: value for key, value in values.items() if key != "build"},
        "build_profile": values["build"],
    }
