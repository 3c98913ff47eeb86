"""Whether the generator, not the server, was the bottleneck of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

# Starts may be this late; more of a processor than this leaves a process no room for bursts.
LATE_P99_MS, LAG_P99_MS, CPU_SHARE = 5.0, 20.0, 0.9


def judge(parts: Sequence[Mapping[str, Any]], mode: str, latency_ms: float | None = None) -> dict[str, Any]:
    """The generator's figures and why it was the bottleneck, in words; `bound` False where it was not.

    `parts` are what each process told of itself: cpu (share of one core), late and lag (p50_ms, p99_ms, most_ms). The
    worst process counts: a late one delays its share of the load. In a closed loop, where clients become free
    together, a start may be late by 1% of `latency_ms` (mean latency) where that is more: it changes no figure
    by more.
    """
    known = [part for part in parts if part]
    late = _worst(known, "late", "p99_ms")
    lag = _worst(known, "lag", "p99_ms")
    cpu = max((float(part["cpu"]) for part in known), default=None)
    late_bound = LATE_P99_MS
    if mode == "closed" and latency_ms is not None:
        late_bound = max(LATE_P99_MS, latency_ms / 100)
    reasons = []
    if len(known) < len(parts):
        reasons.append("a process of the generator did not tell how it fared")
    if late is not None and late > late_bound:
        reasons.append(
            f"1% of the requests were sent more than {late:.1f} ms after they were due (bound {late_bound:.0f} ms)"
        )
    if lag is not None and lag > LAG_P99_MS:
        reasons.append(f"its event loop stood still for {lag:.0f} ms (p99, bound {LAG_P99_MS:.0f} ms)")
    if cpu is not None and cpu > CPU_SHARE:
        reasons.append(f"a process used {cpu:.0%} of a core (bound {CPU_SHARE:.0%})")
    return {
        "bound": bool(reasons),
        "reasons": reasons,
        "processes": len(parts),
        "late_p50_ms": _worst(known, "late", "p50_ms"),
        "late_p99_ms": late,
        "late_most_ms": _worst(known, "late", "most_ms"),
        "lag_p99_ms": lag,
        "cpu": cpu,
        "mode": mode,
    }


def _worst(parts: Sequence[Mapping[str, Any]], group: str, name: str) -> float | None:
    values = [part[group][name] for part in parts if part.get(group) and part[group].get(name) is not None]
    return max(map(float, values), default=None)
