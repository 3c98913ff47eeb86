"""What a load test does, as data: target, load, lengths, when it is warm, when it stops, its SLO.

The same shape is a JSON column, an API body and the `spec` of a YAML document (there in camelCase).
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic.alias_generators import to_camel

from apps.loadtests.domain.metrics import Mode, Slo

CONFIG = ConfigDict(extra="forbid", strict=True, alias_generator=to_camel, populate_by_name=True)
MOST_STEPS = 12
MOST_CONCURRENCY, MOST_RATE = 4096, 10_000.0
MOST_TOKENS = 131_072
Seconds = Annotated[float, Field(gt=0, le=3600)]


class Length(BaseModel):
    """Tokens of prompts or answers. `least` and `most` cut the drawn lengths.

    Distribution uniform draws between them, normal and lognormal have `mean` and `deviation` (of the lengths
    themselves), dataset takes them from the dataset's rows.
    """

    model_config = CONFIG

    distribution: Literal["fixed", "uniform", "normal", "lognormal", "dataset"] = "fixed"
    mean: Annotated[float, Field(ge=1, le=MOST_TOKENS)] = 64.0
    deviation: Annotated[float, Field(ge=0, le=MOST_TOKENS)] = 0.0
    least: Annotated[int, Field(ge=1, le=MOST_TOKENS)] = 1
    most: Annotated[int, Field(ge=1, le=MOST_TOKENS)] = 4096

    @model_validator(mode="after")
    def _bounds(self) -> Length:
        if self.least > self.most:
            raise ValueError("least is larger than most; exchange them")
        if self.distribution in ("normal", "lognormal") and self.deviation == 0:
            raise ValueError(f"a {self.distribution} distribution needs a deviation above 0; or choose fixed")
        return self

    @property
    def expected(self) -> float:
        """About how many tokens a draw gives."""
        return (self.least + self.most) / 2 if self.distribution == "uniform" else self.mean


class Load(BaseModel):
    """How requests come. Several values are steps of one run, each measured by itself: a curve.

    Mode closed: `concurrency` clients, each sends its next request when it has its answer. Mode open: `rate`
    requests a second come whether earlier ones are answered or not; `burstiness` n lets n come at once on
    average. Mode trace: at the moments that the dataset's rows carry (`timestamp`, milliseconds), `speed` times
    as fast.
    """

    model_config = CONFIG

    mode: Literal["closed", "open", "trace"] = "closed"
    concurrency: list[Annotated[int, Field(ge=1, le=MOST_CONCURRENCY)]] = Field(
        default_factory=lambda: [16], min_length=1, max_length=MOST_STEPS
    )
    rate: list[Annotated[float, Field(gt=0, le=MOST_RATE)]] = Field(
        default_factory=lambda: [1.0], min_length=1, max_length=MOST_STEPS
    )
    arrivals: Literal["poisson", "constant", "bursty"] = "poisson"
    burstiness: Annotated[float, Field(ge=1, le=1000)] = 4.0
    speed: Annotated[float, Field(gt=0, le=1000)] = 1.0

    @property
    def steps(self) -> list[float]:
        """Clients or requests a second of each step; a trace has one step."""
        if self.mode == "closed":
            return [float(value) for value in self.concurrency]
        return list(self.rate) if self.mode == "open" else [0.0]

    @property
    def metrics_mode(self) -> Mode:
        """How its requests are counted."""
        return "closed" if self.mode == "closed" else "open"


class Prompts(BaseModel):
    """What is asked. Lengths are in words of a list of which each is one token for the usual vocabularies.

    `shared_prefix` words stand before every prompt; `turns` requests make a conversation whose history grows.
    `dataset` names a file of the home's folder datasets/ (JSON lines: ShareGPT, messages, prompts, or a trace of
    lengths). `exact_output` forbids an earlier end, where the engine can.
    """

    model_config = CONFIG

    input: Length = Field(default_factory=lambda: Length(mean=32))
    output: Length = Field(default_factory=lambda: Length(distribution="uniform", least=8, most=128))
    shared_prefix: Annotated[int, Field(ge=0, le=MOST_TOKENS)] = 0
    turns: Annotated[int, Field(ge=1, le=32)] = 1
    dataset: Annotated[str, Field(max_length=120, pattern=r"^$|^[A-Za-z0-9][A-Za-z0-9._-]*$")] = ""
    exact_output: bool = True


class Timing(BaseModel):
    """When each step is measured and when it ends.

    Warm-up lasts at least `warm_up_seconds` and until every client has had an answer (at most four times as
    long). Then at least `seconds` and `requests` are measured; with `until_steady` it goes on until the last
    three fifths agree within 10%, at most `most_seconds`. `grace_seconds` is how long requests that were due may
    take after that (open loop).
    """

    model_config = CONFIG

    warm_up_seconds: Annotated[float, Field(ge=0, le=600)] = 5.0
    seconds: Seconds = 30.0
    most_seconds: Seconds = 90.0
    requests: Annotated[int, Field(ge=1, le=1_000_000)] = 30
    until_steady: bool = True
    grace_seconds: Annotated[float, Field(ge=0, le=600)] = 30.0

    @model_validator(mode="after")
    def _bounds(self) -> Timing:
        if self.most_seconds < self.seconds:
            raise ValueError("most_seconds is below seconds; give at least as many")
        return self


class SloBounds(BaseModel):
    """Bounds that a request must meet to be good, and the share that must be good (capacity)."""

    model_config = CONFIG

    ttft_ms: Annotated[float, Field(gt=0)] | None = None
    tpot_ms: Annotated[float, Field(gt=0)] | None = None
    latency_ms: Annotated[float, Field(gt=0)] | None = None

    def as_slo(self) -> Slo:
        """As apps.loadtests.domain.metrics takes it."""
        return Slo(self.ttft_ms, self.tpot_ms, self.latency_ms)


class Scenario(BaseModel):
    """A load test. `seed` null draws a new one for each run, so that no cache is met twice."""

    model_config = CONFIG

    target: Annotated[str, Field(min_length=1, max_length=63)]
    via: Literal["http", "grpc", "gateway"] = "http"
    load: Load = Field(default_factory=Load)
    prompts: Prompts = Field(default_factory=Prompts)
    timing: Timing = Field(default_factory=Timing)
    slo: SloBounds = Field(default_factory=SloBounds)
    seed: Annotated[int, Field(ge=0, le=2**31 - 1)] | None = None
    processes: Annotated[int, Field(ge=1, le=64)] | None = None

    @model_validator(mode="after")
    def _agrees(self) -> Scenario:
        draws = (self.prompts.input.distribution, self.prompts.output.distribution)
        if not self.prompts.dataset and ("dataset" in draws or self.load.mode == "trace"):
            raise ValueError(
                "lengths or arrivals come from a dataset, and none is named; name one in prompts.dataset"
            )
        return self

    @property
    def most_seconds(self) -> float:
        """The longest that a run of it takes, seconds, without starting its processes."""
        timing = self.timing
        step = 4 * timing.warm_up_seconds + timing.most_seconds + timing.grace_seconds
        return step * len(self.load.steps)

    @property
    def expected_seconds(self) -> float:
        """About how long a run of it takes."""
        return (self.timing.warm_up_seconds + self.timing.seconds) * len(self.load.steps) + 2.0

    @property
    def most_concurrency(self) -> int | None:
        """The most requests at once that it asks for; None where nothing bounds it (open loop)."""
        return max(self.load.concurrency) if self.load.mode == "closed" else None


def parse(value: Any) -> Scenario:
    """A scenario out of plain values. Raises pydantic.ValidationError."""
    return Scenario.model_validate(value)
