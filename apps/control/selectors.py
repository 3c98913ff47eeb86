"""What the advisor thinks of a deployment now. Reads samples, distributions and rows; changes nothing."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from django.utils.translation import gettext as _

from apps.control import wording
from apps.control.domain.advice import rulebook
from apps.control.domain.advice.figures import Distribution, Figures, Sample
from apps.control.domain.advice.outcome import Device, Subject
from apps.control.domain.advice.rulebook import Opinion
from apps.core.exceptions import NotFound
from apps.fleet.models import Gpu
from apps.serving import revisions
from apps.serving import selectors as serving
from apps.serving.models import Deployment, Revision
from apps.telemetry import history
from apps.telemetry import selectors as telemetry

# Seconds that the advisor looks back, by default and at most.
WINDOW = 900.0
LONGEST_WINDOW = 3600.0
MOST_SAMPLES = 1200
# What happens while servers are new says nothing about how they run.
SETTLING_SECONDS = 30.0
_DISTRIBUTIONS = ("triton_batch_size", "batch_size", "prompt_tokens", "generated_tokens")
# (deployment id, since, until) -> samples and distributions, for tests that hold the figures.
Read = Callable[[int, float, float], tuple[Sequence[Sample], dict[str, Distribution]]]


@dataclass(frozen=True, slots=True)
class Report:
    """An opinion with what it is about. `blocked`: why no button may change the deployment now; empty: it may."""

    deployment: Deployment
    revision: Revision
    opinion: Opinion
    blocked: str


def report(deployment: Deployment, seconds: float = WINDOW, read: Read | None = None) -> Report:
    """The advisor's opinion of what runs, over its last `seconds`, but not from before it ran like this.

    Raises NotFound where nothing was deployed yet.
    """
    revision = deployment.active_revision
    if revision is None:
        raise NotFound(
            "nothing_runs",
            _("%(name)s has not run yet, so there is nothing to advise on.") % {"name": deployment.name},
            remedy=_("Deploy it and let requests come."),
        )
    until = time.time()
    began = revision.state_since.timestamp() + SETTLING_SECONDS
    since = min(until, max(until - min(max(seconds, 60.0), LONGEST_WINDOW), began))
    samples, distributions = (read or _read)(deployment.pk, since, until)
    figures = Figures(since, until, tuple(samples), distributions)
    opinion = wording.translated(rulebook.opinion(subject_of(deployment, revision), figures))
    return Report(deployment, revision, opinion, _blocked(deployment, revision))


def subject_of(deployment: Deployment, revision: Revision) -> Subject:
    """The deployment as it runs, as the rules see it."""
    builder = revision.engine.builder if revision.engine is not None else "repository"
    batching = revision.batching
    return Subject(
        batching=batching,
        builder=builder,
        device=_device(deployment),
        replicas=max(1, deployment.servers_of(revision)),
        # The embedded model keeps each slot's cache and looks for the longest common beginning.
        reuse=True if builder == "llamacpp" else _flag(batching.get("enable_kv_cache_reuse")),
        # It also processes prompts in pieces beside running answers.
        chunked_context=True if builder == "llamacpp" else _flag(batching.get("enable_chunked_context")),
    )


def _flag(value: Any) -> bool | None:
    return value if isinstance(value, bool) else None


def _device(deployment: Deployment) -> Device | None:
    devices = set(serving.serving_instances(deployment).values_list("gpu__device", flat=True))
    if devices == {Gpu.Device.GPU}:
        return "gpu"
    return "cpu" if devices == {Gpu.Device.CPU} else None


def _blocked(deployment: Deployment, revision: Revision) -> str:
    if deployment.desired != Deployment.Desired.RUNNING:
        return _("It is stopped: deploy it first.")
    profile = revisions.batching_snapshot(deployment.batching)
    target = serving.target_revision(deployment)
    if profile != revision.batching or target is None or target.pk != revision.pk:
        return _("The configuration differs from what runs: deploy or undo those changes first.")
    return ""


def _read(deployment_id: int, since: float, until: float) -> tuple[Sequence[Sample], dict[str, Distribution]]:
    samples = [
        sample
        for sample in telemetry.history(deployment_id, until - since, MOST_SAMPLES)
        if (sample["at"] or 0.0) >= since
    ]
    scope = history.Scope("deployment", deployment_id)
    found: dict[str, Distribution] = {}
    for name in _DISTRIBUTIONS:
        heat = history.distribution(scope, cast(history.Distribution, name), since, until, max_columns=1)
        if heat.histogram == name and heat.counts:
            counts = tuple(sum(column) for column in zip(*heat.counts, strict=True))
            bounds = tuple(math.inf if bound is None else bound for bound in heat.bounds)
            found[name] = Distribution(bounds, counts)
    return samples, found
