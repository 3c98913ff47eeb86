"""Predicted against measured memory: kept with each build and each load, and what later plans learn of it.

Measured figures come from engines' logs, /proc and files; the planner only gives the predictions. Nothing here may
fail a build or a load: what cannot be recorded is logged.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, ParamSpec

from django.db import DatabaseError, transaction
from django.db.models import QuerySet

from apps.core.exceptions import InflightError
from apps.engines.domain.memory.formats import kv_format
from apps.engines.domain.memory.llamacpp import (
    GgufSizes,
    LlamaCppPlan,
    LlamaCppRequest,
    plan_llamacpp,
    sizes_of,
)
from apps.engines.domain.memory.measured import Measured, read_load_log
from apps.engines.domain.memory.plan import Plan
from apps.engines.models import Build, Engine, MemoryMeasurement
from apps.registry.domain.gguf_reader import Header, read_header

log = logging.getLogger(__name__)
P = ParamSpec("P")

# Runs of one GPU kind and version before their figures count for a plan, and how many of the newest count.
ENOUGH_RUNS = 5
NEWEST_RUNS = 50
# Room around what was seen, so that the next run is not out of range by a hair.
SPREAD = 0.1
ENGINE_FILE = "model.gguf"
LOG, PROC, FILE = "log", "proc", "file"
SCALED_TERM = "activations"
RUNTIMES = TENSORRT, LLAMACPP = "tensorrt_llm", "xllamacpp"
KEPT = (
    "event",
    "engine",
    "build",
    "predicted",
    "predicted_low",
    "predicted_high",
    "formula_bytes",
    "measured",
    "source",
    "version",
    "gpu_kind",
)


@dataclass(frozen=True, slots=True)
class Calibration:
    """Share of the activation formula that runs really took: low, likely (median), high."""

    scale: tuple[float, float, float]
    runs: int
    gpu_kind: str
    version: str


@dataclass(frozen=True, slots=True)
class Load:
    """One load of an engine, as the worker saw it: its log since the load began, memory of its processes (bytes).

    `plan` is the plan of a TensorRT-LLM engine; the embedded engine's is made from its file.
    """

    engine: Engine
    instance: str
    attempt: int
    slots: int
    context_per_slot: int
    log: str
    process_bytes: int | None
    gpu_kind: str
    kv: str = "fp16"
    plan: Plan | None = None


def _never_fails(record: Callable[P, None]) -> Callable[P, None]:
    def guarded(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            with transaction.atomic():
                record(*args, **kwargs)
        except (InflightError, OSError, DatabaseError, ValueError, KeyError):
            log.warning("A memory measurement could not be recorded.", exc_info=True)

    guarded.__doc__ = record.__doc__
    return guarded


@_never_fails
def record_build(build: Build) -> None:
    """Predicted against written size of the engine that a build made; nothing for one that was used again."""
    build.refresh_from_db()
    engine = build.engine
    if engine is None or build.reused or engine.builder != "llamacpp":
        return
    header = read_header(Path(str(build.spec["path"])))
    planned = sizes_of(header, engine.quantization)
    _keep(
        MemoryMeasurement(
            event=MemoryMeasurement.Event.BUILD,
            engine=engine,
            build=build,
            subject=f"build:{build.number}",
            attempt=build.attempt,
            term="weights",
            predicted=planned.weights + header.data_start,
            measured=(Path(engine.path) / ENGINE_FILE).stat().st_size,
            source=FILE,
            version=runtime_version(engine),
            gpu_kind=build.gpu.product if build.gpu else "",
        )
    )


@_never_fails
def record_load(load: Load) -> None:
    """Predicted against measured weights, cache, buffers and processes of one load."""
    measured = read_load_log(load.log)
    planned = _planned(load)
    for term, (source, value) in _measured(measured, load.process_bytes).items():
        if value is None:
            continue
        low, likely, high, formula = _predicted(planned, term)
        _keep(
            MemoryMeasurement(
                event=MemoryMeasurement.Event.LOAD,
                engine=load.engine,
                subject=load.instance,
                attempt=load.attempt,
                term=term,
                predicted=likely,
                predicted_low=low,
                predicted_high=high,
                formula_bytes=formula,
                measured=value,
                source=source,
                version=runtime_version(load.engine),
                gpu_kind=load.gpu_kind,
            )
        )


def _planned(load: Load) -> LlamaCppPlan | Plan | None:
    if load.engine.builder != "llamacpp":
        return load.plan
    sizes = sizes_of(_header_of(load.engine))
    scale = calibration(load.gpu_kind, runtime_version(load.engine))
    return plan_llamacpp(
        sizes,
        LlamaCppRequest(
            load.slots,
            load.context_per_slot,
            kv_format(load.kv),
            activations_scale=scale.scale if scale else None,
        ),
    )


def _header_of(engine: Engine) -> Header:
    return read_header(Path(engine.path) / ENGINE_FILE)


def engine_sizes(engine: Engine) -> GgufSizes:
    """Sizes of a built engine. Raises InvalidInput, OSError."""
    return sizes_of(_header_of(engine))


def _measured(found: Measured, process: int | None) -> dict[str, tuple[str, int | None]]:
    return {
        "weights": (LOG, found.weights),
        "repacked": (LOG, found.repacked),
        "kv": (LOG, found.kv),
        "kv_tokens": (LOG, found.kv_tokens),
        "activations": (LOG, found.activations),
        "output": (LOG, found.buffers),
        "process": (PROC, process),
    }


Predicted = tuple[int | None, int | None, int | None, int | None]
UNKNOWN: Predicted = (None, None, None, None)


def _predicted(plan: LlamaCppPlan | Plan | None, term: str) -> Predicted:
    """Low, likely, high and the uncalibrated formula of a measured term."""
    if plan is None:
        return UNKNOWN
    if isinstance(plan, Plan):
        return _predicted_on_gpu(plan, term)
    if term == "kv_tokens":
        return None, plan.kv_tokens, None, None
    if term == "process":
        low, likely, high = (
            sum(getattr(entry, end) for entry in plan.terms) for end in ("low", "likely", "high")
        )
        return low, likely, high, None
    named = {"activations": "compute"}.get(term, term)
    entry = next((entry for entry in plan.terms if entry.name == named), None)
    if entry is None:
        return UNKNOWN
    formula = plan.compute_formula if term == SCALED_TERM else None
    return entry.low, entry.likely, entry.high, formula


def _predicted_on_gpu(plan: Plan, term: str) -> Predicted:
    rank = plan.rank
    if term == "kv_tokens":
        return None, plan.kv_capacity_tokens, None, None
    if term == "kv":
        return rank.pool.bytes, rank.pool.bytes, rank.pool.bytes, None
    if term == "weights":
        return rank.weights.low, rank.weights.likely, rank.weights.high, None
    if term == SCALED_TERM:
        found = rank.activations
        return found.low, found.likely, found.high, plan.activations_formula
    return UNKNOWN


def _keep(row: MemoryMeasurement) -> None:
    """Write it, in place of an earlier one of the same attempt."""
    MemoryMeasurement.objects.update_or_create(
        subject=row.subject,
        attempt=row.attempt,
        term=row.term,
        defaults={name: getattr(row, name) for name in KEPT},
    )


def runtime_version(engine: Engine) -> str:
    """The runtime that an engine was made for, in one word: its builder's version out of the manifest."""
    versions = engine.manifest.get("versions") if isinstance(engine.manifest, Mapping) else None
    known = versions if isinstance(versions, Mapping) else {}
    for name in RUNTIMES:
        if known.get(name):
            return f"{name} {known[name]}"[:60]
    return engine.builder


