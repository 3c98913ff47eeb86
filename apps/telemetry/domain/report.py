"""All that one exposition says, for `manage.py read_metrics`: its families as they are, and the vocabulary's
figures."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from apps.telemetry.domain import derive, prometheus
from apps.telemetry.domain.dialects import iteration_stats
from apps.telemetry.domain.figures import Figures, model_of
from apps.telemetry.domain.histogram import Histogram
from apps.telemetry.domain.interval import Interval, merged_histograms
from apps.telemetry.domain.prometheus import Exposition, Sample
from apps.telemetry.domain.reading import Reading

# Kinds whose values may be added over versions and other labels.
_ADDABLE = ("counter", "histogram", "summary")


def report(text: str) -> dict[str, Any]:
    """{"families", "derived", "dialects", "samples", "findings"} of a text; findings with severity error refuse it.

    `families`: by family its values by the label that tells its lines apart (model, or the category), a number where
    there is only one line, {"count", "sum", "buckets"} of histograms, null where the family is announced without
    values. `derived`: the vocabulary as far as one scrape can tell it (totals instead of rates), null for the rest.
    """
    rows = iteration_stats.parse(text)
    if rows is not None:
        return _of_iterations(rows)
    exposition = prometheus.parse(text)
    reading = derive.read(exposition, 0.0)
    return {
        "families": families(exposition),
        "derived": derived(reading),
        "dialects": list(reading.dialects),
        "samples": {
            name: [{"labels": dict(each.labels), "value": _plain(each.value)} for each in lines]
            for name, lines in exposition.samples.items()
        },
        "findings": _findings(exposition),
    }


def _of_iterations(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    figures = iteration_stats.read(rows)
    derived_ = _derived(figures)
    derived_["requests_finished"] = figures.facts.get("completed_requests")
    return {
        "families": {"IterationStats": len(rows)},
        "derived": derived_,
        "dialects": ["iteration_stats"],
        "samples": {},
        "findings": [],
    }


def families(exposition: Exposition) -> dict[str, Any]:
    """Values by family; see `report`."""
    names: dict[str, list[str]] = {}
    for name in exposition.samples:
        family = prometheus.family_of(name)
        whole = (
            exposition.kinds.get(family) in ("histogram", "summary")
            or f"{family}_bucket" in exposition.samples
        )
        names.setdefault(family if whole else name, []).append(name)
    found: dict[str, Any] = {}
    for family, lines in names.items():
        kind = exposition.kinds.get(family, "")
        if kind == "histogram" or f"{family}_bucket" in lines:
            found[family] = _histogram(exposition, family)
        else:
            found[family] = _values(exposition, lines[0] if len(lines) == 1 else family, kind)
    for family in exposition.kinds:
        found.setdefault(family, None)
    return found


def _histogram(exposition: Exposition, family: str) -> Any:
    from apps.telemetry.domain import histogram

    found = histogram.read_by(exposition, family, lambda labels: labels.get("model", ""))
    shown = {key: _shown(value) for key, value in found.items()}
    return shown.get("") if set(shown) == {""} else shown or None


def _shown(value: Histogram) -> dict[str, Any]:
    bounds = ["+Inf" if math.isinf(bound) else f"{bound:g}" for bound in value.bounds]
    return {"count": value.count, "sum": value.total, "buckets": dict(zip(bounds, value.counts, strict=True))}


def _values(exposition: Exposition, name: str, kind: str) -> Any:
    lines = [each for each in exposition.samples.get(name, ()) if not math.isnan(each.value)]
    if not lines:
        return None
    if len(lines) == 1 and not lines[0].labels:
        return lines[0].value
    names = _telling(lines)
    found: dict[str, float] = {}
    for line in lines:
        key = "/".join(line.labels.get(each, "") for each in names)
        if key in found and kind not in _ADDABLE:
            # Two versions of one model: gauges are not added, each is shown by itself.
            key = f"{key}@{line.labels.get('version', len(found))}"
        found[key] = found.get(key, 0.0) + line.value
    return found


def _telling(lines: Sequence[Sample]) -> list[str]:
    """Labels by which the lines of a family are told apart: the model first, left out where it is always the same and
    another label tells."""
    names = sorted({name for line in lines for name in line.labels} - {"version"})
    category = [name for name in names if name not in ("model", "gpu_uuid", "reason")]
    if category:
        models = {line.labels.get("model") for line in lines}
        return ["model", *category] if len(models) > 1 else category
    if "model" in names:
        return ["model"]
    return names or ["version"]


def derived(reading: Reading) -> dict[str, Any]:
    """The vocabulary's figures of one scrape, and totals where a rate needs two."""
    figures = reading.figures
    found = _derived(figures)
    by_series = [{name: value} for name, each in figures.histograms.items() for value in each.values()]
    histograms = merged_histograms(by_series)
    found |= {name: value for name, value in derive.quantiles(histograms).items() if value is not None}
    for name, counter in (
        ("requests_total", "requests"),
        ("generated_tokens_total", "generated"),
        ("prompt_tokens_total", "prompt"),
        ("cached_prompt_tokens_total", "cached"),
        ("kv_blocks_reused_total", "blocks_reused"),
    ):
        values = figures.counters.get(counter)
        found[name] = sum(values.values()) if values else None
    totals = {name: sum(values.values()) for name, values in figures.counters.items()}
    ends = derive.ends(totals)
    for kind in ("failed", "rejected", "cancelled"):
        found[f"requests_{kind}_total"] = ends.get(kind)
    for name in ("prompt_tokens", "generated_tokens"):
        short = "output" if name == "generated_tokens" else "prompt"
        lengths = histograms.get(name)
        found[f"mean_{short}_tokens"] = lengths.mean() if lengths is not None else None
    found["models"] = sorted({model_of(s) for values in figures.counters.values() for s in values} - {""})
    return found


