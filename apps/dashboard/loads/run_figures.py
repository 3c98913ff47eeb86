"""Plots and tables of runs: their seconds, the engine's own figures beneath, distributions, curves over the load."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from apps.dashboard import formats
from apps.dashboard.loads.plots import Line, Plot, plot
from apps.loadtests import generators
from apps.loadtests.models import LoadRun
from apps.telemetry import history
from apps.telemetry.history import Scope

ENGINE_KEYS = ("queue_depth", "batch_size_mean", "kv_use", "cpu_use", "gpu_use")
# Rows of a run's table: key of the figures, title, unit, digits.
FIGURES: tuple[tuple[str, Any, str], ...] = (
    ("requests_per_second", gettext_lazy("Requests"), "1/s"),
    ("output_tokens_per_second", gettext_lazy("Output tokens"), "1/s"),
    ("goodput_per_second", gettext_lazy("Goodput"), "1/s"),
    ("ttft_mean_ms", gettext_lazy("TTFT mean"), "ms"),
    ("ttft_p50_ms", "TTFT p50", "ms"),
    ("ttft_p99_ms", "TTFT p99", "ms"),
    ("tpot_mean_ms", gettext_lazy("TPOT mean"), "ms"),
    ("tpot_p99_ms", "TPOT p99", "ms"),
    ("itl_p50_ms", "ITL p50", "ms"),
    ("itl_p99_ms", "ITL p99", "ms"),
    ("chunk_gap_p99_ms", gettext_lazy("Gap of messages p99"), "ms"),
    ("latency_mean_ms", gettext_lazy("Latency mean"), "ms"),
    ("latency_p50_ms", gettext_lazy("Latency p50"), "ms"),
    ("latency_p99_ms", gettext_lazy("Latency p99"), "ms"),
    ("service_latency_p99_ms", gettext_lazy("Latency p99 since sending"), "ms"),
    ("output_tokens_mean", gettext_lazy("Tokens of an answer"), ""),
    ("prompt_tokens_mean", gettext_lazy("Tokens of a prompt"), ""),
    ("completed", gettext_lazy("Answered"), ""),
    ("errors", gettext_lazy("Errors"), ""),
    ("rejected", gettext_lazy("Refused"), ""),
    ("unfinished", gettext_lazy("Unfinished"), ""),
)


def steps_of(row: LoadRun) -> list[dict[str, Any]]:
    """The measured steps of a run."""
    return list((row.summary or {}).get("steps") or [])


def table(row: LoadRun) -> dict[str, Any]:
    """A column a step, a row a figure."""
    steps = steps_of(row)
    return {
        "head": [load_text(row, step["value"]) for step in steps],
        "rows": [
            {
                "title": title,
                "unit": unit,
                "cells": [formats.significant(step["figures"].get(key)) for step in steps],
            }
            for key, title, unit in FIGURES
            if any(step["figures"].get(key) is not None for step in steps)
        ],
    }


def beside(row: LoadRun) -> dict[str, Any] | None:
    """Our figures and AIPerf's under the same load, as the page shows them; None before there are both."""
    found = generators.beside(row)
    if found is None:
        return None
    titles = {key: (title, unit) for key, title, unit in FIGURES}
    return {
        **found,
        "steps": [
            {
                "load": load_text(row, step["value"]),
                "rows": [
                    {
                        "title": titles[line["figure"]][0],
                        "unit": titles[line["figure"]][1],
                        "ours": formats.significant(line["ours"]),
                        "aiperf": formats.significant(line["aiperf"]),
                        "apart": None if line["apart"] is None else f"{line['apart']:+.1%}",
                    }
                    for line in step["rows"]
                    if line["figure"] in titles
                ],
            }
            for step in found["steps"]
        ],
    }


def load_text(row: LoadRun, value: float) -> str:
    """What a step's load was."""
    mode = row.scenario["load"]["mode"]
    if mode == "closed":
        return _("%(n)s clients") % {"n": f"{value:.0f}"}
    return _("%(n)s requests/s") % {"n": f"{value:g}"} if mode == "open" else _("trace")


