"""Figures for the first paint, as plain Plotly JSON. static/js/pieces/charts.js draws and extends them.

A figure carries no colours: traces name tokens, which the browser resolves, so that one figure serves both themes.
Samples are those of docs/architecture.md; a second without a sample, or a value that is null, is a gap.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from apps.dashboard import formats

Samples = Sequence[Mapping[str, Any]]
Row = list[float | None]
# Seconds shown -> seconds per point: at most 600 points per trace.
RANGES: dict[str, tuple[int, int]] = {"3m": (180, 1), "5m": (300, 1), "15m": (900, 2), "60m": (3600, 6)}
DEFAULT_RANGE = "5m"
# Beside a conversation, where an answer of a few seconds shall be seen as a band.
CONVERSATION_RANGE = "3m"
# Gap rows come on top of one row for each step.
SPARE_POINTS = 20
# A step may be this much late before the line is broken.
_GAP_STEPS = 1.8


@dataclass(frozen=True, slots=True)
class Line:
    """One trace: the sample value that it shows, times `scale`, in the colour of a chart token."""

    key: str
    name: str | Promise
    color: str = "--chart-1"
    scale: float = 1.0


@dataclass(frozen=True, slots=True)
class Panel:
    """One chart: title, unit and its lines. `most` fixes the top of the axis, for shares."""

    id: str
    title: str | Promise
    unit: str | Promise
    lines: tuple[Line, ...]
    most: float | None = None


_MIB = 1 / 1048576
TOKENS = Panel(
    "tokens",
    gettext_lazy("Tokens"),
    gettext_lazy("per second"),
    (
        Line("generated_tokens_per_second", gettext_lazy("generated")),
        Line("prompt_tokens_per_second", gettext_lazy("prompt"), "--chart-8"),
    ),
)
GENERATED = Panel("generated", gettext_lazy("Tokens"), gettext_lazy("per second"), TOKENS.lines[:1])
REQUESTS = Panel(
    "requests",
    gettext_lazy("Requests"),
    gettext_lazy("per second"),
    (Line("requests_per_second", gettext_lazy("finished")),),
)
QUEUE = Panel(
    "queue",
    gettext_lazy("Requests"),
    gettext_lazy("now"),
    (
        Line("requests_running", gettext_lazy("running"), "--chart-3"),
        Line("requests_waiting", gettext_lazy("waiting"), "--chart-2"),
    ),
)
TTFT = Panel(
    "ttft",
    gettext_lazy("TTFT"),
    "ms",
    (Line("ttft_p50_ms", "p50"), Line("ttft_p99_ms", "p99", "--chart-4")),
)
ITL = Panel(
    "itl",
    gettext_lazy("Inter-token latency"),
    "ms",
    (Line("itl_p50_ms", "p50"), Line("itl_p99_ms", "p99", "--chart-4")),
)
KV = Panel(
    "kv",
    gettext_lazy("KV cache in use"),
    "%",
    (Line("kv_use", gettext_lazy("used"), "--chart-6", 100.0),),
    most=100,
)
CPU = Panel("cpu", "CPU", "%", (Line("cpu_use", gettext_lazy("in use"), "--chart-5", 100.0),), most=100)
GPU = Panel("gpu", "GPU", "%", (Line("gpu_use", gettext_lazy("in use"), "--chart-5", 100.0),), most=100)
MEMORY_CPU = Panel(
    "memory", gettext_lazy("Memory"), "MiB", (Line("rss_bytes", gettext_lazy("resident"), "--chart-7", _MIB),)
)
MEMORY_GPU = Panel(
    "memory",
    gettext_lazy("GPU memory"),
    "MiB",
    (Line("gpu_memory_used_bytes", gettext_lazy("used"), "--chart-7", _MIB),),
)


def live_panels(gpu: bool) -> tuple[Panel, ...]:
    """Charts of a deployment's page."""
    return (TOKENS, REQUESTS, TTFT, ITL, QUEUE, KV, GPU if gpu else CPU, MEMORY_GPU if gpu else MEMORY_CPU)


def playground_panels(gpu: bool) -> tuple[Panel, ...]:
    """Rows beside a conversation, over one time axis."""
    return (GENERATED, QUEUE, TTFT, KV, GPU if gpu else CPU)


def rows(samples: Samples, lines: Sequence[Line], window: int, step: int, now: float) -> list[Row]:
    """Rows of [epoch seconds, value...], oldest first, with a row of nulls where seconds are missing."""
    found: list[Row] = []
    for at, group in _steps(samples, window, step, now):
        row: Row = [at, *(_mean(group, line) for line in lines)]
        last = found[-1][0] if found else None
        if last is not None and at - last > step * _GAP_STEPS:
            found.append([last + step, *(None for _ in lines)])
        found.append(row)
    return found


