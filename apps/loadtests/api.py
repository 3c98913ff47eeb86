"""REST: load tests, their runs, studies and comparisons."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from django.http import HttpRequest
from ninja import Query, Router, Schema, Status
from pydantic import BaseModel, ConfigDict, Field

from apps.accounts.rest import REFUSALS, Number, Page, PageQuery, StatusFields, actor_of, page_of
from apps.accounts.roles import Action, require
from apps.loadtests import background, comparing, selectors, serialize, services
from apps.loadtests.domain.compare import DEFAULT_PRIMARY
from apps.loadtests.domain.scenario import Scenario
from apps.loadtests.policy import REPEATS
from apps.serving import selectors as serving

router = Router(tags=["load tests"])
STRICT = ConfigDict(extra="forbid", strict=True)
Generator = Literal["inflight", "aiperf"]


class LoadTest(Schema):
    """A scenario under a name."""

    id: int
    name: str
    scenario: dict[str, Any]
    created_at: datetime
    updated_at: datetime


class NewLoadTest(BaseModel):
    """A load test to make."""

    model_config = STRICT

    name: str
    scenario: Scenario


class ChangedLoadTest(BaseModel):
    """The scenario of a load test from now on."""

    model_config = STRICT

    scenario: Scenario


class ShortRun(StatusFields):
    """One run. `figures` are those of its first step, null before it has measured."""

    number: int
    test: str | None
    study: int | None
    arm: int | None
    repeat: int | None
    target: str
    seed: int
    generator: str
    requested_by: str | None
    progress: float | None
    eta_seconds: float | None
    cancel_requested: bool
    started_at: datetime | None
    finished_at: datetime | None
    figures: dict[str, Any] | None
    generator_bound: bool | None
    actions: list[str]


class Run(ShortRun):
    """One run with its scenario, what answered it, its summary and its seconds.

    `beside` has our figures and AIPerf's under the same load, null before there are both.
    """

    scenario: dict[str, Any]
    environment: dict[str, Any]
    summary: dict[str, Any] | None
    series: list[dict[str, Any]]
    has_log: bool
    beside: dict[str, Any] | None


class Study(StatusFields):
    """Configurations side by side."""

    number: int
    kind: str
    title: str
    arms: list[dict[str, Any]]
    repeats: int
    scenario: dict[str, Any]
    primary: str
    seed: int
    verdict: dict[str, Any] | None
    progress: float
    requested_by: str | None
    started_at: datetime | None
    finished_at: datetime | None
    runs: list[ShortRun]
    actions: list[str]


class NewComparison(BaseModel):
    """Deployments to compare; the first is what the others are compared with."""

    model_config = STRICT

    deployments: list[str]
    scenario: Scenario
    repeats: int = REPEATS
    primary: str = DEFAULT_PRIMARY
    allow_production: bool = False


class NewBatchingStudy(BaseModel):
    """A batching study of a deployment's engine."""

    model_config = STRICT

    deployment: str
    full: bool = Field(False, description="Also delays of dynamic and batch sizes of in-flight.")
    repeats: int = 3
    primary: str = DEFAULT_PRIMARY
    allow_production: bool = False


class Production(BaseModel):
    """Whether a deployment is production."""

    model_config = STRICT

    production: bool


class BackgroundLoad(Schema):
    """Synthetic users beside a deployment's chats. `run` is the load run behind them, null where there are none."""

    users: int
    most_users: int
    run: int | None
    state: str | None
    sentence: str | None
    ends_at: float | None


class NewBackgroundLoad(BaseModel):
    """How many synthetic users a deployment has from now on; 0 ends them."""

    model_config = STRICT

    users: int = Field(ge=0)
    seconds: float | None = Field(None, gt=0, description="How long, unless it is kept; null: 15 s.")


class CompareQuery(BaseModel):
    """Which runs to compare."""

    arm: list[str] = Field(description="Numbers of runs, as 3,5,7; given once for each configuration.")
    primary: str = DEFAULT_PRIMARY


class CapacityQuery(BaseModel):
    """Which load shall be borne, under which bound."""

    rate: float = Field(gt=0, description="Requests per second.")
    metric: Literal["ttft_p50_ms", "ttft_p99_ms", "latency_p50_ms", "latency_p99_ms", "tpot_p99_ms"] = (
        "ttft_p99_ms"
    )
    bound: float = Field(gt=0, description="Milliseconds.")


