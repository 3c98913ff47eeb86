"""The graph of an ensemble as a drawing: boxes in layers from left to right, and the edges between them.

Units are those of the SVG's view box. The drawing carries no colours; the table beside it says the same in words.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.utils.translation import gettext as _

WIDTH, HEIGHT, GAP_X, GAP_Y, MARGIN = 116, 34, 40, 20, 4
LONGEST = 17
# Wider drawings are scrolled, because their words would become too small.
WIDEST = 640
SOURCE, SINK = "input", "output"


@dataclass(frozen=True, slots=True)
class Box:
    """One model, or an end of the ensemble."""

    name: str
    label: str
    x: int
    y: int
    is_end: bool

    @property
    def middle(self) -> int:
        """Height of the box's middle, where edges begin and end."""
        return self.y + HEIGHT // 2

    @property
    def centre(self) -> int:
        """Where its words are centred."""
        return self.x + WIDTH // 2


@dataclass(frozen=True, slots=True)
class Line:
    """All tensors from one box to another."""

    path: str
    head: str
    tensors: tuple[str, ...]

    @property
    def title(self) -> str:
        """What the line carries."""
        return ", ".join(self.tensors)


@dataclass(frozen=True, slots=True)
class Drawing:
    """A whole graph with its size."""

    name: str
    boxes: tuple[Box, ...]
    lines: tuple[Line, ...]
    width: int
    height: int
    edges: tuple[Mapping[str, str], ...]

    @property
    def wide(self) -> bool:
        """Whether it is to be scrolled rather than shrunk."""
        return self.width > WIDEST

    @property
    def box_width(self) -> int:
        """Width of every box."""
        return WIDTH

    @property
    def box_height(self) -> int:
        """Height of every box."""
        return HEIGHT


def draw(name: str, edges: Sequence[Mapping[str, str]]) -> Drawing:
    """The drawing of one ensemble; `edges` are {from, to, tensor} as repository_check gives them."""
    layers = _layers(edges)
    columns: dict[int, list[str]] = {}
    for node in sorted(layers, key=lambda node: (layers[node], node)):
        columns.setdefault(layers[node], []).append(node)
    tallest = max((len(column) for column in columns.values()), default=1)
    full = tallest * (HEIGHT + GAP_Y) - GAP_Y
    boxes: dict[str, Box] = {}
    for index, (_layer, column) in enumerate(sorted(columns.items())):
        own = len(column) * (HEIGHT + GAP_Y) - GAP_Y
        for row, node in enumerate(column):
            x = MARGIN + index * (WIDTH + GAP_X)
            y = MARGIN + (full - own) // 2 + row * (HEIGHT + GAP_Y)
            boxes[node] = Box(node, _label(node), x, y, node in (SOURCE, SINK))
    width = 2 * MARGIN + max(1, len(columns)) * (WIDTH + GAP_X) - GAP_X
    return Drawing(name, tuple(boxes.values()), _lines(edges, boxes), width, 2 * MARGIN + full, tuple(edges))


def _layers(edges: Sequence[Mapping[str, str]]) -> dict[str, int]:
    """How far each box stands from the input: the longest way. A circle ends the walk, not the program."""
    nodes = {edge[end] for edge in edges for end in ("from", "to")} or {SOURCE}
    layers = dict.fromkeys(nodes, 0)
    for _round in range(len(nodes)):
        for edge in edges:
            layers[edge["to"]] = max(layers[edge["to"]], min(layers[edge["from"]] + 1, len(nodes)))
    if SINK in layers:
        layers[SINK] = max(layers.values())
    return layers


def _label(node: str) -> str:
    ends = {SOURCE: _("request"), SINK: _("answer")}
    name = ends.get(node, node)
    return name if len(name) <= LONGEST else name[: LONGEST - 1] + "…"


def _lines(edges: Sequence[Mapping[str, str]], boxes: Mapping[str, Box]) -> tuple[Line, ...]:
    together: dict[tuple[str, str], list[str]] = {}
    for edge in edges:
        tensors = together.setdefault((edge["from"], edge["to"]), [])
        if edge["tensor"] not in tensors:
            tensors.append(edge["tensor"])
    return tuple(
        Line(_curve(boxes[a], boxes[b]), _head(boxes[b]), tuple(tensors))
        for (a, b), tensors in together.items()
    )


def _head(end: Box) -> str:
    return f"M{end.x} {end.middle} l-7 -4 v8 z"


def _curve(start: Box, end: Box) -> str:
    x1, y1, x2, y2 = start.x + WIDTH, start.middle, end.x - 5, end.middle
    bend = max(20, (x2 - x1) // 2)
    return f"M{x1} {y1} C{x1 + bend} {y1} {x2 - bend} {y2} {x2} {y2}"


def of_report(report: Mapping[str, Any]) -> list[Drawing]:
    """Every ensemble of a check's report."""
    return [draw(name, edges) for name, edges in report.get("graphs", {}).items() if edges]
