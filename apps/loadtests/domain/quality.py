"""How much of a model is lost in a build: out of windows of a text and of answers to golden prompts.

Over windows of one text, both engines given the same tokens: the perplexity ratio exp(mean(nll_build - nll_source)),
the Kullback-Leibler divergence of the build's next-token distribution from the source's (nats a token), and the share
of tokens whose likeliest successor is the same. Tokens of a window hang together, so the windows are the repeats: the
intervals are Student's t over them. Shares of answers that are the same have Wilson's interval.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from apps.loadtests.domain.student import t_quantile

LEVEL = 0.95
# Answers that are shown side by side, the worst first.
WORST = 8
Method = Literal["logits", "answers"]


class UnreadableRows(ValueError):
    """A line of what an attempt wrote is not what it should be."""


@dataclass(frozen=True, slots=True)
class TextWindow:
    """Sums over the `tokens` scored tokens of one window: negative log-likelihoods and divergence in nats, and how
    often the likeliest token was the same. `most` is the largest divergence of a token, `text` the window's text."""

    index: int
    tokens: int
    source_nll: float
    build_nll: float
    divergence: float
    most: float
    same: int
    text: str = ""


@dataclass(frozen=True, slots=True)
class Answered:
    """One golden prompt, answered greedily by both. `common` of `length` units (tokens, or characters where nobody
    knows tokens) are the same before the first that differs. Seconds are of generating, null where not measured."""

    name: str
    prompt: str
    source: str
    build: str
    common: int
    length: int
    same: bool
    source_tokens: int | None = None
    build_tokens: int | None = None
    source_seconds: float | None = None
    build_seconds: float | None = None

    @property
    def share(self) -> float:
        """How much of the answer is the same, 0 to 1."""
        return 1.0 if self.same else self.common / max(1, self.length)


@dataclass(frozen=True, slots=True)
class Estimate:
    """A figure with its 95% interval; `low` and `high` null where there are too few repeats for one."""

    value: float
    low: float | None
    high: float | None
    repeats: int


@dataclass(frozen=True, slots=True)
class Thresholds:
    """What a build must keep. Null: not looked at. Ratios and divergence at most, shares at least."""

    max_perplexity_ratio: float | None = None
    max_divergence: float | None = None
    min_top1: float | None = None
    min_agreement: float | None = None

    @property
    def given(self) -> bool:
        """Whether anything is asked."""
        return any(value is not None for value in asdict(self).values())


# Threshold -> (figure, whether it is an upper bound, what to call it).
BOUNDS: dict[str, tuple[str, bool, str]] = {
    "max_perplexity_ratio": ("perplexity_ratio", True, "Perplexity ratio"),
    "max_divergence": ("divergence", True, "KL divergence (nats a token)"),
    "min_top1": ("top1", False, "Top-1 agreement"),
    "min_agreement": ("agreement", False, "Greedy agreement"),
}


@dataclass(frozen=True, slots=True)
class Failing:
    """A threshold that is not shown to be kept. `measured` null: the figure was not measured."""

    threshold: str
    bound: float
    measured: float | None
    worst: float | None
    sentence: str


def read_rows(text: str) -> tuple[list[TextWindow], list[Answered]]:
    """Rows of a file of JSON lines, {"window": {...}} or {"answer": {...}}; a last line that is cut off is left out.

    Of two rows for the same window or prompt the later counts. Raises UnreadableRows naming the line.
    """
    windows: dict[int, TextWindow] = {}
    answers: dict[str, Answered] = {}
    lines = text.split("\n")
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            said = json.loads(line)
        except ValueError as error:
            if number == len(lines):
                break
            raise UnreadableRows(f"Line {number} is no JSON: {error}.") from error
        try:
            if "window" in said:
                window = _window(said["window"])
                windows[window.index] = window
            elif "answer" in said:
                answer = Answered(**said["answer"])
                answers[answer.name] = answer
        except (TypeError, ValueError, KeyError) as error:
            raise UnreadableRows(f"Line {number} is no row of a quality run: {error}.") from error
    return [windows[index] for index in sorted(windows)], list(answers.values())


def _window(said: Mapping[str, Any]) -> TextWindow:
    found = TextWindow(**said)
    sums = (found.source_nll, found.build_nll, found.divergence, found.most)
    if found.tokens < 1 or not 0 <= found.same <= found.tokens or not all(map(math.isfinite, sums)):
        raise ValueError(f"window {found.index} has figures that cannot be")
    return found


