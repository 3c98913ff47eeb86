"""What a stream's times say, by tokens and not by messages: one message may carry several tokens or none.

Percentiles are linear interpolations, as numpy's default. Absent is None: an answer of one token has no
inter-token latency, one without tokens no time to first token.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class TimingSummary:
    """Figures of one answer; milliseconds, tokens, tokens per second.

    `tpot_ms` is (last - first) / (tokens - 1). `itl_*` are percentiles over tokens: a message of n tokens counts n
    times with an n-th of its gap; tokens that came with the first message have no gap of their own.
    `tokens_per_second` is the speed after the first token, `output_tokens_per_second` that of the whole answer,
    waiting included. `chunk_gap_*` are between messages and say what a reader saw, not what the engine did.
    Where an engine does not count its tokens, everything by tokens is None.
    """

    ttft_ms: float | None
    tpot_ms: float | None
    itl_p50_ms: float | None
    itl_p99_ms: float | None
    tokens: int | None
    tokens_per_second: float | None
    output_tokens_per_second: float | None
    duration_ms: float | None
    chunks: int
    mean_chunk_gap_ms: float | None
    chunk_gap_p50_ms: float | None
    chunk_gap_p99_ms: float | None

    def as_dict(self) -> dict[str, float | int | None]:
        """JSON form."""
        return asdict(self)


@dataclass(slots=True)
class Timings:
    """Collects one answer's arrivals. Times are seconds of one clock; `start` is when the request was sent."""

    start: float
    _arrivals: list[tuple[float, int]] = field(default_factory=list)
    _counted: bool = True
    _end: float | None = None

    def add(self, at: float, tokens: int | None) -> None:
        """A message came: with so many tokens, or with text whose tokens nobody counted (None).

        One with 0 tokens is no arrival and is left out.
        """
        if tokens is None:
            self._counted = False
        if tokens is None or tokens > 0:
            self._arrivals.append((at, tokens or 0))

    def finish(self, at: float) -> None:
        """The answer ended."""
        self._end = at

    def summary(self) -> TimingSummary:
        """The figures so far."""
        times = np.array([at for at, _ in self._arrivals])
        counts = np.array([count for _, count in self._arrivals], dtype=np.int64)
        gaps = np.diff(times) * 1000
        tokens = int(counts.sum()) if self._counted else None
        per_token = np.repeat(gaps / counts[1:], counts[1:]) if self._counted and gaps.size else np.empty(0)
        span = float(times[-1] - times[0]) if times.size else 0.0
        duration = self._end - self.start if self._end is not None else None
        return TimingSummary(
            ttft_ms=float(times[0] - self.start) * 1000 if times.size else None,
            tpot_ms=span * 1000 / (tokens - 1) if tokens and tokens > 1 and gaps.size else None,
            itl_p50_ms=_percentile(per_token, 50),
            itl_p99_ms=_percentile(per_token, 99),
            tokens=tokens,
            tokens_per_second=(tokens - 1) / span if tokens and tokens > 1 and span > 0 else None,
            output_tokens_per_second=tokens / duration if tokens and duration else None,
            duration_ms=duration * 1000 if duration is not None else None,
            chunks=len(self._arrivals),
            mean_chunk_gap_ms=float(gaps.mean()) if gaps.size else None,
            chunk_gap_p50_ms=_percentile(gaps, 50),
            chunk_gap_p99_ms=_percentile(gaps, 99),
        )


def _percentile(values: npt.NDArray[np.float64], percent: float) -> float | None:
    return float(np.percentile(values, percent)) if values.size else None
