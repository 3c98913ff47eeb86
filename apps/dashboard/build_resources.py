"""Resources of a build over time, drawn as plain SVG: memory of its processes and size of its work folder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from django.utils.translation import gettext as _

from apps.dashboard import formats, logs
from apps.engines.domain.resources import FILE, MAX_BYTES, Sample, read_samples
from apps.engines.models import Build

WIDTH, HEIGHT = 1000.0, 100.0


@dataclass(frozen=True, slots=True)
class Line:
    """One chart: the points of its line and area in a box of WIDTH x HEIGHT, its highest value for people."""

    key: str
    title: str
    points: str
    area: str
    top: str
    last: str


@dataclass(frozen=True, slots=True)
class Band:
    """A stage on the time axis: where it begins and how long it is, in the same box."""

    title: str
    x: float
    width: float
    odd: bool


@dataclass(frozen=True, slots=True)
class Resources:
    """Everything that the panel shows; `rows` is its table twin: seconds, stage, memory, disk."""

    lines: tuple[Line, ...]
    bands: tuple[Band, ...]
    seconds: str
    rows: tuple[tuple[str, str, str, str], ...]


def resources(row: Build) -> Resources | None:
    """What was measured while the build's last attempt ran; None where nothing was."""
    samples = _read(row.log_path)
    if len(samples) < 2:
        return None
    start, end = samples[0].at, samples[-1].at
    span = max(end - start, 0.001)
    titles = {str(stage.get("name")): str(stage.get("title") or stage.get("name")) for stage in row.stages}
    lines = [
        _line("memory", _("Memory of its processes"), [(s.at, s.memory_bytes) for s in samples], start, span),
        _line("disk", _("Size of its work folder"), [(s.at, s.disk_bytes) for s in samples], start, span),
    ]
    shown = tuple(line for line in lines if line is not None)
    if not shown:
        return None
    table = samples[:: max(1, len(samples) // 24)]
    return Resources(
        lines=shown,
        bands=tuple(_bands(samples, titles, start, span)),
        seconds=formats.duration(span),
        rows=tuple(
            (
                formats.duration(s.at - start),
                titles.get(s.stage, s.stage),
                _size(s.memory_bytes),
                _size(s.disk_bytes),
            )
            for s in table
        ),
    )


def _read(log_path: str) -> list[Sample]:
    path = logs.inside_home(str(Path(log_path).with_name(FILE))) if log_path else None
    if path is None:
        return []
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return read_samples(file.read(MAX_BYTES).splitlines())
    except OSError:
        return []


def _line(
    key: str, title: str, values: Sequence[tuple[float, int | None]], start: float, span: float
) -> Line | None:
    known = [(at, value) for at, value in values if value is not None]
    if len(known) < 2:
        return None
    top = max(value for _at, value in known)
    scale = (HEIGHT - 2) / top if top else 0.0
    points = [((at - start) / span * WIDTH, HEIGHT - 1 - value * scale) for at, value in known]
    drawn = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    area = f"{points[0][0]:.1f},{HEIGHT} {drawn} {points[-1][0]:.1f},{HEIGHT}"
    return Line(key, title, drawn, area, _size(top), _size(known[-1][1]))


def _bands(samples: Sequence[Sample], titles: dict[str, str], start: float, span: float) -> list[Band]:
    """One for each run of samples of the same stage; it reaches to the first sample of the next."""
    begins = [at for at, sample in enumerate(samples) if at == 0 or samples[at - 1].stage != sample.stage]
    ends = [samples[at].at for at in begins[1:]] + [samples[-1].at]
    found = []
    for number, (at, end) in enumerate(zip(begins, ends, strict=True)):
        x = (samples[at].at - start) / span * WIDTH
        width = (end - samples[at].at) / span * WIDTH
        stage = samples[at].stage
        found.append(Band(titles.get(stage, stage), round(x, 1), round(width, 1), number % 2 == 1))
    return found


def _size(value: int | None) -> str:
    return str(formats.filesize(value))
