"""Quality results as a table in Markdown: what a command and a benchmark print, what a document quotes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

ABSENT = "\u2013"
# Figure -> heading, digits, and what it is multiplied by.
COLUMNS: dict[str, tuple[str, int, float]] = {
    "perplexity_ratio": ("perplexity ratio", 3, 1.0),
    "divergence": ("KL, nats a token", 4, 1.0),
    "top1": ("top-1 the same, %", 1, 100.0),
    "agreement": ("answers the same, %", 0, 100.0),
    "agreed_part": ("same part of an answer, %", 0, 100.0),
    "speed_ratio": ("times as fast", 2, 1.0),
}


def estimate(told: Mapping[str, Any] | None, digits: int, factor: float = 1.0) -> str:
    """A figure with its interval: 1.021 (1.013 to 1.030)."""
    if told is None:
        return ABSENT
    text = f"{told['value'] * factor:.{digits}f}"
    if told["low"] is None or told["high"] is None:
        return text
    return f"{text} ({told['low'] * factor:.{digits}f} to {told['high'] * factor:.{digits}f})"


def cells(result: Mapping[str, Any]) -> list[str]:
    """The figures of a result in the order of COLUMNS."""
    figures = result["figures"]
    return [estimate(figures.get(name), digits, factor) for name, (_, digits, factor) in COLUMNS.items()]


def table(results: Sequence[tuple[str, Mapping[str, Any]]]) -> list[str]:
    """A row a result, intervals of 95% in brackets."""
    heads = [title for title, _, _ in COLUMNS.values()]
    rows = [["build", "perplexity", *heads]]
    for label, result in results:
        perplexity = result.get("build_perplexity")
        rows.append([label, ABSENT if perplexity is None else f"{perplexity:.2f}", *cells(result)])
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return [lines[0], "|" + "---|" * len(rows[0]), *lines[1:]]
