"""AIPerf's record of each request as ours, so that its runs are compared, plotted and exported as any other.

Facts are those of its release 0.13: `profile_export.jsonl` has a line a request with `metadata` (nanoseconds of the
wall clock), `metrics` ({name: {value, unit}}, times in ms) and `error`. A request is due when its credit was issued.
Its messages carry no counts of tokens, so gaps of single tokens are not known; tokens are the usage's.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from apps.loadtests.domain.records import ERROR, OK, REJECTED, UNFINISHED, Record

RECORDS = "profile_export.jsonl"
PROFILING, WARM_UP = "profiling", "warmup"
NANO, MILLI = 1e-9, 1e-3
BUSY_CODES = frozenset({429, 503})
_IGNORE = ConfigDict(extra="ignore", strict=False)


class _Metadata(BaseModel):
    model_config = _IGNORE

    session_num: int = 0
    turn_index: int | None = None
    credit_issued_ns: int | None = None
    request_start_ns: int = Field(ge=0)
    request_end_ns: int = Field(ge=0)
    benchmark_phase: str
    was_cancelled: bool = False


class _Metric(BaseModel):
    model_config = _IGNORE

    value: float | list[float] | None = None
    unit: str


class _Error(BaseModel):
    model_config = _IGNORE

    code: int | None = None
    type: str | None = None


class _Line(BaseModel):
    model_config = _IGNORE

    metadata: _Metadata
    metrics: dict[str, _Metric] = Field(default_factory=dict)
    error: _Error | None = None


@dataclass(frozen=True, slots=True)
class Asked:
    """A request with the phase that it belongs to; its times are seconds of the wall clock."""

    record: Record
    phase: str


def read_line(text: str) -> Asked | None:
    """One line; None for one that is no record (a writer that was killed leaves half a line)."""
    try:
        line = _Line.model_validate(json.loads(text))
    except (ValidationError, ValueError):
        return None
    told = line.metadata
    sent, ended = told.request_start_ns * NANO, told.request_end_ns * NANO
    arrivals = _arrivals(line, sent)
    tokens = _number(line, "output_sequence_length", "tokens")
    prompt = _number(line, "input_sequence_length", "tokens")
    record = Record(
        due=(told.credit_issued_ns or told.request_start_ns) * NANO,
        sent=sent,
        arrivals=arrivals,
        counts=None,
        ended=max(ended, arrivals[-1] if arrivals else ended),
        tokens=None if tokens is None else round(tokens),
        prompt_tokens=None if prompt is None else round(prompt),
        result=_result(line),
        code=str((line.error.code or line.error.type or "error") if line.error else "")[:60],
        index=told.session_num,
        turn=told.turn_index or 0,
    )
    return Asked(record, told.benchmark_phase)


def _arrivals(line: _Line, sent: float) -> tuple[float, ...]:
    first = _number(line, "time_to_first_token", "ms")
    if first is None:
        return ()
    gaps = line.metrics.get("inter_chunk_latency")
    if gaps is not None and gaps.unit == "ms" and isinstance(gaps.value, list):
        steps = [first, *gaps.value]
    else:
        last = _number(line, "request_latency", "ms")
        steps = [first] if last is None or last <= first else [first, last - first]
    return tuple(sent + at * MILLI for at in itertools.accumulate(steps))


def _number(line: _Line, name: str, unit: str) -> float | None:
    found = line.metrics.get(name)
    if found is None or found.unit != unit or not isinstance(found.value, int | float):
        return None
    return float(found.value)


def _result(line: _Line) -> str:
    if line.metadata.was_cancelled:
        return UNFINISHED
    if line.error is None:
        return OK
    return REJECTED if line.error.code in BUSY_CODES else ERROR


def moved(asked: Iterable[Asked], zero: float, step: int) -> Iterator[Record]:
    """The records with times since `zero` (seconds of the wall clock), in a step of the load."""
    for each in asked:
        row = each.record
        yield replace(
            row,
            due=row.due - zero,
            sent=row.sent - zero,
            arrivals=tuple(at - zero for at in row.arrivals),
            ended=row.ended - zero,
            step=step,
        )


class Seconds:
    """What each second of a run brought, as our generator's ticks say it; requests may come in any order.

    Tokens of an answer are spread evenly over its messages.
    """

    def __init__(self) -> None:
        self._ticks: dict[int, dict[str, Any]] = {}
        self._times: dict[int, tuple[list[float], list[float]]] = {}

    def add(self, row: Record) -> None:
        """A request, its times in seconds since the run began."""
        self._tick(row.sent)["started"] += 1
        ended = self._tick(row.ended)
        ended["step"] = row.step
        if row.result != OK:
            ended["errors"] += 1
            return
        ended["completed"] += 1
        latency, ttft = self._times.setdefault(int(ended["at"]), ([], []))
        latency.append(row.ended - row.due)
        if row.arrivals:
            ttft.append(row.arrivals[0] - row.due)
            for at in row.arrivals:
                self._tick(at)["tokens"] += (row.tokens or 0) / len(row.arrivals)

    def _tick(self, at: float) -> dict[str, Any]:
        second = max(0, int(at)) + 1
        empty = {"at": float(second), "step": 0, "started": 0, "completed": 0, "errors": 0, "tokens": 0.0}
        return self._ticks.setdefault(second, empty)

    def points(self, begin: float) -> list[dict[str, Any]]:
        """The seconds in their order; warm from `begin` on."""
        running, found = 0, []
        # Also those in which nothing came: while the program of the next step loads, nothing is asked.
        for second in range(1, max(self._ticks, default=0) + 1):
            tick = self._tick(second - 1)
            latency, ttft = self._times.get(second, ([], []))
            running += tick["started"] - tick["completed"] - tick["errors"]
            found.append(
                {
                    **tick,
                    "tokens": round(tick["tokens"], 1),
                    "running": running,
                    "warm": second > begin,
                    "latency_mean_ms": _ms(sum(latency) / len(latency)) if latency else None,
                    "ttft_p50_ms": _ms(sorted(ttft)[len(ttft) // 2]) if ttft else None,
                    "ttft_most_ms": _ms(max(ttft)) if ttft else None,
                }
            )
        return found


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 2)
