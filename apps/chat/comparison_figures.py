"""What the answers of a comparison say: timings side by side, and how their texts differ. No row is touched."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from apps.chat import word_diff
from apps.chat.word_diff import Segment

# [question][side], as comparisons.answers gives them.
Answers = Sequence[Sequence[Mapping[str, Any] | None]]
# An answer with text that may be compared; one that failed or still comes may not.
ENDED = frozenset({"done", "stopped", "interrupted"})


@dataclass(frozen=True, slots=True)
class SideFigures:
    """One side over all questions: medians of what is timed, sums of what is counted, null where none is told.

    `answered` of all questions are done; `likeness` is the mean share of text that its answers share with the
    first side's (1: the same), null for the first side and where there is nothing to compare.
    """

    answered: int
    ttft_ms: float | None
    itl_p50_ms: float | None
    itl_p99_ms: float | None
    tokens_per_second: float | None
    queue_ms: float | None
    tokens: int | None
    prompt_tokens: int | None
    cached_tokens: int | None
    likeness: float | None
    same: int

    def as_dict(self) -> dict[str, Any]:
        """JSON form."""
        return asdict(self)


def differences(answers: Answers) -> list[list[list[Segment] | None]]:
    """[question][side] -> how the answer differs from the first side's; None for the first, and without both."""
    return [[None, *(_difference(row[0], other) for other in row[1:])] for row in answers]


def summary(answers: Answers, differing: Sequence[Sequence[list[Segment] | None]]) -> list[SideFigures]:
    """The figures of each side."""
    sides = len(answers[0]) if answers else 0
    return [_side([row[side] for row in answers], [row[side] for row in differing]) for side in range(sides)]


def _difference(first: Mapping[str, Any] | None, other: Mapping[str, Any] | None) -> list[Segment] | None:
    if first is None or other is None or not {first["state"], other["state"]} <= ENDED:
        return None
    return word_diff.segments(first["answer"], other["answer"])


def _side(
    answers: Sequence[Mapping[str, Any] | None], differing: Sequence[list[Segment] | None]
) -> SideFigures:
    told = [answer["metrics"] for answer in answers if answer is not None and answer["state"] in ENDED]
    alike = [word_diff.likeness(segments) for segments in differing if segments is not None]

    def median(name: str) -> float | None:
        known = [metrics[name] for metrics in told if metrics.get(name) is not None]
        return float(statistics.median(known)) if known else None

    def total(name: str) -> int | None:
        known = [metrics[name] for metrics in told if metrics.get(name) is not None]
        return sum(known) if known else None

    return SideFigures(
        answered=sum(answer is not None and answer["state"] == "done" for answer in answers),
        ttft_ms=median("ttft_ms"),
        itl_p50_ms=median("itl_p50_ms"),
        itl_p99_ms=median("itl_p99_ms"),
        tokens_per_second=median("tokens_per_second"),
        queue_ms=median("queue_ms"),
        tokens=total("tokens"),
        prompt_tokens=total("prompt_tokens"),
        cached_tokens=total("cached_tokens"),
        likeness=statistics.fmean(alike) if alike else None,
        same=sum(share == 1.0 for share in alike),
    )
