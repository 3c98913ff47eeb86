"""What a trial's run says of what tunings look for: its figures, and those that need power or prices."""

from __future__ import annotations

from typing import Any

from apps.fleet.models import GpuLease
from apps.loadtests.domain.metrics import lost_share
from apps.loadtests.domain.tuner_goals import FIGURES
from apps.loadtests.models import LoadRun
from apps.serving.models import Deployment, Instance
from apps.telemetry import history

MILLION = 1_000_000.0


def figures_of(run: LoadRun) -> dict[str, float | None] | None:
    """Every figure of the run's first step that goals can name; what it does not tell is null. None: not measured."""
    steps = (run.summary or {}).get("steps") or []
    if not steps:
        return None
    told: dict[str, Any] = steps[0]["figures"]
    found: dict[str, float | None] = {name: told.get(name) for name in FIGURES}
    found["failed_share"] = lost_share(told)
    tokens = told.get("output_tokens_per_second")
    if run.deployment is not None and tokens:
        found["tokens_per_watt"] = _per_watt(run, run.deployment, float(tokens))
        found["cost_per_million_tokens"] = _cost(run.deployment, float(tokens))
    return found


def _per_watt(run: LoadRun, deployment: Deployment, tokens: float) -> float | None:
    """Tokens/s for each watt of the GPUs that served, over the run; null where no device tells its power."""
    if run.started_at is None or run.finished_at is None:
        return None
    scope = history.Scope("deployment", deployment.pk)
    told = history.window(scope, run.started_at.timestamp(), run.finished_at.timestamp())
    watts = told["means"].get("gpu_power_watts")
    return tokens / float(watts) if watts else None


def _cost(deployment: Deployment, tokens: float) -> float | None:
    """Price of the slots that its servers hold, for a million tokens; null where a slot has no price."""
    servers = list(
        Instance.objects.filter(deployment=deployment)
        .exclude(state__in=("gone", "failed"))
        .values_list("pk", flat=True)
    )
    leases = list(
        GpuLease.objects.filter(
            holder_kind=Instance.kind, holder_id__in=servers, released_at__isnull=True
        ).select_related("gpu")
    )
    if not leases or any(lease.gpu.price_per_hour is None for lease in leases):
        return None
    hour = sum(float(lease.gpu.price_per_hour or 0) * lease.share / lease.gpu.total_share for lease in leases)
    return hour / (tokens * 3600) * MILLION
