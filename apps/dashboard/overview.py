"""What the overview asks: is everything well, and if not, what first?"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Case, Count, IntegerField, Q, QuerySet, Value, When
from django.urls import reverse
from django.utils.translation import gettext as _

from apps.core import clock
from apps.core.models import AuditEntry, StatusModel
from apps.core.states import Tone
from apps.dashboard import formats, sparklines
from apps.dashboard.words import kind_word, verb_word
from apps.engines import states as build_states
from apps.engines.models import Build
from apps.fleet import states as node_states
from apps.fleet.models import Node
from apps.registry import states as checkpoint_states
from apps.registry.models import Checkpoint
from apps.serving import states as serving_states
from apps.serving.models import Deployment
from apps.telemetry.alerts import selectors as alerts
from apps.telemetry.domain.derive import Sample

ATTENTION_SHOWN = 12
ALERT_TONES: Mapping[str, Tone] = {"critical": "bad", "warning": "warn"}
DEPLOYMENTS_SHOWN = 12
CHANGES_SHOWN = 15
# Failed builds older than this no longer ask for anything.
FAILED_BUILD_HOURS = 48
RUNNING = (serving_states.READY, serving_states.DEGRADED)
# Sample values of the row of totals and of the rows, and what each is multiplied by for the page.
KEYS = {
    "requests_per_second": 1.0,
    "generated_tokens_per_second": 1.0,
    "ttft_p99_ms": 1.0,
    "cpu_use": 100.0,
    "gpu_use": 100.0,
    "rss_bytes": 1 / 2**30,
    "gpu_memory_used_bytes": 1 / 2**30,
}
ROW_KEYS = ("generated_tokens_per_second", "ttft_p99_ms")


@dataclass(frozen=True, slots=True)
class Attention:
    """One thing that needs a person: what, why, and the one button for it. `post` says that the button acts.

    `also` is a link beside it, with its address.
    """

    key: str
    tone: Tone
    state: str
    title: str
    url: str
    sentence: str
    remedy: str
    since: datetime
    button: str = ""
    button_url: str = ""
    post: bool = False
    also: str = ""
    also_url: str = ""


@dataclass(frozen=True, slots=True)
class Line:
    """A deployment as a row, with the sparklines of its samples."""

    deployment: Deployment
    serving: int
    lines: dict[str, list[float | None]] = field(default_factory=dict)
    last: Sample = field(default_factory=dict)


def attention() -> list[Attention]:
    """Everything that needs a person, worst and newest first. Six queries."""
    found = [*_alerts(), *_deployments(), *_nodes(), *_builds(), *_checkpoints()]
    order = {"bad": 0, "warn": 1}
    found.sort(key=lambda item: (order.get(item.tone, 2), -item.since.timestamp()))
    return found


def _item(
    row: StatusModel, title: str, url: str, button: str = "", button_url: str = "", post: bool = False
) -> Attention:
    return Attention(
        key=f"{row.kind}-{row.pk}",
        tone=row.machine.tones[row.state],
        state=row.state,
        title=title,
        url=url,
        sentence=row.sentence,
        remedy=row.remedy,
        since=row.state_since,
        button=button,
        button_url=button_url or url,
        post=post,
    )


def _alerts() -> Iterable[Attention]:
    """Alerts that fire, that nobody is on and nobody silenced."""
    for row in alerts.unattended():
        page = reverse("alerts:alert", args=[row.pk])
        yield Attention(
            key=f"alert-{row.pk}",
            tone=ALERT_TONES.get(row.severity, "idle"),
            state=row.state,
            title=f"{row.summary} ({row.target_name})" if row.target_name else row.summary,
            url=page,
            sentence=row.sentence,
            remedy=row.remedy,
            since=row.fired_at or row.true_since,
            button=_("Acknowledge"),
            button_url=reverse("alerts:acknowledge", args=[row.pk]),
            post=True,
            also=_("Silence"),
            also_url=f"{page}#silence",
        )


def _deployments() -> Iterable[Attention]:
    bad = (serving_states.FAILED, serving_states.DEGRADED)
    for row in Deployment.objects.filter(state__in=bad).order_by("-state_since")[:ATTENTION_SHOWN]:
        url = reverse("serving:instances", args=[row.name])
        title = _("Deployment %(name)s") % {"name": row.name}
        if row.state == serving_states.FAILED:
            yield _item(
                row, title, url, _("Deploy again"), reverse("serving:deploy", args=[row.name]), post=True
            )
        else:
            yield _item(row, title, url, _("See instances"))


def _nodes() -> Iterable[Attention]:
    for row in Node.objects.filter(state__in=(node_states.LOST, node_states.SUSPECT))[:ATTENTION_SHOWN]:
        url = reverse("fleet:node", args=[row.node_id])
        yield _item(row, _("Node %(name)s") % {"name": row}, url, _("See the node"))


def _builds() -> Iterable[Attention]:
    """Failed builds of which no later build of the same input succeeded or runs."""
    since = clock.now() - timedelta(hours=FAILED_BUILD_HOURS)
    recent = list(
        Build.objects.filter(Q(created_at__gte=since) | Q(state_since__gte=since))
        .exclude(state=build_states.CANCELLED)
        .order_by("-number")[:200]
    )
    settled: set[str] = set()
    for row in recent:
        if row.fingerprint in settled:
            continue
        settled.add(row.fingerprint)
        if row.state == build_states.FAILED:
            url = reverse("engines:build", args=[row.number])
            again = reverse("engines:retry", args=[row.number])
            yield _item(row, _("Build %(build)s") % {"build": row}, url, _("Try again"), again, post=True)


def _checkpoints() -> Iterable[Attention]:
    bad = (checkpoint_states.REFUSED, checkpoint_states.MISSING, checkpoint_states.FAILED)
    for row in Checkpoint.objects.filter(state__in=bad).order_by("-state_since")[:ATTENTION_SHOWN]:
        url = reverse("registry:checkpoint", args=[row.name])
        again = "retry" if row.is_fetched else "inspect"
        button = _("Try again") if row.is_fetched else _("Inspect again")
        address = reverse(f"registry:{again}", args=[row.name])
        yield _item(row, _("Checkpoint %(name)s") % {"name": row.name}, url, button, address, post=True)


def deployments() -> QuerySet[Deployment]:
    """Deployments in the order of the overview: what is wrong, what moves, what runs, the rest."""
    rank = Case(
        When(state__in=[serving_states.FAILED, serving_states.DEGRADED], then=Value(0)),
        When(state__in=list(serving_states.DEPLOYMENT.active), then=Value(1)),
        When(state=serving_states.READY, then=Value(2)),
        default=Value(3),
        output_field=IntegerField(),
    )
    serving = Count("instances", filter=Q(instances__state=serving_states.SERVING))
    return (
        Deployment.objects.select_related("build_profile__checkpoint", "batching")
        .annotate(rank=rank, serving=serving)
        .order_by("rank", "name")
    )


def lines(rows: Sequence[Deployment], samples: Mapping[int, list[Sample]], now: float) -> list[Line]:
    """Rows with their sparklines."""
    found = []
    for row in rows:
        mine = samples.get(row.pk, [])
        found.append(
            Line(
                deployment=row,
                serving=int(getattr(row, "serving", 0)),
                lines={key: sparklines.buckets(mine, key, now) for key in ROW_KEYS},
                last=_newest(mine, now),
            )
        )
    return found


def _newest(samples: list[Sample], now: float) -> Sample:
    """The newest sample, or nothing where it is too old to say what is."""
    fresh = bool(samples) and now - (samples[-1]["at"] or 0) < 2 * sparklines.STEP_SECONDS
    return samples[-1] if fresh else {}


def tiles(fleet: list[Sample], ready: int, wanted: int, now: float) -> list[sparklines.Tile]:
    """The row of totals over all deployments; of GPUs where any sample speaks of one, else of processors."""
    gpu = any(sample.get("gpu_use") is not None for sample in fleet)
    use, memory = ("gpu_use", "gpu_memory_used_bytes") if gpu else ("cpu_use", "rss_bytes")
    running = sparklines.Tile(
        label=_("Deployments ready"),
        value=formats.grouped(ready),
        unit=_("of %(n)s wanted") % {"n": formats.grouped(wanted)},
        url=reverse("serving:deployments"),
    )
    named = (
        ("requests_per_second", _("Requests"), _("/s")),
        ("generated_tokens_per_second", _("Tokens generated"), _("/s")),
        ("ttft_p99_ms", _("TTFT p99"), "ms"),
        (use, _("GPU in use") if gpu else _("CPU of servers"), "%"),
        (memory, _("GPU memory") if gpu else _("Memory of servers"), "GiB"),
    )
    newest = _newest(fleet, now)
    return [running, *(_tile(fleet, newest, key, label, unit, now) for key, label, unit in named)]


def _tile(
    fleet: list[Sample], newest: Sample, key: str, label: str, unit: str, now: float
) -> sparklines.Tile:
    value = newest.get(key)
    shown = formats.significant(None if value is None else value * KEYS[key])
    values = sparklines.buckets(fleet, key, now, 2 * sparklines.POINTS)
    return sparklines.Tile(
        label, shown, unit, sparklines.change(values), url=reverse("metrics:metrics"), key=key, values=values
    )


def sparks(rows: Sequence[Line], now: float, fleet: Sequence[sparklines.Tile] = ()) -> dict[str, Any]:
    """What static/js/pieces/sparks.js needs to move the lines on: series by topic, values by key."""
    series: dict[str, dict[str, list[float | None]]] = {
        f"metrics:{row.deployment.pk}": row.lines for row in rows
    }
    if fleet:
        series["metrics"] = {tile.key: tile.values for tile in fleet if tile.key}
    return {"now": now, "scale": KEYS, "series": series}


@dataclass(frozen=True, slots=True)
class Recent:
    """One recent change in words."""

    key: int
    who: str
    what: str
    where: str
    url: str
    sentence: str
    at: datetime


_PAGES = {"deployment": "serving:deployment", "checkpoint": "registry:checkpoint"}
# Steps that the parts of the system take by themselves many times in one piece of work.
_QUIET = ("instance.", "turn.", "node.", "conversation.", "revision.", "notification.")


def changes() -> list[Recent]:
    """The newest changes that tell a person something, newest first."""
    rows = AuditEntry.objects.select_related("actor").all()
    for beginning in _QUIET:
        rows = rows.exclude(verb__startswith=beginning)
    return [recent(row) for row in rows[:CHANGES_SHOWN]]


def recent(row: AuditEntry) -> Recent:
    """An audit row in words: what was done to which object."""
    verb = row.verb.partition(".")[2] or row.verb
    what = f"{kind_word(row.object_type)} {verb_word(verb)}"
    view = _PAGES.get(row.object_type)
    url = ""
    if row.object_type == "build" and row.object_label.startswith("#"):
        url = reverse("engines:build", args=[int(row.object_label[1:].split()[0])])
    elif view:
        url = reverse(view, args=[row.object_label])
    return Recent(row.pk, row.actor_label, what, row.object_label, url, row.sentence, row.at)