@router.get("/load-tests", response={200: Page[LoadTest], **REFUSALS}, operation_id="list_load_tests")
def list_load_tests(request: HttpRequest, page: Query[PageQuery]) -> dict[str, Any]:
    """All load tests by name."""
    require(actor_of(request), Action.VIEW)
    return page_of(selectors.load_tests(), page, serialize.load_test_dict)


@router.post("/load-tests", response={201: LoadTest, **REFUSALS}, operation_id="create_load_test")
def create_load_test(request: HttpRequest, body: NewLoadTest) -> Status[dict[str, Any]]:
    """Keep a scenario under a name."""
    row = services.save_load_test(actor_of(request), {"name": body.name, "scenario": body.scenario})
    return Status(201, serialize.load_test_dict(row))


@router.put("/load-tests/{name}", response={200: LoadTest, **REFUSALS}, operation_id="change_load_test")
def change_load_test(request: HttpRequest, name: str, body: ChangedLoadTest) -> dict[str, Any]:
    """Change a load test; runs keep the scenario they had."""
    row = selectors.load_test(name)
    return serialize.load_test_dict(
        services.save_load_test(actor_of(request), {"scenario": body.scenario}, row)
    )


@router.delete("/load-tests/{name}", response={204: None, **REFUSALS}, operation_id="delete_load_test")
def delete_load_test(request: HttpRequest, name: str) -> Status[None]:
    """Delete a load test; its runs stay."""
    services.delete_load_test(actor_of(request), selectors.load_test(name))
    return Status(204, None)


@router.get("/load-runs", response={200: Page[ShortRun], **REFUSALS}, operation_id="list_load_runs")
def list_load_runs(request: HttpRequest, page: Query[PageQuery]) -> dict[str, Any]:
    """All runs, newest first."""
    require(actor_of(request), Action.VIEW)
    return page_of(selectors.runs(), page, lambda row: serialize.run_dict(row, short=True))


@router.post("/load-tests/{name}/runs", response={201: Run, **REFUSALS}, operation_id="start_load_test")
def start_load_test(
    request: HttpRequest, name: str, allow_production: bool = False, generator: Generator = "inflight"
) -> Status[dict[str, Any]]:
    """Start a run of a load test."""
    row = services.start_run(
        actor_of(request),
        selectors.load_test(name),
        allow_production=allow_production,
        generator=generator,
    )
    return Status(201, serialize.run_dict(row))


@router.post("/load-runs", response={201: Run, **REFUSALS}, operation_id="start_load_run")
def start_load_run(
    request: HttpRequest, body: Scenario, allow_production: bool = False, generator: Generator = "inflight"
) -> Status[dict[str, Any]]:
    """Start a run of a scenario under no name."""
    row = services.start_scenario(
        actor_of(request), body, allow_production=allow_production, generator=generator
    )
    return Status(201, serialize.run_dict(row))


@router.get("/load-runs/{number}", response={200: Run, **REFUSALS}, operation_id="get_load_run")
def get_load_run(request: HttpRequest, number: Number) -> dict[str, Any]:
    """One run."""
    require(actor_of(request), Action.VIEW)
    return serialize.run_dict(selectors.run(number))


@router.post("/load-runs/{number}/stop", response={200: Run, **REFUSALS}, operation_id="stop_load_run")
def stop_load_run(request: HttpRequest, number: Number) -> dict[str, Any]:
    """Stop a run; what it has measured is kept."""
    return serialize.run_dict(services.stop_run(actor_of(request), selectors.run(number)))


@router.post("/load-runs/{number}/repeat", response={201: Run, **REFUSALS}, operation_id="repeat_load_run")
def repeat_load_run(
    request: HttpRequest, number: Number, generator: Literal["", "inflight", "aiperf"] = ""
) -> Status[dict[str, Any]]:
    """Start a run of the same scenario; `generator` has the other one send it, for as long as this one measured."""
    row = services.repeat_run(actor_of(request), selectors.run(number), generator=generator)
    return Status(201, serialize.run_dict(row))


@router.delete("/load-runs/{number}", response={204: None, **REFUSALS}, operation_id="delete_load_run")
def delete_load_run(request: HttpRequest, number: Number) -> Status[None]:
    """Delete a run that has ended, with its records."""
    services.delete_run(actor_of(request), selectors.run(number))
    return Status(204, None)


@router.get(
    "/load-runs/{number}/capacity", response={200: dict[str, Any], **REFUSALS}, operation_id="load_capacity"
)
def load_capacity(request: HttpRequest, number: Number, query: Query[CapacityQuery]) -> dict[str, Any]:
    """How many instances a load needs, out of a run's curve."""
    require(actor_of(request), Action.VIEW)
    return comparing.capacity_of(selectors.run(number), query.rate, query.metric, query.bound)


