"""Plotly figures without data and without colours: the browser fills in both."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from apps.dashboard.charts.panels import Line, Panel

# Plotly would measure each label's place in every frame to hide those that stick out, which costs half of a draw and
# is remembered for every place that a label ever had. static/js/charts/time.js keeps time's labels inside instead.
OVERFLOW = "allow"


def line_figure(panels: Sequence[Panel]) -> dict[str, Any]:
    """Traces and layout of line charts; several panels become rows over one shared time axis."""
    count = len(panels)
    data: list[dict[str, Any]] = []
    layout = _base(8 if count == 1 else 20)
    layout["xaxis"] |= {"anchor": "y" if count == 1 else f"y{count}"}
    for index, panel in enumerate(panels):
        suffix = "" if index == 0 else str(index + 1)
        axis = layout[f"yaxis{suffix}"] = _axis(panel, index, count)
        if count > 1:
            layout["annotations"].append(_heading(panel, axis["domain"][1]))
        data += [_trace(line, panel, suffix) for line in panel.lines]
    return {"data": data, "layout": layout}


def heat_figure() -> dict[str, Any]:
    """A heat map over time; rows are the buckets of a histogram."""
    layout = _base(8)
    layout["xaxis"] |= {"anchor": "y", "showgrid": False}
    layout["yaxis"] = {"fixedrange": True, "type": "category", "nticks": 6, "showgrid": False, "anchor": "x"}
    layout["hovermode"] = "closest"
    # Names of buckets are longer than figures.
    layout["margin"]["l"] = 64
    trace = {
        "type": "heatmap",
        "x": [],
        "y": [],
        "z": [],
        "showscale": False,
        "hoverongaps": False,
        "xgap": 0,
        "ygap": 1,
    }
    return {"data": [trace], "layout": layout}


def bar_figure(unit: str) -> dict[str, Any]:
    """Bars over named buckets, in per cent of all."""
    layout = _base(8)
    layout["xaxis"] = {"type": "category", "fixedrange": True, "showline": True, "ticks": "", "anchor": "y"}
    layout["yaxis"] = {
        "rangemode": "tozero",
        "nticks": 4,
        "fixedrange": True,
        "ticksuffix": "",
        "ticklabeloverflow": OVERFLOW,
        "anchor": "x",
    }
    layout["hovermode"] = "x"
    layout["bargap"] = 0.15
    trace = {
        "type": "bar",
        "x": [],
        "y": [],
        "hovertemplate": f"%{{y:.3~r}} % ({unit} %{{x}})<extra></extra>",
    }
    return {"data": [trace], "layout": layout}


def _base(top: int) -> dict[str, Any]:
    return {
        "margin": {"l": 52, "r": 12, "t": top, "b": 24},
        "font": {"size": 12},
        "showlegend": False,
        "hovermode": "x unified",
        "hoversubplots": "axis",
        "dragmode": False,
        "separators": ".\u202f",
        "xaxis": {
            "type": "date",
            "hoverformat": "%Y-%m-%d %H:%M:%S",
            "ticklabeloverflow": OVERFLOW,
            "tickangle": 0,
            "fixedrange": True,
            "showgrid": True,
            "showline": True,
            "ticks": "",
        },
        "annotations": [],
    }


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
        "ticklabeloverflow": OVERFLOW,
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
        "line": {"width": 1.5, "dash": "dot"} if line.limit else {"width": 1.5},
        "hovertemplate": f"%{{y:,.4~r}} {panel.unit}<extra>{line.name}</extra>",
    }
