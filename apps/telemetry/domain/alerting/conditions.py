"""What an alert rule watches for. One shape for each kind; unknown fields and metrics are refused.

Field names are snake_case in the API and camelCase in YAML documents; both are read.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic.alias_generators import to_camel

from apps.core.exceptions import Finding, InvalidInput
from apps.telemetry.domain.vocabulary import BY_NAME

Severity = Literal["info", "warning", "critical"]
SEVERITIES: tuple[Severity, ...] = ("info", "warning", "critical")
# What an alert is about: one alert for each object of this kind that the rule's selector names.
Target = Literal["fleet", "deployment", "instance", "node", "gpu"]
TARGETS: tuple[Target, ...] = ("fleet", "deployment", "instance", "node", "gpu")
Statistic = Literal["mean", "median", "max", "min", "last"]
HOUR, DAY = 3600, 86_400


class _Condition(BaseModel):
    model_config = ConfigDict(
        extra="forbid", frozen=True, allow_inf_nan=False, alias_generator=to_camel, populate_by_name=True
    )


def _known_key(key: str | None) -> str | None:
    if key is not None and key not in BY_NAME:
        near = sorted(BY_NAME, key=lambda name: _distance(name, key))[:3]
        raise ValueError(f"{key!r} is no metric of the vocabulary; nearest: {', '.join(near)}")
    return key


def _distance(name: str, wanted: str) -> float:
    mine, theirs = set(name.split("_")), set(wanted.split("_"))
    return -len(mine & theirs) / len(mine | theirs)


class Threshold(_Condition):
    """A metric above or below a value.

    The metric is the `statistic` of its known values in the last `window_seconds`; with `per` divided by the same of
    that metric (a share). `clear` is the value at which it counts as over (hysteresis); left out: 10% on the good
    side of `value`.
    """

    kind: Literal["threshold"] = "threshold"
    key: str
    per: str | None = None
    compare: Literal["above", "below"] = "above"
    value: float
    clear: float | None = None
    statistic: Statistic = "mean"
    window_seconds: int = Field(15, ge=1, le=HOUR)

    _key = field_validator("key", "per")(_known_key)

    @model_validator(mode="after")
    def _clear_on_the_good_side(self) -> Threshold:
        wrong = self.clear is not None and (
            self.clear > self.value if self.compare == "above" else self.clear < self.value
        )
        if wrong:
            side = "below" if self.compare == "above" else "above"
            raise ValueError(f"clear must not be on the bad side: set it to {self.value:g} or {side}")
        return self

    @property
    def clear_value(self) -> float:
        """Value at which the condition is over."""
        if self.clear is not None:
            return self.clear
        return self.value - abs(self.value) * (0.1 if self.compare == "above" else -0.1)


class Change(_Condition):
    """A metric that rose or fell: its mean over `window_seconds` against the mean of `baseline_seconds` before.

    `by` is a share of the baseline (`relative`) or an amount. `at_least`: a baseline nearer to zero says nothing.
    """

    kind: Literal["change"] = "change"
    key: str
    direction: Literal["rise", "fall"]
    by: float = Field(gt=0)
    relative: bool = True
    at_least: float = Field(0.0, ge=0)
    window_seconds: int = Field(60, ge=10, le=HOUR)
    baseline_seconds: int = Field(300, ge=10, le=HOUR)

    _key = field_validator("key")(_known_key)

    @model_validator(mode="after")
    def _can_happen(self) -> Change:
        if self.relative and self.direction == "fall" and self.by > 1:
            raise ValueError("a metric cannot fall by more than all of it: by is a share from 0 to 1")
        return self


class Absence(_Condition):
    """Nothing was said for `seconds`: no sample at all or, with `key`, no value of that metric.

    It speaks only of what should be there: servers that serve, deployments with one, the fleet while any serves.
    """

    kind: Literal["absence"] = "absence"
    key: str | None = None
    seconds: int = Field(30, ge=10, le=HOUR)

    _key = field_validator("key")(_known_key)


class Events(_Condition):
    """Something happened at least `count` times within `within_seconds`."""

    kind: Literal["events"] = "events"
    event: Literal["instance_restart", "instance_failure", "deployment_failure"]
    count: int = Field(1, ge=1, le=1000)
    within_seconds: int = Field(600, ge=60, le=DAY)


class InState(_Condition):
    """An object is in one of these states."""

    kind: Literal["state"] = "state"
    states: tuple[str, ...] = Field(min_length=1)


class BurnWindow(_Condition):
    """One pair of windows: the error budget burns `factor` times too fast over the long one, and still does."""

    long_seconds: int = Field(ge=300, le=3 * DAY)
    short_seconds: int = Field(ge=60, le=DAY)
    factor: float = Field(gt=1)

    @model_validator(mode="after")
    def _short_is_shorter(self) -> BurnWindow:
        if self.short_seconds >= self.long_seconds:
            raise ValueError("the short window must be shorter than the long one")
        return self


# Google, The Site Reliability Workbook, chapter 5, table 5-8: 2% of a 30-day budget in 1 h, 5% in 6 h.
PAGE_WINDOWS = (
    BurnWindow(long_seconds=HOUR, short_seconds=300, factor=14.4),
    BurnWindow(long_seconds=6 * HOUR, short_seconds=1800, factor=6.0),
)
_LATENCIES = ("ttft", "itl", "e2e")


class BurnRate(_Condition):
    """An objective's error budget is used up too fast (multi-window, multi-burn-rate).

    `objective` is the share of good requests. `indicator` says what is good: a request that did not fail (`errors`),
    or one whose TTFT, mean step or end-to-end time is at most `limit_ms`. Any pair of windows is enough.
    """

    kind: Literal["burn_rate"] = "burn_rate"
    indicator: Literal["errors", "ttft", "itl", "e2e"]
    objective: float = Field(0.99, ge=0.5, lt=1)
    limit_ms: float | None = Field(None, gt=0)
    windows: tuple[BurnWindow, ...] = Field(PAGE_WINDOWS, min_length=1, max_length=4)
    at_least_requests: int = Field(10, ge=1)

    @model_validator(mode="after")
    def _consistent(self) -> BurnRate:
        if (self.indicator in _LATENCIES) != (self.limit_ms is not None):
            what = "needs limit_ms" if self.indicator in _LATENCIES else "takes no limit_ms"
            raise ValueError(f"the indicator {self.indicator} {what}")
        # Where every request is bad.
        most = 1 / (1 - self.objective)
        if all(window.factor > most for window in self.windows):
            raise ValueError(f"no factor can be reached: with this objective the most is {most:.4g}")
        return self


Condition = Annotated[Threshold | Change | Absence | Events | InState | BurnRate, Field(discriminator="kind")]
KINDS: tuple[str, ...] = ("threshold", "change", "absence", "events", "state", "burn_rate")
_adapter: TypeAdapter[Any] = TypeAdapter(Condition)

# Which objects each kind can be asked about.
_FITTING: dict[str, tuple[Target, ...]] = {
    "threshold": TARGETS,
    "change": TARGETS,
    "absence": ("fleet", "deployment", "instance"),
    "events": ("deployment",),
    "state": ("deployment", "instance", "node"),
    "burn_rate": ("fleet", "deployment"),
}


AnyCondition = Threshold | Change | Absence | Events | InState | BurnRate


def parse(value: Any, target: str, states: dict[str, tuple[str, ...]] | None = None) -> AnyCondition:
    """A condition out of plain data. Raises InvalidInput with one finding for each fault.

    `target` is what the rule is about; `states` names the states that an object of each kind can have.
    """
    try:
        found: AnyCondition = _adapter.validate_python(value)
    except ValidationError as error:
        raise _refused([_finding(item) for item in error.errors(include_url=False)]) from error
    fitting = _FITTING[found.kind]
    if target not in fitting:
        message = f"A condition of kind {found.kind} cannot be asked of a {target}."
        remedy = f"It fits: {', '.join(fitting)}."
        raise _refused([Finding("alert_target", "error", message, "target", remedy)])
    if isinstance(found, InState) and states is not None:
        unknown = [state for state in found.states if state not in states.get(target, ())]
        if unknown:
            message = f"A {target} is never {unknown[0]}."
            remedy = f"Its states are: {', '.join(states.get(target, ()))}."
            raise _refused([Finding("alert_state", "error", message, "condition.states", remedy)])
    return found


def plain(condition: AnyCondition, *, camel: bool = False) -> dict[str, Any]:
    """The condition as JSON data, defaults included, what is absent left out."""
    return condition.model_dump(mode="json", by_alias=camel, exclude_none=True)


def _finding(item: Any) -> Finding:
    # The first part is the kind, which the input does not spell as a field.
    parts = item["loc"][1:] if item["loc"] and item["loc"][0] in KINDS else item["loc"]
    path = [str(part) for part in parts]
    where = ".".join(["condition", *path])
    message = str(item["msg"]).removeprefix("Value error, ")
    if item["type"] in {"union_tag_invalid", "union_tag_not_found"}:
        return Finding(
            "alert_kind",
            "error",
            "A condition needs a kind.",
            "condition.kind",
            f"Choose one of: {', '.join(KINDS)}.",
        )
    if item["type"] == "extra_forbidden":
        message = f"{path[-1]} is not a field of this kind of condition"
    return Finding("alert_condition", "error", f"{where}: {message}.", where, "Correct the value.")


def _refused(findings: list[Finding]) -> InvalidInput:
    first = findings[0]
    return InvalidInput(
        first.id, first.message, field=first.where, remedy=first.remedy, findings=tuple(findings)
    )
