"""What to do with a canary now, out of its figures beside those of the revision before. Plain rules, no memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

# Fewer ended requests say nothing about a percentile; a step then waits at most twice its time for more.
ENOUGH_REQUESTS = 20
PATIENCE = 2.0
# The old revision misses the same promise nearly as badly: the load is to blame, not the change.
EQUALLY_BAD = 0.9

Action = Literal["wait", "advance", "promote", "roll_back"]


@dataclass(frozen=True, slots=True)
class Promise:
    """A service level: 90th percentiles in milliseconds, failed among all requests (0 to 1). None: not promised."""

    ttft_ms: float | None = None
    itl_ms: float | None = None
    error_rate: float | None = None


@dataclass(frozen=True, slots=True)
class Figures:
    """What one revision did since its step began. None: not told."""

    requests: float | None = None
    error_rate: float | None = None
    ttft_ms: float | None = None
    itl_ms: float | None = None

    def as_dict(self) -> dict[str, float | None]:
        """JSON form."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a canary stands: `elapsed` of the step's `seconds`, whether it is the last, whether its servers serve.

    `waited`: seconds of the whole roll-out without a new step, against `deadline`.
    """

    elapsed: float
    seconds: float
    last: bool
    ready: bool
    deadline: float


@dataclass(frozen=True, slots=True)
class Verdict:
    """`reason` is stable: slo_ttft, slo_itl, slo_error_rate, not_ready, too_few_requests, both_miss, kept, time."""

    action: Action
    reason: str
    sentence: str


def judge(promise: Promise, progress: Progress, new: Figures, old: Figures) -> Verdict:
    """The verdict of this moment; asked again every few seconds."""
    if not progress.ready:
        return Verdict("wait", "not_ready", "Its servers do not all serve.")
    enough = new.requests is not None and new.requests >= ENOUGH_REQUESTS
    promises = any(value is not None for value in (promise.ttft_ms, promise.itl_ms, promise.error_rate))
    missed = _missed(promise, new) if enough else None
    if missed is not None:
        name, said, is_value, at_most = missed
        before = getattr(old, name)
        if before is not None and before > at_most and before >= EQUALLY_BAD * is_value:
            if progress.elapsed <= progress.deadline:
                return Verdict("wait", "both_miss", f"{said}, but the revision before misses it as much.")
            return Verdict("roll_back", f"slo_{name.removesuffix('_ms')}", f"{said}, for too long.")
        return Verdict("roll_back", f"slo_{name.removesuffix('_ms')}", f"{said}.")
    if progress.elapsed < progress.seconds:
        return Verdict("wait", "time", "The step's time is not over.")
    go: Action = "promote" if progress.last else "advance"
    if not promises:
        return Verdict(go, "kept", "Its servers serve; no service level is set to judge more by.")
    if not enough:
        number = int(new.requests or 0)
        if progress.elapsed < PATIENCE * progress.seconds:
            return Verdict("wait", "too_few_requests", f"Only {number} requests so far: waits for more.")
        return Verdict(go, "too_few_requests", f"Only {number} requests came; its servers serve.")
    return Verdict(go, "kept", "It kept the service level.")


def _missed(promise: Promise, new: Figures) -> tuple[str, str, float, float] | None:
    """(name, sentence, value, limit) of the first promise that is missed."""
    units: Mapping[str, tuple[str, str]] = {
        "error_rate": ("Failed requests", "{:.1%}"),
        "ttft_ms": ("TTFT", "{:.0f} ms"),
        "itl_ms": ("ITL", "{:.1f} ms"),
    }
    for name, (label, form) in units.items():
        limit, value = getattr(promise, name), getattr(new, name)
        if limit is not None and value is not None and value > limit:
            return name, f"{label} is {form.format(value)}, promised is {form.format(limit)}", value, limit
    return None


def figures_of(window: Mapping[str, Any], counts_every_end: bool = False) -> Figures:
    """Figures out of telemetry's window of a revision's instances.

    A window's `ended` holds bad ends alone, and only those that came; servers always tell of them, so none is 0.
    `counts_every_end`: `requests` holds the bad ends as well (the embedded engine), else only the good ones.
    """
    histograms = window.get("histograms") or {}
    bad = sum(float(window.get(key) or 0.0) for key in ("failed", "rejected"))
    told = window.get("requests")
    requests = None if told is None and not bad else max(bad, float(told or 0.0))
    if requests is not None and not counts_every_end:
        requests = float(told or 0.0) + bad
    rate = bad / requests if requests else None
    return Figures(
        requests=requests,
        error_rate=rate,
        ttft_ms=_milliseconds(histograms.get("ttft")),
        itl_ms=_milliseconds(histograms.get("itl")),
    )


def _milliseconds(summary: Mapping[str, Any] | None) -> float | None:
    if not summary or not summary.get("count") or summary.get("p90") is None:
        return None
    scale = {"ms": 1.0, "s": 1000.0}.get(str(summary.get("unit")))
    return float(summary["p90"]) * scale if scale is not None else None
