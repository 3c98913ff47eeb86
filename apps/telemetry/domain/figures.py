"""What one scrape told, before anything is compared with an older one."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from apps.telemetry.domain import histogram
from apps.telemetry.domain.histogram import Histogram
from apps.telemetry.domain.prometheus import Exposition, Sample

# Which model and version a series belongs to: "model/version". Counters are compared by it, because a model that is
# loaded anew begins at 0 while its neighbours go on.
Series = str
BySeries = dict[Series, float]

# Parts of a request, not requests: the steps of TensorRT-LLM's ensemble, also as numbered copies.
_STEP = re.compile(r"(preprocessing|tensorrt_llm|postprocessing|multimodal_encoders)(_\d+)?")
_ENGINE = re.compile(r"tensorrt_llm(_\d+)?")


@dataclass(slots=True)
class Figures:
    """Figures of one scrape in the vocabulary's terms.

    `counters`: growing amounts by series; those named `ended/<reason>` are requests by how they ended, without the
    good ends. `gauges`: values as they stand. `histograms`: cumulative ones by series, times in milliseconds.
    `momentary`: gauges of one engine iteration, meaningless once it is over; `progress`: iteration counters that
    tell. `gpus`: device figures by UUID (`energy_total_joules` grows). `host`: the host's. `facts`: what is no
    figure.
    """

    counters: dict[str, BySeries] = field(default_factory=dict)
    gauges: dict[str, float] = field(default_factory=dict)
    histograms: dict[str, dict[Series, Histogram]] = field(default_factory=dict)
    momentary: set[str] = field(default_factory=set)
    progress: BySeries = field(default_factory=dict)
    gpus: dict[str, dict[str, float]] = field(default_factory=dict)
    host: dict[str, float] = field(default_factory=dict)
    facts: dict[str, float | str | bool | None] = field(default_factory=dict)

    def gauge(self, name: str, value: float | None, momentary: bool = False) -> None:
        """Note a gauge; None is not noted."""
        if value is not None:
            self.gauges[name] = value
            if momentary:
                self.momentary.add(name)

    def counter(self, name: str, values: BySeries) -> None:
        """Note a counter; one without series is not noted."""
        if values:
            self.counters[name] = values

    def histogram(self, name: str, values: dict[Series, Histogram]) -> None:
        """Note a histogram; one without series is not noted."""
        if values:
            self.histograms[name] = values

    def fill(self, other: Figures) -> None:
        """Take from `other` what is still open here."""
        self.counters = other.counters | self.counters
        self.gauges = other.gauges | self.gauges
        self.histograms = other.histograms | self.histograms
        self.progress = other.progress | self.progress
        self.host = other.host | self.host
        self.facts = other.facts | self.facts
        for uuid, told in other.gpus.items():
            self.gpus[uuid] = told | self.gpus.get(uuid, {})
        self.momentary |= other.momentary


def series_of(labels: Mapping[str, str]) -> Series:
    """Series of a line: its model and version, under whichever label names the engine uses."""
    model = labels.get("model") or labels.get("model_name") or ""
    version = labels.get("version", "")
    return f"{model}/{version}" if version else model


def model_of(series: Series) -> str:
    """Model of a series."""
    return series.rsplit("/", 1)[0] if "/" in series else series


def is_step(series: Series) -> bool:
    """Whether a model is a step of TensorRT-LLM's ensemble."""
    return _STEP.fullmatch(model_of(series)) is not None


def is_engine(series: Series) -> bool:
    """Whether a model is the step that runs the engine."""
    return _ENGINE.fullmatch(model_of(series)) is not None


def grouped(
    samples: Iterable[Sample], scale: float = 1.0, wanted: Mapping[str, str] = MappingProxyType({})
) -> BySeries:
    """Values by series, added over all other labels; lines without a value (NaN) are left out.

    Only lines that have the labels `wanted`.
    """
    found: BySeries = {}
    for sample in samples:
        if sample.value != sample.value or any(sample.labels.get(k) != v for k, v in wanted.items()):
            continue
        key = series_of(sample.labels)
        found[key] = found.get(key, 0.0) + sample.value * scale
    return found


def counter(exposition: Exposition, name: str, scale: float = 1.0) -> BySeries:
    """A counter by series; with and without the _total that newer writers add."""
    samples = exposition.samples.get(name)
    if samples is None and not name.endswith("_total"):
        samples = exposition.samples.get(f"{name}_total")
    return grouped(samples or (), scale)


def ended(
    exposition: Exposition, name: str, label: str, good: frozenset[str] = frozenset()
) -> dict[str, BySeries]:
    """Requests by reason out of one family: {"ended/<reason>": by series}, without the good ends."""
    found: dict[str, BySeries] = {}
    for sample in exposition.samples.get(name, ()):
        reason = sample.labels.get(label, "")
        if reason in good or sample.value != sample.value:
            continue
        values = found.setdefault(f"ended/{reason.lower() or 'unknown'}", {})
        key = series_of(sample.labels)
        values[key] = values.get(key, 0.0) + sample.value
    return found


def histograms(
    exposition: Exposition, family: str, scale: float = 1.0, **wanted: str
) -> dict[Series, Histogram]:
    """A histogram family by series; `scale` brings its unit to the vocabulary's (1000 for seconds)."""
    return histogram.read_by(exposition, family, series_of, scale, **wanted)


def whole(models: Iterable[Series]) -> set[Series]:
    """Series that count requests: without the steps of an ensemble that is counted itself.

    A server that runs steps alone (the engine's model is called directly) keeps them.
    """
    every = set(models)
    return {series for series in every if not is_step(series)} or _outermost(every)


def _outermost(series: set[Series]) -> set[Series]:
    """Of steps alone the engine's own model, where it is there: the tokenising steps are parts of its requests."""
    return {each for each in series if is_engine(each)} or series
