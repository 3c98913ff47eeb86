"""The tables of the batching benchmark."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from apps.serving.domain.batching import STRATEGIES, Strategy

COLUMNS = (
    ("requests/s", "requests_per_second", "{:.2f}"),
    ("tokens/s", "tokens_per_second", "{:.1f}"),
    ("latency mean", "latency_mean", "{:.2f} s"),
    ("latency p99", "latency_p99", "{:.2f} s"),
    ("TTFT p50", "ttft_p50", "{:.2f} s"),
    ("TTFT p99", "ttft_p99", "{:.2f} s"),
    ("ITL p50", "itl_p50", "{:.3f} s"),
    ("ITL p99", "itl_p99", "{:.3f} s"),
)


@dataclass(frozen=True, slots=True)
class Turn:
    """Figures of one turn; seconds, tokens. `batches` maps the upper bound of a bucket to its share of the steps.

    `arrivals` is the rate of an open loop in requests/s, None in the closed one; `unfinished` counts what had no
    answer when the turn ended. `others` is the share of the machine that went to programs that are no part of the
    benchmark.
    """

    strategy: Strategy
    requests_per_second: float
    tokens_per_second: float
    latency_mean: float
    latency_p99: float
    ttft_p50: float
    ttft_p99: float
    itl_p50: float
    itl_p99: float
    answers: int
    batches: dict[str, float]
    others: float = 0.0
    arrivals: float | None = None
    unfinished: int = 0


def report(turns: Sequence[Turn], share: float) -> str:
    """Markdown: the closed loop with its ratios and batches, then the arrivals."""
    closed = [turn for turn in turns if turn.arrivals is None]
    arrived = [turn for turn in turns if turn.arrivals is not None]
    lines = ["Closed loop:", "", *_table(closed), "", *_ratios(closed), "", *_batches(closed)]
    if arrived:
        rates = ", ".join(f"{rate:.2f}" for rate in sorted({turn.arrivals or 0.0 for turn in arrived}))
        lines += [
            "",
            f"Poisson arrivals at {share:.0%} of in-flight's requests/s ({rates}); latency from the moment a request "
            "was due, of those answered within twice the time:",
            "",
            *_table(arrived, unfinished=True),
        ]
    return "\n".join(lines)


def ratios(closed: Sequence[Turn], strategy: Strategy) -> list[float]:
    """Tokens per second of in-flight over a strategy's, repeat by repeat: the machine's other load hits both."""
    ours = [turn.tokens_per_second for turn in closed if turn.strategy == "inflight"]
    theirs = [turn.tokens_per_second for turn in closed if turn.strategy == strategy]
    return [mine / other for mine, other in zip(ours, theirs, strict=True)] if ours and theirs else []


def _table(turns: Sequence[Turn], unfinished: bool = False) -> list[str]:
    head = [title for title, _, _ in COLUMNS] + (["unfinished"] if unfinished else [])
    lines = ["| strategy | " + " | ".join(head) + " |", "|---" * (len(head) + 1) + "|"]
    for strategy, own in _by_strategy(turns):
        cells = [
            form.format(statistics.median(getattr(turn, name) for turn in own)) for _, name, form in COLUMNS
        ]
        if unfinished:
            cells.append(f"{statistics.median(turn.unfinished for turn in own):.0f}")
        lines.append(f"| {strategy} | " + " | ".join(cells) + " |")
    return lines


def _ratios(closed: Sequence[Turn]) -> list[str]:
    return [
        f"In-flight makes {statistics.median(found):.2f} times the tokens of {strategy} "
        f"(repeats: {', '.join(f'{ratio:.2f}' for ratio in found)})."
        for strategy in STRATEGIES
        if strategy != "inflight" and (found := ratios(closed, strategy))
    ]


def _batches(turns: Sequence[Turn]) -> list[str]:
    seen = {bound for turn in turns for bound, share in turn.batches.items() if share >= 0.005}
    bounds = sorted(seen, key=float)
    lines = [
        "Sequences in one engine step, share of the steps:",
        "",
        "| strategy | " + " | ".join(f"≤ {bound}" for bound in bounds) + " |",
        "|---" * (len(bounds) + 1) + "|",
    ]
    for strategy, own in _by_strategy(turns):
        cells = [f"{statistics.mean(turn.batches.get(bound, 0.0) for turn in own):.0%}" for bound in bounds]
        lines.append(f"| {strategy} | " + " | ".join(cells) + " |")
    return lines


def _by_strategy(turns: Sequence[Turn]) -> list[tuple[Strategy, list[Turn]]]:
    found = [(strategy, [turn for turn in turns if turn.strategy == strategy]) for strategy in STRATEGIES]
    return [(strategy, own) for strategy, own in found if own]