def seconds(row: LoadRun) -> list[Plot]:
    """The run second by second; measured time is shaded. Its engine's own figures stand beneath, on the same axis."""
    points = list(row.series)
    if not points:
        return []
    end = max(float(point["at"]) for point in points)
    bands = [(step["begin"], step["end"]) for step in steps_of(row)] or _warm(points)

    def line(name: Any, key: str) -> Line:
        return Line(str(name), [(float(point["at"]), point.get(key)) for point in points])

    common: dict[str, Any] = {"bands": bands, "x_from": 0.0, "x_to": end}
    axis = _("seconds since the run began")
    found = [
        plot("tokens", _("Output tokens"), _("per second"), axis, [line(_("generated"), "tokens")], **common),
        plot(
            "times",
            _("TTFT and latency"),
            "ms",
            axis,
            [
                line(_("TTFT p50"), "ttft_p50_ms"),
                line(_("slowest TTFT"), "ttft_most_ms"),
                line(_("mean latency"), "latency_mean_ms"),
            ],
            **common,
        ),
        plot(
            "requests",
            _("Requests"),
            "",
            axis,
            [
                line(_("under way"), "running"),
                line(_("begun each second"), "started"),
                line(_("failed each second"), "errors"),
            ],
            **common,
        ),
    ]
    return found + engine(row, end, bands)


def _warm(points: Sequence[dict[str, Any]]) -> list[tuple[float, float]]:
    warm = [float(point["at"]) for point in points if point.get("warm")]
    return [(warm[0], warm[-1])] if warm else []


def engine(row: LoadRun, end: float, bands: Sequence[tuple[float, float]]) -> list[Plot]:
    """What the engine said of itself in that time; empty where telemetry has nothing of it."""
    if row.deployment_id is None or row.started_at is None:
        return []
    begin = float((row.summary or {}).get("began") or row.started_at.timestamp())
    keys = _known()
    found = history.series(Scope("deployment", row.deployment_id), begin, begin + end + 2, keys=keys)

    def points(key: str, scale: float = 1.0) -> list[tuple[float, float | None]]:
        told: list[dict[str, Any]] = [dict(point) for point in found.points]
        return [
            (round(point["at"] - begin, 1), None if point.get(key) is None else point[key] * scale)
            for point in told
            if 0 <= point["at"] - begin <= end
        ]

    titles = {
        "batch_size_mean": (_("Batch size as executed"), _("sequences"), 1.0),
        "kv_use": (_("KV cache in use"), "%", 100.0),
        "cpu_use": ("CPU", "%", 100.0),
        "gpu_use": ("GPU", "%", 100.0),
    }
    drawn = [
        plot(
            f"engine-{key}",
            title,
            unit,
            _("seconds since the run began"),
            [Line(_("the engine's own"), points(key, scale))],
            bands=bands,
            x_from=0.0,
            x_to=end,
        )
        for key, (title, unit, scale) in titles.items()
        if key in keys
    ]
    return [each for each in drawn if not each.empty]


def _known() -> list[str]:
    from apps.telemetry.domain.vocabulary import BY_NAME

    return [key for key in ENGINE_KEYS if key in BY_NAME]


def distributions(arms: Sequence[tuple[str, Sequence[LoadRun]]]) -> list[Plot]:
    """CDFs of TTFT, TPOT and latency, a line an arm: the mean over its runs of each quantile, first step."""
    titles = {"ttft": "TTFT", "tpot": "TPOT", "latency": _("Latency")}
    found = []
    for key, title in titles.items():
        lines = []
        for label, runs in arms:
            given = [
                steps[0]["cdf"][key] for run in runs if (steps := steps_of(run)) and key in steps[0]["cdf"]
            ]
            if given:
                means = [sum(values) / len(values) for values in zip(*given, strict=True)]
                lines.append(Line(label, [(value, index * 2.0) for index, value in enumerate(means)]))
        if lines:
            found.append(plot(f"cdf-{key}", title, _("% of requests"), "ms", lines, x_from=0.0, top=100.0))
    return found


def curves(arms: Sequence[tuple[str, Sequence[LoadRun]]], limit: float | None = None) -> list[Plot]:
    """Latency against throughput: a point a step; empty where no run has several loads."""
    if not any(len(steps_of(run)) > 1 for _label, runs in arms for run in runs):
        return []
    return [
        plot(
            f"curve-{key}",
            title,
            "ms",
            _("output tokens per second"),
            [
                Line(f"{label} #{run.number}" if len(runs) > 1 else label, _curve(run, key), marks=True)
                for label, runs in arms
                for run in runs
            ],
            x_from=0.0,
            limit=limit if key == "ttft_p99_ms" else None,
        )
        for key, title in (("ttft_p99_ms", "TTFT p99"), ("latency_p99_ms", _("Latency p99")))
    ]


def _curve(run: LoadRun, key: str) -> list[tuple[float, float | None]]:
    found = [
        (step["figures"]["output_tokens_per_second"], step["figures"].get(key))
        for step in steps_of(run)
        if step["figures"].get("output_tokens_per_second") is not None
    ]
    return sorted(found)
