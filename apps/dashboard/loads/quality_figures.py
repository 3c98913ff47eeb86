"""What the pages of quality draw: speed beside loss, figures with their intervals, answers side by side."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from apps.dashboard.loads.plots import Line, Plot, plot, rows_of
from apps.loadtests.domain.quality_words import ABSENT, estimate
from apps.loadtests.models import QualityRun
from apps.loadtests.quality_gate import Verdict
from apps.loadtests.states import SUCCEEDED

# Figure -> title, unit, digits, factor, what is better.
FIGURES: dict[str, tuple[Any, Any, int, float, Any]] = {
    "perplexity_ratio": (gettext_lazy("Perplexity ratio"), "", 4, 1.0, gettext_lazy("1 is no loss")),
    "divergence": (
        gettext_lazy("KL divergence"),
        gettext_lazy("nats a token"),
        5,
        1.0,
        gettext_lazy("0 is no loss"),
    ),
    "top1": (
        gettext_lazy("Top-1 agreement"),
        "%",
        1,
        100.0,
        gettext_lazy("tokens with the same likeliest successor"),
    ),
    "agreement": (
        gettext_lazy("Greedy agreement"),
        "%",
        0,
        100.0,
        gettext_lazy("golden prompts answered the same"),
    ),
    "agreed_part": (
        gettext_lazy("Same part of an answer"),
        "%",
        0,
        100.0,
        gettext_lazy("up to where they part"),
    ),
    "speed_ratio": (gettext_lazy("Speed"), gettext_lazy("times"), 2, 1.0, gettext_lazy("above 1 is faster")),
}
THRESHOLDS = {
    "max_perplexity_ratio": "perplexity_ratio",
    "max_divergence": "divergence",
    "min_top1": "top1",
    "min_agreement": "agreement",
}


def figures(result: Mapping[str, Any], verdict: Verdict | None = None) -> list[dict[str, Any]]:
    """A row a figure: value with its interval, and what the gate says of it."""
    failing = {THRESHOLDS[each.threshold]: each for each in verdict.failing} if verdict else {}
    asked = _asked(verdict)
    return [
        {
            "title": title,
            "unit": unit,
            "value": estimate(result["figures"].get(name), digits, factor),
            "hint": hint,
            "bound": f"{asked[name] * factor:g}" if name in asked else "",
            "word": _("not kept") if name in failing else _("kept") if name in asked else "",
            "tone": "bad" if name in failing else "ok",
        }
        for name, (title, unit, digits, factor, hint) in FIGURES.items()
    ]


def _asked(verdict: Verdict | None) -> dict[str, float]:
    if verdict is None or verdict.gate is None:
        return {}
    bounds = {figure: getattr(verdict.gate.thresholds, name) for name, figure in THRESHOLDS.items()}
    return {figure: bound for figure, bound in bounds.items() if bound is not None}


def speed_and_loss(runs: Iterable[QualityRun]) -> Plot | None:
    """KL divergence over speed, a point an engine with the intervals of both; None where nothing has both."""
    points, crosses = [], []
    for run in newest(runs):
        told = (run.result or {}).get("figures") or {}
        speed, loss = told.get("speed_ratio"), told.get("divergence")
        if speed is None or loss is None or run.engine is None:
            continue
        label = f"{run.engine.quantization} #{run.number}"
        x, y = speed["value"], loss["value"]
        points.append(Line(label, [(x, y)], marks=True))
        low, high = (speed[edge] if speed[edge] is not None else x for edge in ("low", "high"))
        least, most = (loss[edge] if loss[edge] is not None else y for edge in ("low", "high"))
        crosses.append(Line(label, [(low, y), (high, y), (x, None), (x, least), (x, most)]))
    if not points:
        return None
    at = [x for line in crosses for x, _y in line.points]
    room = max(0.05, (max(at) - min(at)) * 0.1)
    drawn = plot(
        "speed-loss",
        _("Speed gained beside quality lost"),
        _("KL divergence, nats a token"),
        _("times as fast as its source, one request at a time"),
        [*points, *crosses],
        x_from=max(0.0, min([*at, 1.0]) - room),
        x_to=max([*at, 1.0]) + room,
    )
    count = len(points)
    merged = [{**drawn.lines[index], "path": drawn.lines[count + index]["path"]} for index in range(count)]
    return replace(drawn, lines=merged, rows=rows_of(points))


def newest(runs: Iterable[QualityRun]) -> list[QualityRun]:
    """The newest result of each engine against each source, in the order of the numbers."""
    found: dict[tuple[int | None, int | None], QualityRun] = {}
    for run in sorted(runs, key=lambda row: row.number):
        if run.state == SUCCEEDED and run.method == QualityRun.Method.LOGITS:
            found[run.engine_id, run.baseline_id] = run
    return sorted(found.values(), key=lambda row: row.number)


def answers(result: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Golden prompts, the worst first: both answers, cut where they part."""
    found = []
    for row in result.get("answers") or []:
        shared = _shared(row["source"], row["build"])
        found.append(
            {
                "name": row["name"],
                "prompt": row["prompt"],
                "same": row["same"],
                "share": f"{row['share'] * 100:.0f}",
                "shared": row["source"][:shared],
                "source": row["source"][shared:],
                "build": row["build"][shared:],
            }
        )
    return found


def _shared(one: str, other: str) -> int:
    """Characters that are the same, back to the end of the last whole word."""
    count = 0
    for left, right in zip(one, other, strict=False):
        if left != right:
            break
        count += 1
    if count == len(one) == len(other):
        return count
    return one.rfind(" ", 0, count) + 1


def perplexities(result: Mapping[str, Any]) -> str:
    """Both perplexities in words."""
    source, build = result.get("source_perplexity"), result.get("build_perplexity")
    if source is None or build is None:
        return ABSENT
    return _("%(build).2f, source %(source).2f") % {"build": build, "source": source}