def calibration(gpu_kind: str, version: str) -> Calibration | None:
    """What measured runs of this GPU kind and version say of the activation formula; None before five of them."""
    rows = MemoryMeasurement.objects.filter(
        event=MemoryMeasurement.Event.LOAD,
        term=SCALED_TERM,
        gpu_kind=gpu_kind,
        version=version,
        formula_bytes__gt=0,
    ).values_list("measured", "formula_bytes")[:NEWEST_RUNS]
    shares = [measured / formula for measured, formula in rows if formula]
    if len(shares) < ENOUGH_RUNS:
        return None
    likely = median(shares)
    low, high = min(shares) * (1 - SPREAD), max(shares) * (1 + SPREAD)
    return Calibration((low, likely, high), len(shares), gpu_kind, version)


def newest_calibration(gpu_kind: str, runtime: str) -> Calibration | None:
    """That of the version of a runtime (tensorrt_llm, xllamacpp) which was measured last on this GPU kind."""
    rows = MemoryMeasurement.objects.filter(
        event=MemoryMeasurement.Event.LOAD,
        term=SCALED_TERM,
        gpu_kind=gpu_kind,
        version__startswith=f"{runtime} ",
    )
    version = rows.values_list("version", flat=True).first()
    return calibration(gpu_kind, version) if version else None


def measurements(
    *, engine: Engine | None = None, build: Build | None = None, instance: str = ""
) -> QuerySet[MemoryMeasurement]:
    """Measurements of an engine, a build or an instance, newest first."""
    rows = MemoryMeasurement.objects.select_related("engine", "build")
    if engine is not None:
        rows = rows.filter(engine=engine)
    if build is not None:
        rows = rows.filter(build=build)
    return rows.filter(subject=instance) if instance else rows


def as_dict(row: MemoryMeasurement) -> dict[str, Any]:
    """JSON form. Bytes, for kv_tokens tokens; `error` is a share of what was measured."""
    return {
        "event": row.event,
        "term": row.term,
        "engine": row.engine.fingerprint,
        "build": row.build.number if row.build else None,
        "instance": row.subject if row.event == MemoryMeasurement.Event.LOAD else None,
        "attempt": row.attempt,
        "predicted": row.predicted,
        "predicted_low": row.predicted_low,
        "predicted_high": row.predicted_high,
        "measured": row.measured,
        "error": row.error,
        "source": row.source,
        "version": row.version,
        "gpu_kind": row.gpu_kind,
        "created_at": row.created_at.isoformat(),
    }
