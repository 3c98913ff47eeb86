"""Work that is going on now: builds, fetched checkpoints, deployments on their way up or down, load runs."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from django.urls import reverse
from django.utils.translation import gettext as _

from apps.core.states import Tone
from apps.engines.models import Build
from apps.engines.states import BUILD
from apps.loadtests.models import LoadRun, QualityRun
from apps.loadtests.states import LOADRUN, QUALITYRUN
from apps.registry.models import Checkpoint
from apps.registry.states import CHECKPOINT, HELD
from apps.serving.models import Deployment
from apps.serving.states import DEPLOYMENT

SHOWN = 20


@dataclass(frozen=True, slots=True)
class Work:
    """One line of the running work. `progress` is 0..1 or None where nobody can tell."""

    key: str
    title: str
    url: str
    state: str
    tone: Tone
    stage: str
    progress: float | None
    eta_seconds: float | None
    since: datetime


def running() -> list[Work]:
    """Running work, builds first, at most SHOWN of each. Five queries."""
    builds = (
        Build.objects.filter(state__in=BUILD.active).select_related("checkpoint").order_by("number")[:SHOWN]
    )
    moving = Deployment.objects.filter(state__in=DEPLOYMENT.active).order_by("state_since")[:SHOWN]
    fetched = Checkpoint.objects.filter(state__in=CHECKPOINT.active).order_by("state_since")
    tests = (
        LoadRun.objects.filter(state__in=LOADRUN.active).defer("series", "summary").order_by("number")[:SHOWN]
    )
    compared = (
        QualityRun.objects.filter(state__in=QUALITYRUN.active).defer("result").order_by("number")[:SHOWN]
    )
    return [
        *map(_build, builds),
        *map(_checkpoint, fetched.defer("chat_template", "facts")[:SHOWN]),
        *map(_deployment, moving),
        *map(_load_run, tests),
        *map(_quality_run, compared),
    ]


def current_stage(build: Build) -> str:
    """Title of the stage that runs, or an empty text."""
    found = next((stage for stage in build.stages if stage.get("state") == "running"), None)
    return str(found.get("title") or found.get("name", "")) if found else ""


def _build(build: Build) -> Work:
    url = reverse("engines:build", args=[build.number])
    return _numbered(build, _("Build %(build)s") % {"build": build}, url, current_stage(build))


def _numbered(row: Build | LoadRun | QualityRun, title: str, url: str, stage: str) -> Work:
    return Work(
        key=f"{row.kind}-{row.number}",
        title=title,
        url=url,
        state=row.state,
        tone=row.machine.tones[row.state],
        stage=stage,
        progress=row.progress if row.state == "running" else None,
        eta_seconds=row.eta_seconds,
        since=row.state_since,
    )


def _checkpoint(checkpoint: Checkpoint) -> Work:
    return Work(
        key=f"checkpoint-{checkpoint.pk}",
        title=_("Checkpoint %(name)s") % {"name": checkpoint.name},
        url=reverse("registry:checkpoint", args=[checkpoint.name]),
        state=checkpoint.state,
        tone=checkpoint.machine.tones[checkpoint.state],
        stage=checkpoint.sentence,
        progress=checkpoint.progress if checkpoint.state in HELD else None,
        eta_seconds=checkpoint.eta_seconds,
        since=checkpoint.state_since,
    )


def _deployment(deployment: Deployment) -> Work:
    return Work(
        key=f"deployment-{deployment.pk}",
        title=_("Deployment %(name)s") % {"name": deployment.name},
        url=reverse("serving:deployment", args=[deployment.name]),
        state=deployment.state,
        tone=deployment.machine.tones[deployment.state],
        stage=deployment.sentence,
        progress=None,
        eta_seconds=None,
        since=deployment.state_since,
    )


def _load_run(run: LoadRun) -> Work:
    url = reverse("loadtests:run", args=[run.number])
    return _numbered(run, _("Load run %(run)s") % {"run": run}, url, run.sentence)


def _quality_run(run: QualityRun) -> Work:
    url = reverse("loadtests:quality_run", args=[run.number])
    return _numbered(run, _("Quality run %(run)s") % {"run": run}, url, run.sentence)
