"""AIPerf's results read in beside our own generator's.

Facts are those of its release 0.13: `profile_export_aiperf.json` of schema 1.x has a block of unit, avg and
percentiles for each metric; derived metrics have avg alone. Its inter-token latency is a request's
(last - first) / (tokens - 1), our TPOT.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

RESULTS = "profile_export_aiperf.json"
SCHEMA = "1."


class UnreadableResults(ValueError):
    """A file that is not what AIPerf writes."""


class _Block(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=False)

    unit: str
    avg: float
    p50: float | None = None
    p99: float | None = None


class _Error(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=False)

    count: int = Field(ge=0)


class _File(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=False)

    schema_version: str
    aiperf_version: str
    was_cancelled: bool = False
    time_to_first_token: _Block | None = None
    inter_token_latency: _Block | None = None
    request_latency: _Block | None = None
    output_token_throughput: _Block | None = None
    request_throughput: _Block | None = None
    request_count: _Block | None = None
    goodput: _Block | None = None
    inter_chunk_latency: _Block | None = None
    input_sequence_length: _Block | None = None
    output_sequence_length: _Block | None = None
    error_summary: list[_Error] = Field(default_factory=list)


# Our figure -> (metric of AIPerf, field of its block, the unit that it must have).
FIGURES: dict[str, tuple[str, str, str]] = {
    "requests_per_second": ("request_throughput", "avg", "requests/sec"),
    "output_tokens_per_second": ("output_token_throughput", "avg", "tokens/sec"),
    "ttft_mean_ms": ("time_to_first_token", "avg", "ms"),
    "ttft_p50_ms": ("time_to_first_token", "p50", "ms"),
    "ttft_p99_ms": ("time_to_first_token", "p99", "ms"),
    "tpot_mean_ms": ("inter_token_latency", "avg", "ms"),
    "tpot_p50_ms": ("inter_token_latency", "p50", "ms"),
    "tpot_p99_ms": ("inter_token_latency", "p99", "ms"),
    "chunk_gap_p99_ms": ("inter_chunk_latency", "p99", "ms"),
    "latency_mean_ms": ("request_latency", "avg", "ms"),
    "latency_p50_ms": ("request_latency", "p50", "ms"),
    "latency_p99_ms": ("request_latency", "p99", "ms"),
    "goodput_per_second": ("goodput", "avg", "requests/sec"),
    "prompt_tokens_mean": ("input_sequence_length", "avg", "tokens"),
    "output_tokens_mean": ("output_sequence_length", "avg", "tokens"),
}


@dataclass(frozen=True, slots=True)
class Results:
    """What AIPerf measured, by our names; a figure that it does not give is null."""

    version: str
    figures: dict[str, float | None]
    completed: int | None
    errors: int
    cancelled: bool

    def as_dict(self) -> dict[str, Any]:
        """JSON form."""
        return asdict(self)


def read_results(text: str) -> Results:
    """The summary file of a run. Raises UnreadableResults saying what is wrong."""
    try:
        found = _File.model_validate(json.loads(text))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the file"
        raise UnreadableResults(f"{RESULTS}: {where}: {first['msg']}.") from error
    except ValueError as error:
        raise UnreadableResults(f"{RESULTS} is no JSON: {error}.") from error
    if not found.schema_version.startswith(SCHEMA):
        raise UnreadableResults(f"{RESULTS} has schema {found.schema_version}; {SCHEMA}x is understood.")
    count = found.request_count
    return Results(
        version=found.aiperf_version,
        figures={name: _figure(found, name) for name in FIGURES},
        completed=None if count is None else round(count.avg),
        errors=sum(each.count for each in found.error_summary),
        cancelled=found.was_cancelled,
    )


def _figure(found: _File, name: str) -> float | None:
    metric, field, unit = FIGURES[name]
    block: _Block | None = getattr(found, metric)
    if block is None:
        return None
    if block.unit != unit:
        raise UnreadableResults(f"{RESULTS}: {metric} is in {block.unit}, not in {unit}.")
    value: float | None = getattr(block, field)
    if value is None:
        return None
    if not math.isfinite(value) or value < 0:
        raise UnreadableResults(f"{RESULTS}: {metric}.{field} is {value}, which cannot be.")
    return value


def beside(ours: Mapping[str, Any], theirs: Results) -> list[dict[str, Any]]:
    """A row a figure that both have: ours, theirs, and by what share ours is larger."""
    return figures_beside(ours, theirs.figures)


def figures_beside(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The same of figures that were read before."""
    rows = []
    for name in FIGURES:
        value, mine = theirs.get(name), ours.get(name)
        if value is None or mine is None:
            continue
        rows.append(
            {"figure": name, "ours": mine, "aiperf": value, "apart": mine / value - 1 if value else None}
        )
    return rows
