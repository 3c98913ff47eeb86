"""Contexts of chart cards: what templates/pieces/chart.html draws and static/js/charts/ brings to life."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from django.utils.translation import gettext as _

from apps.dashboard import formats
from apps.dashboard.charts import figure, frames
from apps.dashboard.charts.frames import Frame, Samples
from apps.dashboard.charts.panels import Line, Panel

# Beside a conversation, where an answer of a few seconds shall be seen as a band.
CONVERSATION_SECONDS = 180.0


def keys_of(panels: Iterable[Panel]) -> list[str]:
    """Keys of the vocabulary that these charts need, each once."""
    return list(dict.fromkeys(key for panel in panels for line in panel.lines for key in line.keys))


def told(panel: Panel, frame: Frame) -> Panel:
    """The panel without the optional lines of which the frame knows nothing."""
    lines = tuple(line for line in panel.lines if not line.optional or all(map(frame.known, line.keys)))
    return replace(panel, lines=lines)


def value(frame: Frame, line: Line) -> float | None:
    """The line's value in the last step."""
    top = 1.0 if not line.key else frame.newest(line.key)
    if top is None:
        return None
    if not line.per:
        return top * line.scale
    below = frame.newest(line.per)
    return top * line.scale / below if below else None


def line_card(panels: Sequence[Panel], frame: Frame, name: str = "") -> dict[str, Any]:
    """Card of line charts out of the page's shared frame. Several panels become rows over one shared time axis."""
    shown = [told(panel, frame) for panel in panels]
    lines = [(panel, line) for panel in shown for line in panel.lines]
    several = len(shown) > 1
    chart_id = name or f"chart-{shown[0].id}"
    nothing = not any(frame.known(key) for _panel, line in lines for key in line.keys)
    return {
        "id": chart_id,
        "kind": "line",
        "figure_id": f"{chart_id}-figure",
        "title": _("Live") if several else shown[0].title,
        "unit": "" if several else shown[0].unit,
        "note": _nothing(frame) if nothing else "",
        "hint": shown[0].hint,
        "hint_url": shown[0].hint_url,
        "traces": [
            {
                "name": _label(panel, line) if several else line.name,
                "color": line.color,
                "dotted": line.limit,
                "help": line.help,
                "last": formats.significant(value(frame, line)),
            }
            for panel, line in lines
        ],
        "figure": {
            "lines": [_line(panel, line, several) for panel, line in lines],
            "figure": figure.line_figure(shown),
        },
    }


def _nothing(frame: Frame) -> str:
    return _("No values in this time.") if frame.at else _("No samples yet.")


def _line(panel: Panel, line: Line, several: bool) -> dict[str, Any]:
    name = f"{panel.title} {line.name} ({panel.unit})" if several else f"{line.name} ({panel.unit})"
    return {"key": line.key, "per": line.per, "scale": line.scale, "color": line.color, "name": name}


def _label(panel: Panel, line: Line) -> str:
    return f"{panel.title} {line.name}" if len(panel.lines) > 1 else f"{panel.title} {panel.unit}"


def conversation_card(panels: Sequence[Panel], samples: Samples, *, topic: str, name: str) -> dict[str, Any]:
    """A card that stands alone, with its own three minutes of samples: the one beside a conversation."""
    now = time.time()
    keys = keys_of(panels)
    frame = frames.of_samples(samples, keys, now - CONVERSATION_SECONDS, now, 1.0)
    card = line_card(panels, frame, name)
    card["figure"] |= {"page": page_spec(frame, now, CONVERSATION_SECONDS, topic)}
    return card


def page_spec(frame: Frame, now: float, window: float, topic: str, **more: Any) -> dict[str, Any]:
    """What all charts of a page share: their figures, the length of the time axis and the live topic."""
    return {"now": now, "window": window, "topic": topic, "frame": frame.as_json(), **more}