def _steps(
    samples: Samples, window: int, step: int, now: float
) -> list[tuple[float, list[Mapping[str, Any]]]]:
    groups: dict[int, list[Mapping[str, Any]]] = {}
    for sample in samples:
        at = float(sample["at"])
        if now - window <= at <= now + step:
            groups.setdefault(int(at // step), []).append(sample)
    return [
        (sum(float(sample["at"]) for sample in group) / len(group), group)
        for _key, group in sorted(groups.items())
    ]


def _mean(group: Sequence[Mapping[str, Any]], line: Line) -> float | None:
    known = [float(sample[line.key]) for sample in group if sample.get(line.key) is not None]
    return round(sum(known) / len(known) * line.scale, 4) if known else None


def card(
    panels: Sequence[Panel], samples: Samples, *, topic: str, range_name: str = DEFAULT_RANGE, name: str = ""
) -> dict[str, Any]:
    """Context of one chart card. Several panels become rows over one shared time axis."""
    window, step = RANGES.get(range_name, RANGES[DEFAULT_RANGE])
    now = time.time()
    lines = [line for panel in panels for line in panel.lines]
    found = rows(samples, lines, window, step, now)
    chart_id = name or f"chart-{panels[0].id}"
    return {
        "id": chart_id,
        "figure_id": f"{chart_id}-figure",
        "title": panels[0].title if len(panels) == 1 else _("Live"),
        "unit": panels[0].unit if len(panels) == 1 else "",
        "note": "" if found else _("No samples yet."),
        "traces": _legend(panels, found),
        "figure": {
            "now": now,
            "window": window,
            "step": step,
            "max_points": window // step + SPARE_POINTS,
            "topic": topic,
            "keys": [line.key for line in lines],
            "names": _names(panels),
            "scales": [line.scale for line in lines],
            "colors": [line.color for line in lines],
            "rows": found,
            "figure": _figure(panels),
        },
    }


def _names(panels: Sequence[Panel]) -> list[str]:
    several = len(panels) > 1
    return [
        f"{panel.title} {line.name} ({panel.unit})" if several else f"{line.name} ({panel.unit})"
        for panel in panels
        for line in panel.lines
    ]


def _legend(panels: Sequence[Panel], found: list[Row]) -> list[dict[str, Any]]:
    lines = [(panel, line) for panel in panels for line in panel.lines]
    last: Row = found[-1] if found else [None] * (len(lines) + 1)
    return [
        {
            "name": _label(panel, line) if len(panels) > 1 else line.name,
            "color": line.color,
            "last": formats.significant(last[index + 1]),
        }
        for index, (panel, line) in enumerate(lines)
    ]


def _label(panel: Panel, line: Line) -> str:
    return f"{panel.title} {line.name}" if len(panel.lines) > 1 else f"{panel.title} {panel.unit}"


def _figure(panels: Sequence[Panel]) -> dict[str, Any]:
    count = len(panels)
    data: list[dict[str, Any]] = []
    layout: dict[str, Any] = {
        "margin": {"l": 44, "r": 12, "t": 8 if count == 1 else 20, "b": 24},
        "font": {"size": 12},
        "showlegend": False,
        "hovermode": "x",
        "hoversubplots": "axis",
        "dragmode": False,
        "separators": ".\u202f",
        "uirevision": "live",
        "xaxis": {
            "type": "date",
            "tickformat": "%H:%M:%S",
            "nticks": 6,
            "fixedrange": True,
            "showgrid": True,
            "showline": True,
            "ticks": "",
            "anchor": "y" if count == 1 else f"y{count}",
        },
        "annotations": [],
    }
    for index, panel in enumerate(panels):
        suffix = "" if index == 0 else str(index + 1)
        layout[f"yaxis{suffix}"] = _axis(panel, index, count)
        if count > 1:
            layout["annotations"].append(_heading(panel, layout[f"yaxis{suffix}"]["domain"][1]))
        data += [_trace(line, panel, suffix) for line in panel.lines]
    return {"data": data, "layout": layout}


def _axis(panel: Panel, index: int, count: int) -> dict[str, Any]:
    room = 0.035 if count > 1 else 0.0
    height = (1 - room * (count - 1)) / count
    top = 1 - index * (height + room)
    axis: dict[str, Any] = {
        "domain": [max(0.0, top - height), top],
        "rangemode": "tozero",
        "nticks": 4,
        "fixedrange": True,
        "automargin": False,
        "zeroline": True,
        "tickformat": ",~f",
        "anchor": "x",
    }
    if panel.most is not None:
        axis["range"] = [0, panel.most]
        axis["autorange"] = False
    return axis


def _heading(panel: Panel, top: float) -> dict[str, Any]:
    return {
        "text": f"<b>{panel.title}</b> {panel.unit}",
        "xref": "paper",
        "yref": "paper",
        "x": 0,
        "y": top,
        "xanchor": "left",
        "yanchor": "bottom",
        "showarrow": False,
        "font": {"size": 12},
    }


def _trace(line: Line, panel: Panel, suffix: str) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines",
        "name": f"{line.name}",
        "xaxis": "x",
        "yaxis": f"y{suffix}",
        "x": [],
        "y": [],
        "connectgaps": False,
        "line": {"width": 1.5},
        "hovertemplate": f"%{{y:,.4~r}} {panel.unit}<extra>{line.name}</extra>",
    }