def summary(windows: Sequence[TextWindow], answers: Sequence[Answered]) -> dict[str, Any]:
    """The result of a run as plain values: `figures` (name -> estimate, null where nothing tells), the source's and
    the build's perplexity, the worst answers and the worst windows."""
    figures: dict[str, Estimate | None] = {
        "perplexity_ratio": _ratio([(row.build_nll - row.source_nll) / row.tokens for row in windows]),
        "divergence": _mean([row.divergence / row.tokens for row in windows], least=0.0),
        "top1": _mean([row.same / row.tokens for row in windows], least=0.0, most=1.0),
        "agreement": _share([row.same for row in answers]),
        "agreed_part": _mean([row.share for row in answers], least=0.0, most=1.0),
        "speed_ratio": _ratio(_speeds(answers)),
    }
    tokens = sum(row.tokens for row in windows)
    return {
        "figures": {name: asdict(found) if found else None for name, found in figures.items()},
        "tokens": tokens,
        "windows": len(windows),
        "prompts": len(answers),
        "source_perplexity": _perplexity(sum(row.source_nll for row in windows), tokens),
        "build_perplexity": _perplexity(sum(row.build_nll for row in windows), tokens),
        "most_divergence": max((row.most for row in windows), default=None),
        "source_tokens_per_second": _rate([(row.source_tokens, row.source_seconds) for row in answers]),
        "build_tokens_per_second": _rate([(row.build_tokens, row.build_seconds) for row in answers]),
        "answers": [_shown(row) for row in sorted(answers, key=lambda row: row.share)[:WORST]],
        "passages": [
            {"index": row.index, "divergence": row.divergence / row.tokens, "text": row.text}
            for row in sorted(windows, key=lambda row: -row.divergence / row.tokens)[:3]
        ],
    }


def judge(result: Mapping[str, Any] | None, thresholds: Thresholds) -> list[Failing]:
    """Thresholds that a result does not show to be kept: the whole 95% interval must lie on the good side.

    Without an interval the figure itself is judged. An empty list: all are kept.
    """
    figures = (result or {}).get("figures") or {}
    found = []
    for name, (figure, upper, title) in BOUNDS.items():
        bound = getattr(thresholds, name)
        if bound is None:
            continue
        told = figures.get(figure)
        if told is None:
            said = f"{title} was not measured; at {'most' if upper else 'least'} {bound:g} is asked."
            found.append(Failing(name, bound, None, None, said))
            continue
        edge = told["high" if upper else "low"]
        worst = told["value"] if edge is None else edge
        if worst > bound if upper else worst < bound:
            found.append(Failing(name, bound, told["value"], worst, _sentence(title, told, bound, upper)))
    return found


def _sentence(title: str, told: Mapping[str, Any], bound: float, upper: bool) -> str:
    broken = told["value"] > bound if upper else told["value"] < bound
    interval = "" if told["low"] is None else f" ({told['low']:.3g} to {told['high']:.3g})"
    asked = f"at {'most' if upper else 'least'} {bound:g}"
    more = "" if broken else " The figure keeps it, its interval does not: more text would narrow it."
    return f"{title} is {told['value']:.3g}{interval}; {asked} is asked.{more}"


def common_prefix(one: Sequence[Any], other: Sequence[Any]) -> int:
    """How many leading items are equal."""
    count = 0
    for left, right in zip(one, other, strict=False):
        if left != right:
            break
        count += 1
    return count


def _shown(row: Answered) -> dict[str, Any]:
    return {**asdict(row), "share": row.share}


def _mean(values: Sequence[float], least: float = -math.inf, most: float = math.inf) -> Estimate | None:
    if not values:
        return None
    count, mean = len(values), math.fsum(values) / len(values)
    if count < 2:
        return Estimate(mean, None, None, count)
    deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (count - 1))
    reach = t_quantile(LEVEL, count - 1) * deviation / math.sqrt(count)
    return Estimate(mean, max(least, mean - reach), min(most, mean + reach), count)


def _ratio(logs: Sequence[float]) -> Estimate | None:
    found = _mean(logs)
    if found is None:
        return None
    low, high = (None if edge is None else math.exp(edge) for edge in (found.low, found.high))
    return Estimate(math.exp(found.value), low, high, found.repeats)


def _share(good: Sequence[bool]) -> Estimate | None:
    """Wilson's interval of a share."""
    if not good:
        return None
    count, z = len(good), 1.959964
    share = sum(good) / count
    middle = (share + z * z / (2 * count)) / (1 + z * z / count)
    reach = z * math.sqrt(share * (1 - share) / count + z * z / (4 * count * count)) / (1 + z * z / count)
    return Estimate(share, max(0.0, middle - reach), min(1.0, middle + reach), count)


def _speeds(answers: Iterable[Answered]) -> list[float]:
    """Logarithms of how many times as fast the build generated each answer."""
    found = []
    for row in answers:
        if row.source_tokens and row.build_tokens and row.source_seconds and row.build_seconds:
            build, source = row.build_tokens / row.build_seconds, row.source_tokens / row.source_seconds
            found.append(math.log(build / source))
    return found


def _rate(pairs: Sequence[tuple[int | None, float | None]]) -> float | None:
    known = [(tokens, seconds) for tokens, seconds in pairs if tokens and seconds]
    return sum(tokens for tokens, _ in known) / sum(seconds for _, seconds in known) if known else None


def _perplexity(nll: float, tokens: int) -> float | None:
    return math.exp(nll / tokens) if tokens else None
