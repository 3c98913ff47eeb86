"""How long stages of builds like this one took: what an ETA is made of."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from statistics import median
from typing import Any

from apps.engines import states
from apps.engines.models import Build

# Successful builds of the same shape before their times count, and how many of the newest count.
ENOUGH_BUILDS = 3
NEWEST_BUILDS = 12
# Among how many of the newest successful builds of a kind others of the same shape are looked for.
SEARCHED = 60
# What makes two checkpoints alike for a build: sizes, not names.
SHAPE_FACTS = (
    *("family", "num_layers", "hidden_size", "num_attention_heads", "num_kv_heads", "vocab_size"),
    *("intermediate_size", "num_experts", "params", "file_type"),
)
SHAPE_REQUEST = ("parallel", "build", "dtype")


def stage_seconds(build: Build) -> dict[str, float]:
    """Median seconds of each stage over builds of the same shape; empty until three of them have succeeded.

    The same shape: builder, recipe, weight format, sizes of the model, ranks, build settings, kind of GPU.
    """
    wanted = shape_of(build)
    candidates = (
        Build.objects.filter(
            state=states.SUCCEEDED,
            reused=False,
            builder=build.spec.get("builder", ""),
            quantization=build.spec.get("quantization", ""),
        )
        .exclude(pk=build.pk)
        .select_related("checkpoint", "gpu")
        .order_by("-number")[:SEARCHED]
    )
    alike = [row for row in candidates if shape_of(row) == wanted][:NEWEST_BUILDS]
    found: dict[str, list[float]] = {}
    for row in alike:
        for stage in row.stages:
            seconds = seconds_of(stage)
            if seconds is not None and stage.get("state") == "done" and not stage.get("kept"):
                found.setdefault(str(stage.get("name")), []).append(seconds)
    return {name: median(times) for name, times in found.items() if len(times) >= ENOUGH_BUILDS}


def shape_of(build: Build) -> dict[str, Any]:
    """What builds must share for their times to tell of each other."""
    request = build.spec.get("request") or {}
    facts = build.checkpoint.facts or {}
    return {
        "builder": build.spec.get("builder"),
        "recipe": build.spec.get("recipe"),
        "quantization": build.spec.get("quantization"),
        "options": build.spec.get("options"),
        **{name: facts.get(name) for name in SHAPE_FACTS},
        **{name: request.get(name) for name in SHAPE_REQUEST},
        "calibration": (request.get("quantization") or {}).get("calibration"),
        "gpu": build.gpu.product if build.gpu else None,
    }


def seconds_of(stage: Mapping[str, Any]) -> float | None:
    """How long a stage took, None while it runs or where nobody noted it."""
    try:
        began = datetime.fromisoformat(str(stage["started_at"]))
        ended = datetime.fromisoformat(str(stage["finished_at"]))
    except (KeyError, ValueError):
        return None
    return max(0.0, (ended - began).total_seconds())
