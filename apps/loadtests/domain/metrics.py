"""What the records of a load test say. Definitions follow those of AIPerf where it has one, and say where they
differ.

t0 is the moment at which a request was **due** (in a closed loop that is when its client became free), t1 .. tn the
arrivals of messages with content, T the output tokens as the server counts them.

- TTFT t1 - t0, TTST t2 - t1, latency tn - t0; `service_*` the same from the moment of sending.
- TPOT (tn - t1) / (T - 1): without the first token, by tokens and not by messages; one value a request (this is what
  AIPerf calls inter-token latency).
- ITL: gaps of single tokens, over all requests: a message of k tokens counts k times with a k-th of its gap, so
  a stall inside a request shows. Chunk gaps are between messages and stand under their own name.
- Throughput: what arrived in the measured time over that time. Errors, refusals and unfinished requests are
  counted and never are in a percentile.
- Goodput: requests that meet every bound of the SLO over the measured time; one that lacks a figure is not good.

Percentiles are linear interpolations, numpy's default. Absent is None, never 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from apps.loadtests.domain.records import ERROR, OK, REJECTED, UNFINISHED, Columns, Floats, Record

Mode = Literal["closed", "open"]
PERCENTILES = (50, 90, 95, 99)
MS = 1000.0


@dataclass(frozen=True, slots=True)
class Slo:
    """Bounds that a good request meets, milliseconds; None: no bound."""

    ttft_ms: float | None = None
    tpot_ms: float | None = None
    latency_ms: float | None = None

    @property
    def given(self) -> bool:
        """Whether there is any bound."""
        return any(bound is not None for bound in (self.ttft_ms, self.tpot_ms, self.latency_ms))


@dataclass(frozen=True, slots=True)
class RequestFigures:
    """One request's figures; in the unit of its times. Those by tokens are None where nobody counted."""

    ttft: float | None
    ttst: float | None
    latency: float | None
    tpot: float | None
    tokens: int | None
    chunks: int
    mean_chunk_gap: float | None


def of_request(record: Record) -> RequestFigures:
    """Figures of one record."""
    times, tokens = record.arrivals, record.tokens
    span = times[-1] - times[0] if len(times) > 1 else None
    return RequestFigures(
        ttft=times[0] - record.due if times else None,
        ttst=times[1] - times[0] if len(times) > 1 else None,
        latency=times[-1] - record.due if times else None,
        tpot=span / (tokens - 1) if span is not None and tokens is not None and tokens > 1 else None,
        tokens=tokens,
        chunks=len(times),
        mean_chunk_gap=span / (len(times) - 1) if span is not None else None,
    )


@dataclass(frozen=True, slots=True)
class Window:
    """Measured time, seconds since the run began: from `begin` to before `end`."""

    begin: float
    end: float

    @property
    def seconds(self) -> float:
        """Its length."""
        return self.end - self.begin


def counted(data: Columns, window: Window, mode: Mode) -> Columns:
    """Requests that belong to the measured time: due in it (open loop), ended in it (closed loop).

    A closed loop has no request that the server did not admit, and those that are still under way at the end say
    nothing; in an open loop they are what went wrong.
    """
    at = data.due if mode == "open" else data.ended
    chosen = (at >= window.begin) & (at < window.end)
    if mode == "closed":
        chosen &= data.result != UNFINISHED
    return data.where(chosen)


def summarise(data: Columns, window: Window, mode: Mode, slo: Slo | None = None) -> dict[str, Any]:
    """Every figure of the measured time as plain values; see the module for definitions. Milliseconds, seconds,
    tokens."""
    mine = counted(data, window, mode)
    good = mine.where((mine.result == OK) & np.isfinite(mine.first))
    empty = int(((mine.result == OK) & ~np.isfinite(mine.first)).sum())
    seconds = window.seconds
    found: dict[str, Any] = {
        "mode": mode,
        "seconds": seconds,
        "requests": mine.size,
        "completed": good.size,
        "empty": empty,
        "errors": int((mine.result == ERROR).sum()),
        "rejected": int((mine.result == REJECTED).sum()),
        "unfinished": int((mine.result == UNFINISHED).sum()),
        "requests_per_second": good.size / seconds if seconds > 0 else None,
        "output_tokens_per_second": _tokens_per_second(data, window),
        "output_tokens_mean": _mean(good.tokens),
        "prompt_tokens_mean": _mean(good.prompt_tokens),
    }
    for name, values in request_series(good).items():
        found |= _spread(name, values)
    found |= _spread("itl", token_gaps(good) * MS)
    found |= _spread("chunk_gap", chunk_gaps(good) * MS)
    found["output_tokens_per_second_per_user"] = _mean(_speed(good))
    found["goodput_per_second"], found["good_share"] = _goodput(mine, slo, seconds)
    found["slo"] = asdict(slo) if slo is not None and slo.given else None
    return found