@router.get("/load-comparison", response={200: dict[str, Any], **REFUSALS}, operation_id="compare_load_runs")
def compare_load_runs(request: HttpRequest, query: Query[CompareQuery]) -> dict[str, Any]:
    """Groups of runs against the first group."""
    require(actor_of(request), Action.VIEW)
    groups, labels = comparing.groups_of(query.arm)
    return comparing.compare_runs(groups, labels, query.primary)


@router.get("/studies", response={200: Page[Study], **REFUSALS}, operation_id="list_studies")
def list_studies(request: HttpRequest, page: Query[PageQuery]) -> dict[str, Any]:
    """All studies, newest first."""
    require(actor_of(request), Action.VIEW)
    return page_of(selectors.studies(), page, serialize.study_dict)


@router.get("/studies/{number}", response={200: Study, **REFUSALS}, operation_id="get_study")
def get_study(request: HttpRequest, number: Number) -> dict[str, Any]:
    """One study with its runs and its verdict."""
    require(actor_of(request), Action.VIEW)
    return serialize.study_dict(selectors.study(number))


@router.post("/studies/comparison", response={201: Study, **REFUSALS}, operation_id="start_comparison")
def start_comparison(request: HttpRequest, body: NewComparison) -> Status[dict[str, Any]]:
    """Start paired, interleaved runs against deployments that serve."""
    row = services.start_comparison(
        actor_of(request),
        body.deployments,
        body.scenario,
        repeats=body.repeats,
        primary=body.primary,
        allow_production=body.allow_production,
    )
    return Status(201, serialize.study_dict(row))


@router.post("/studies/batching", response={201: Study, **REFUSALS}, operation_id="start_batching_study")
def start_batching_study(request: HttpRequest, body: NewBatchingStudy) -> Status[dict[str, Any]]:
    """Serve a deployment's engine with each batching strategy and compare them."""
    row = services.start_batching_study(
        actor_of(request),
        serving.deployment(body.deployment),
        full=body.full,
        repeats=body.repeats,
        primary=body.primary,
        allow_production=body.allow_production,
    )
    return Status(201, serialize.study_dict(row))


@router.post("/studies/{number}/cancel", response={200: Study, **REFUSALS}, operation_id="cancel_study")
def cancel_study(request: HttpRequest, number: Number) -> dict[str, Any]:
    """Cancel a study; the servers that it made go."""
    return serialize.study_dict(services.cancel_study(actor_of(request), selectors.study(number)))


@router.delete("/studies/{number}", response={204: None, **REFUSALS}, operation_id="delete_study")
def delete_study(request: HttpRequest, number: Number) -> Status[None]:
    """Delete a study that has ended, with its runs."""
    services.delete_study(actor_of(request), selectors.study(number))
    return Status(204, None)


@router.put("/deployments/{name}/production", response={204: None, **REFUSALS}, operation_id="set_production")
def set_production(request: HttpRequest, name: str, body: Production) -> Status[None]:
    """Mark a deployment as production, which load tests then spare; needs an administrator."""
    services.set_production(actor_of(request), serving.deployment(name), body.production)
    return Status(204, None)


@router.get(
    "/deployments/{name}/background-load",
    response={200: BackgroundLoad, **REFUSALS},
    operation_id="get_background_load",
)
def get_background_load(request: HttpRequest, name: str) -> dict[str, Any]:
    """Synthetic users that keep a deployment busy now."""
    require(actor_of(request), Action.VIEW)
    return background.state(serving.deployment(name))


@router.put(
    "/deployments/{name}/background-load",
    response={200: BackgroundLoad, **REFUSALS},
    operation_id="set_background_load",
)
def set_background_load(request: HttpRequest, name: str, body: NewBackgroundLoad) -> dict[str, Any]:
    """Have so many synthetic users ask a deployment; it ends by itself."""
    row = serving.deployment(name)
    services.set_background_load(actor_of(request), row, body.users, body.seconds)
    return background.state(row)


@router.post(
    "/deployments/{name}/background-load/keep",
    response={200: BackgroundLoad, **REFUSALS},
    operation_id="keep_background_load",
)
def keep_background_load(request: HttpRequest, name: str) -> dict[str, Any]:
    """Have the background load go on for another 15 s, within its longest time."""
    row = serving.deployment(name)
    services.keep_background_load(actor_of(request), row)
    return background.state(row)
