"""Small multiples: one row for each object, one line for each figure, all lines of a column on one scale."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from apps.dashboard import formats
from apps.dashboard.charts import source
from apps.dashboard.charts.ranges import TimeRange
from apps.telemetry import history
from apps.telemetry.history import Scope

# A line of some 120 pixels has no use for more.
POINTS = 60


@dataclass(frozen=True, slots=True)
class Column:
    """One figure: a key of the vocabulary times `scale`. `total` names the key that is the top of the scale."""

    key: str
    title: str | Promise
    scale: float = 1.0
    most: float | None = None
    total: str = ""


@dataclass(slots=True)
class Cell:
    """A line with its newest and its highest value as words; `top` is the value at its upper edge."""

    title: str | Promise
    values: list[float | None] = field(default_factory=list)
    top: float | None = None

    @property
    def highest(self) -> float | None:
        """Highest value of the range; None where nothing was told."""
        return max((value for value in self.values if value is not None), default=None)

    @property
    def last(self) -> str:
        """The value of the last step."""
        return formats.significant(self.values[-1] if self.values else None)

    @property
    def summary(self) -> str:
        """The highest value in words."""
        return formats.significant(self.highest)


_GIB, _MIB = 1 / 1_073_741_824, 1 / 1_048_576
DEPLOYMENT = (
    Column("requests_per_second", _("Requests/s")),
    Column("generated_tokens_per_second", _("Tokens/s")),
    Column("ttft_p99_ms", _("TTFT p99 (ms)")),
    Column("requests_waiting", _("Waiting")),
    Column("kv_use", _("KV (%)"), 100.0, most=100.0),
)
NODE = (
    Column("host_cpu_use", _("CPU (%)"), 100.0, most=100.0),
    Column("host_memory_used_bytes", _("Memory (GiB)"), _GIB, total="host_memory_total_bytes"),
    Column("shm_used_bytes", _("Shared memory (MiB)"), _MIB, total="shm_total_bytes"),
)
GPU = (
    Column("gpu_use", _("GPU (%)"), 100.0, most=100.0),
    Column("gpu_memory_used_bytes", _("GPU memory (GiB)"), _GIB, total="gpu_memory_total_bytes"),
    Column("gpu_power_watts", _("Power (W)"), total="gpu_power_limit_watts"),
    Column("gpu_temperature_celsius", _("Temperature (°C)"), most=100.0),
)


def rows(scopes: Sequence[Scope], columns: Sequence[Column], chosen: TimeRange) -> list[list[Cell]]:
    """Cells of each scope, in the order of `columns`."""
    found = [_cells(scope, columns, chosen) for scope in scopes]
    for index, column in enumerate(columns):
        if column.most is not None or column.total:
            continue
        top = max((cells[index].highest or 0.0 for cells in found), default=0.0)
        for cells in found:
            cells[index].top = top or None
    return found


def _cells(scope: Scope, columns: Sequence[Column], chosen: TimeRange) -> list[Cell]:
    keys = [key for column in columns for key in (column.key, column.total) if key]
    series = history.series(scope, source.reached(chosen.since), chosen.until, POINTS, keys)
    step = max(series.step_seconds, 1.0)
    places = max(1, round(chosen.seconds / step))
    cells = []
    for column in columns:
        values: list[float | None] = [None] * places
        for point in series.points:
            place = int(((point["at"] or 0.0) - chosen.since) // step)
            value = point.get(column.key)
            if 0 <= place < places and value is not None:
                values[place] = value * column.scale
        totals = [value for point in series.points if column.total and (value := point.get(column.total))]
        top = column.most if column.most is not None else max(totals) * column.scale if totals else None
        cells.append(Cell(column.title, values, top))
    return cells