def _derived(figures: Figures) -> dict[str, Any]:
    device = _device(figures)
    gauges = Interval({}, figures.gauges, _parts(figures))
    sample = derive.sample(0.0, gauges, device)
    del sample["at"]
    use = sample["gpu_use"]
    found: dict[str, Any] = dict(sample)
    # Names of the field's own questions beside the vocabulary's.
    found |= {
        "kv_used_fraction": sample["kv_use"],
        "capacity_tokens": sample["kv_tokens_capacity"],
        "waiting": sample["requests_waiting"],
        "running": sample["requests_running"],
        "saturated": figures.facts.get("saturated"),
        "timestamp_unit": figures.facts.get("timestamp_unit"),
        "timestamp": figures.facts.get("timestamp"),
        "gpu_utilization_percent": None if use is None else round(use * 100, 6),
        "power": sample["gpu_power_watts"],
        "energy": _energy(figures),
        "gpus": figures.gpus,
    }
    return found


def _parts(figures: Figures) -> dict[str, float | None]:
    """Ratios over all that was counted since the server began."""
    totals = {name: sum(values.values()) for name, values in figures.counters.items()}
    hits, misses = totals.get("cache_hits"), totals.get("cache_misses")
    batches = figures.histograms.get("batch_size", {})
    steps = sum(each.count for each in batches.values())
    mean = figures.gauges.get("batch_size_mean")
    told = {name: figures.gauges.get(name) for name in ("kv_use", "kv_hit_rate")}
    return {
        "prompt": totals.get("prompt"),
        "cached": totals.get("cached"),
        "executed": totals.get("executed"),
        "executions": totals.get("executions"),
        "cache_hits": hits,
        "cache_lookups": None if hits is None or misses is None else hits + misses,
        "sequences": sum(each.total for each in batches.values()) if steps else mean,
        "steps": steps or (None if mean is None else 1.0),
        "queue_ms": totals.get("queue_ms"),
        "queue_n": totals.get("base_requests"),
        "request_ms": totals.get("request_ms"),
        "request_n": totals.get("base_requests"),
        "kv_use_told": told["kv_use"],
        "kv_use_tellers": None if told["kv_use"] is None else 1.0,
        "kv_hit_rate_told": told["kv_hit_rate"],
        "kv_hit_rate_tellers": None if told["kv_hit_rate"] is None else 1.0,
    }


def _device(figures: Figures) -> dict[str, float | None]:
    """GPU figures over all GPUs (uses are means, temperatures the highest, the rest is added), and the host's."""
    found: dict[str, float | None] = dict(figures.host)
    for name in {name for gpu in figures.gpus.values() for name in gpu}:
        values = [gpu[name] for gpu in figures.gpus.values() if name in gpu]
        if name.endswith(("_use", "_active")):
            found[name] = sum(values) / len(values)
        elif "temperature" in name or "throttle" in name or name == "gpu_xid_last":
            found[name] = max(values)
        elif "clock" in name:
            found[name] = min(values)
        else:
            found[name] = sum(values)
    return found


def _energy(figures: Figures) -> float | None:
    values = [gpu["energy_total_joules"] for gpu in figures.gpus.values() if "energy_total_joules" in gpu]
    return sum(values) if values else None


def _findings(exposition: Exposition) -> list[dict[str, Any]]:
    if not exposition.samples and not exposition.kinds:
        return [
            _finding(
                "not_an_exposition",
                "error",
                "No line of this text is a metric.",
                "Give the text that a /metrics address answers, or IterationStats as JSON.",
            )
        ]
    if exposition.unreadable:
        return [
            _finding(
                "lines_unreadable",
                "warning",
                f"{exposition.unreadable} lines could not be read and were passed over.",
                "Look at what the server writes there; the other lines are not concerned.",
            )
        ]
    return []


def _finding(code: str, severity: str, message: str, remedy: str) -> dict[str, Any]:
    return {"id": code, "severity": severity, "message": message, "remedy": remedy}


def _plain(value: float) -> float | str:
    """A value as JSON can hold it."""
    return value if math.isfinite(value) else str(value)