def lost_share(figures: Mapping[str, Any]) -> float | None:
    """Share of a step's requests that got no whole answer, out of its figures; None where nothing was asked."""
    asked = figures.get("requests") or 0
    lost = sum(int(figures.get(name) or 0) for name in ("errors", "rejected", "unfinished", "empty"))
    return lost / asked if asked else None


def request_series(good: Columns) -> dict[str, Floats]:
    """One value a request of each figure, milliseconds; NaN where it has none."""
    tokens = np.where(good.tokens > 1, good.tokens - 1, np.nan)
    span = np.where(good.last > good.first, good.last - good.first, np.nan)
    return {
        "ttft": (good.first - good.due) * MS,
        "ttst": (good.second - good.first) * MS,
        "latency": (good.last - good.due) * MS,
        "tpot": span / tokens * MS,
        "service_ttft": (good.first - good.sent) * MS,
        "service_latency": (good.last - good.sent) * MS,
    }


def token_gaps(good: Columns) -> Floats:
    """Seconds between tokens, all requests together; empty where nobody counted tokens."""
    gaps, tokens = _gaps(good)
    known = np.isfinite(tokens) & (tokens > 0)
    if not known.all() or not gaps.size:
        return np.empty(0)
    repeat = tokens.astype(np.int64)
    return np.repeat(gaps / tokens, repeat)


def chunk_gaps(good: Columns) -> Floats:
    """Seconds between messages, all requests together."""
    return _gaps(good)[0]


def _gaps(good: Columns) -> tuple[Floats, Floats]:
    if good.arrival.size < 2:
        return np.empty(0), np.empty(0)
    same = good.owner[1:] == good.owner[:-1]
    return np.diff(good.arrival)[same], good.arrival_tokens[1:][same]


def arrived_tokens(data: Columns) -> tuple[Floats, Floats] | None:
    """(moment, tokens) of everything that arrived; None where nobody counted.

    Where only a request's total is known, it is spread evenly over the request's messages; a message of a request
    that was cut off before its total came counts as the others do in the mean.
    """
    if not data.arrival.size:
        return np.empty(0), np.empty(0)
    weights = data.arrival_tokens
    if not np.isfinite(weights).all():
        chunks = np.bincount(data.owner, minlength=data.size)
        spread = data.tokens / np.maximum(chunks, 1)
        weights = np.where(np.isfinite(weights), weights, spread[data.owner])
        told = np.isfinite(weights)
        if not told.any():
            return None
        # Left out they would be missing from the last second: 5% of a short run.
        weights = np.where(told, weights, weights[told].mean())
    return data.arrival, weights


def _tokens_per_second(data: Columns, window: Window) -> float | None:
    found = arrived_tokens(data)
    if found is None or window.seconds <= 0:
        return None
    at, tokens = found
    return float(tokens[(at >= window.begin) & (at < window.end)].sum()) / window.seconds


def _speed(good: Columns) -> Floats:
    tpot = request_series(good)["tpot"]
    return np.where(tpot > 0, MS / np.where(tpot > 0, tpot, 1.0), np.nan)


def good_requests(mine: Columns, slo: Slo) -> Any:
    """Whether each request meets every bound; boolean array."""
    series = request_series(mine)
    good = (mine.result == OK) & np.isfinite(mine.first)
    for bound, name in ((slo.ttft_ms, "ttft"), (slo.tpot_ms, "tpot"), (slo.latency_ms, "latency")):
        if bound is not None:
            good &= np.nan_to_num(series[name], nan=np.inf) <= bound
    return good


def _goodput(mine: Columns, slo: Slo | None, seconds: float) -> tuple[float | None, float | None]:
    if slo is None or not slo.given or seconds <= 0 or not mine.size:
        return None, None
    good = int(good_requests(mine, slo).sum())
    return good / seconds, good / mine.size


def _spread(name: str, values: Floats) -> dict[str, float | None]:
    known = values[np.isfinite(values)]
    found: dict[str, float | None] = {f"{name}_mean_ms": float(known.mean()) if known.size else None}
    cut = np.percentile(known, PERCENTILES) if known.size else [None] * len(PERCENTILES)
    for percent, value in zip(PERCENTILES, cut, strict=True):
        found[f"{name}_p{percent}_ms"] = None if value is None else float(value)
    return found


def _mean(values: Floats) -> float | None:
    known = values[np.isfinite(values)]
    return float(known.mean()) if known.size else None
