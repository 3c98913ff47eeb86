"""The batching study as data: which configurations, which load, and what its table says in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from apps.loadtests.domain.compare import percent, signed

# Time that dynamic batching waits for company in the plain study: a few steps of the engine.
DYNAMIC_DELAY_MICROSECONDS = 20_000
DELAYS_MS = (0, 1, 5, 10, 20)
# With the strategies and the delays these are the 12 configurations that a comparison takes.
MOST_SIZES = 4
# Answers of mixed lengths are what batches that end together suffer from.
LEAST_TOKENS, MOST_TOKENS = 8, 128
ABSENT = "\u2013"
COLUMNS = (
    ("requests/s", "requests_per_second", 2, 1.0),
    ("tokens/s", "output_tokens_per_second", 1, 1.0),
    ("latency mean (s)", "latency_mean_ms", 2, 1e-3),
    ("latency p99 (s)", "latency_p99_ms", 2, 1e-3),
    ("TTFT p50 (ms)", "ttft_p50_ms", 0, 1.0),
    ("TTFT p99 (ms)", "ttft_p99_ms", 0, 1.0),
)


@dataclass(frozen=True, slots=True)
class ArmSettings:
    """One configuration of the study."""

    label: str
    strategy: str
    max_batch_size: int
    delay_microseconds: int

    def as_dict(self) -> dict[str, Any]:
        """JSON form."""
        return asdict(self)


def arms_of(slots: int, full: bool) -> list[ArmSettings]:
    """None, static, dynamic and in-flight at `slots`; with `full` also delays of dynamic and batch sizes of
    in-flight.

    The first, none, is what the others are compared with.
    """
    arms = [
        ArmSettings("none", "none", slots, 0),
        ArmSettings("static", "static", slots, 0),
        ArmSettings("dynamic", "dynamic", slots, DYNAMIC_DELAY_MICROSECONDS),
        ArmSettings("inflight", "inflight", slots, 0),
    ]
    if not full:
        return arms
    for delay in DELAYS_MS:
        if delay * 1000 != DYNAMIC_DELAY_MICROSECONDS:
            arms.append(ArmSettings(f"dynamic {delay} ms", "dynamic", slots, delay * 1000))
    arms += [ArmSettings(f"inflight batch {size}", "inflight", size, 0) for size in batch_sizes(slots)]
    return arms


def batch_sizes(slots: int) -> list[int]:
    """Powers of two below `slots`; where they are more than MOST_SIZES, so many of them spread from 1 to the last."""
    sizes = [1 << power for power in range((slots - 1).bit_length())]
    if len(sizes) <= MOST_SIZES:
        return sizes
    gap = (len(sizes) - 1) / (MOST_SIZES - 1)
    return [sizes[round(place * gap)] for place in range(MOST_SIZES)]


def scenario_of(target: str, slots: int, warm_up: float = 6.0, seconds: float = 24.0) -> dict[str, Any]:
    """A closed loop with a client for each slot, answers of mixed lengths; a fixed time, so that turns are alike."""
    return {
        "target": target,
        "via": "http",
        "load": {"mode": "closed", "concurrency": [slots]},
        "prompts": {
            "input": {"distribution": "fixed", "mean": 12.0},
            "output": {"distribution": "uniform", "least": LEAST_TOKENS, "most": MOST_TOKENS},
        },
        "timing": {
            "warm_up_seconds": warm_up,
            "seconds": seconds,
            "most_seconds": 2 * seconds,
            "requests": 12,
            "until_steady": False,
        },
    }


def explain(verdict: Mapping[str, Any], baseline: str = "none") -> list[str]:
    """What was seen, sentence by sentence, out of a comparison's plain values; never what is usually claimed."""
    arms = {arm["label"]: arm for arm in verdict["arms"]}
    said = []
    for label in ("static", "dynamic", "inflight"):
        if label in arms:
            said.append(f"Against {baseline}, {label}: {arms[label]['verdict']}.")
    said += _order(arms)
    return said


def _order(arms: Mapping[str, Any]) -> list[str]:
    """The orders that the field expects, as they came out: tokens/s and the slowest answers."""
    name = "output_tokens_per_second"
    told = {label: arm["differences"].get(name) for label, arm in arms.items()}
    found = []
    inflight = told.get("inflight")
    for other in ("dynamic", "static"):
        item = told.get(other)
        if inflight is None or item is None:
            continue
        if inflight["low"] > item["high"]:
            found.append(f"In-flight makes more tokens/s than {other}: their intervals do not overlap.")
        elif inflight["high"] < item["low"]:
            found.append(f"In-flight makes fewer tokens/s than {other} here: their intervals do not overlap.")
        else:
            found.append(f"In-flight and {other} cannot be told apart in tokens/s: their intervals overlap.")
    tails = {label: arm["differences"].get("latency_p99_ms") for label, arm in arms.items()}
    if tails.get("inflight") and tails.get("static"):
        lower = tails["inflight"]["value"] < tails["static"]["value"]
        apart = (
            tails["inflight"]["high"] < tails["static"]["low"]
            or tails["inflight"]["low"] > tails["static"]["high"]
        )
        word = "lower" if lower else "higher"
        sure = "their intervals do not overlap" if apart else "their intervals overlap, so that is not sure"
        found.append(f"The slowest answers (p99) are {word} with in-flight than with static; {sure}.")
    return found


def table(verdict: Mapping[str, Any]) -> list[str]:
    """Markdown: a line an arm, each figure the geometric mean of the repeats, tokens/s with its change and
    interval."""
    head = ["strategy", *(title for title, *_ in COLUMNS), "tokens/s against none"]
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    arms: Sequence[Mapping[str, Any]] = verdict["arms"]
    base = {name: item["baseline"] for arm in arms[:1] for name, item in arm["differences"].items()}
    lines.append(_line(str(verdict["baseline"]), base, ""))
    for arm in arms:
        values = {name: item["value"] for name, item in arm["differences"].items()}
        tokens = arm["differences"].get("output_tokens_per_second")
        change = (
            f"{signed(tokens['ratio'])} ({percent(tokens['low'])} to {percent(tokens['high'])})"
            if tokens
            else ABSENT
        )
        lines.append(_line(arm["label"], values, change))
    return lines


def _line(label: str, values: Mapping[str, float], change: str) -> str:
    cells = [
        ABSENT if values.get(name) is None else f"{values[name] * scale:.{digits}f}"
        for _, name, digits, scale in COLUMNS
    ]
    return "| " + " | ".join([label, *cells, change]) + " |"
