"""What scales deployments: reads the figures, asks the domain, and has serving do it.

`sweep` comes from beat every few seconds, `wake_asked` with every tick of a control worker, so that a request that
finds a sleeping deployment waits for its start and for nothing else.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from django.db.models import F
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from apps.control import demand
from apps.core.exceptions import InflightError
from apps.serving import autoscale, selectors, states
from apps.serving.autoscale_policy import policy_of, scaling_of
from apps.serving.domain.autoscale import Decision, Policy, Situation, decide
from apps.serving.domain.autoscale_needs import Point
from apps.serving.models import Deployment, Instance
from apps.telemetry import history

log = logging.getLogger(__name__)
ACTOR = "autoscale"
# Length of one point: shorter ones are as noisy as single requests.
POINT_SECONDS = 5.0
MOST_POINTS = 720
KEYS = (
    "requests_running",
    "requests_waiting",
    "requests_pending",
    "slots",
    "ttft_p90_ms",
    "kv_use",
    "gpu_use",
    "targets",
    "engine_stale",
)
# States in which nobody but a person starts anything.
_HELD = (states.STOPPED, states.STOPPING, states.WAITING, states.FAILED)
# (deployment id, since, until) -> figures as telemetry's series gives them and the seconds of a step, for tests.
Read = Callable[[int, float, float], tuple[Sequence[dict[str, Any]], float]]


def sweep(read: Read | None = None, now: float | None = None) -> int:
    """Look at every deployment that scales itself; returns how many got another number of servers."""
    rows = [row for row in _running() if scaling_of(row).acts]
    if not rows:
        return 0
    moment = time.time() if now is None else now
    asked = demand.shared(demand.waiting())
    demand.record({row.pk: asked.get(row.pk, 0.0) for row in rows}, moment)
    changed = 0
    for row in rows:
        try:
            changed += look(row, asked.get(row.pk, 0.0), moment, read or _read)
        except InflightError as error:
            log.info("%s was not scaled: %s", row.name, error.sentence)
    return changed


def _running() -> list[Deployment]:
    rows = Deployment.objects.filter(desired=Deployment.Desired.RUNNING, active_revision__isnull=False)
    return list(rows.exclude(state__in=_HELD).exclude(scaling={}).select_related("active_revision"))


def look(row: Deployment, asked: float, now: float, read: Read) -> bool:
    """Decide on one deployment and make it so; whether its number of servers changed."""
    policy = policy_of(scaling_of(row))
    decision = decide(policy, situation(row, policy, asked, now, read))
    if decision.cause == "hold":
        autoscale.note(ACTOR, row, decision)
        return False
    return autoscale.change(ACTOR, row, decision)


def situation(row: Deployment, policy: Policy, asked: float, now: float, read: Read) -> Situation:
    """One deployment as the domain wants it."""
    decisions = autoscale.decisions(row)
    up = decisions.filter(after__gt=F("before")).values_list("at", flat=True).first()
    down = decisions.filter(after__lt=F("before")).values_list("at", flat=True).first()
    woken = decisions.filter(before=0, after__gt=0).values_list("at", flat=True).first()
    since = max((each for each in (row.deployed_at, woken) if each is not None), default=None)
    window = max(policy.up_window, policy.down_window)
    return Situation(
        replicas=row.active_revision.replicas if row.active_revision is not None else row.replicas,
        current=row.servers_of(row.active_revision),
        serving=selectors.routable_instances().filter(deployment=row).count(),
        now=now,
        points=points(row.pk, now - window, now, read) if policy.targets else (),
        idle_points=() if policy.idle is None else points(row.pk, now - policy.idle, now, read, queue=False),
        asked=-int(-asked // 1),
        rolling=selectors.pending_revision(row) is not None,
        reason=row.reason,
        since=since.timestamp() if since else None,
        last_up=up.timestamp() if up else None,
        last_down=down.timestamp() if down else None,
    )


def points(deployment: int, since: float, until: float, read: Read, queue: bool = True) -> tuple[Point, ...]:
    """A deployment's figures as the domain wants them. Without `queue` the gateway's is left out."""
    found, seconds = read(deployment, since, until)
    entries = demand.history(deployment, since) if queue else []
    return tuple(
        _point(each, min(seconds, max(0.0, until - each["at"])), entries, queue)
        for each in found
        if each["at"] < until and any(each.get(key) is not None for key in KEYS)
    )


def _point(
    sample: dict[str, Any], seconds: float, entries: Sequence[tuple[float, float]], queue: bool
) -> Point:
    at = float(sample["at"])
    running, waiting = sample.get("requests_running"), sample.get("requests_waiting")
    if sample.get("engine_stale"):
        # TensorRT-LLM's gauges are of its latest iteration; where none passes, nothing runs.
        running, waiting = running or 0.0, waiting or 0.0
    told = [each for each in (waiting, sample.get("requests_pending")) if each is not None]
    total = sum(told) if told else None
    if queue and total is not None:
        gateway = demand.during(entries, at, at + max(seconds, 1.0))
        total = None if gateway is None else total + gateway
    return Point(
        at=at,
        seconds=seconds,
        servers=sample.get("targets"),
        running=running,
        waiting=total,
        slots=sample.get("slots"),
        ttft_ms=sample.get("ttft_p90_ms"),
        kv_use=sample.get("kv_use"),
        gpu_use=sample.get("gpu_use"),
    )


def _read(deployment: int, since: float, until: float) -> tuple[Sequence[dict[str, Any]], float]:
    most = min(MOST_POINTS, max(1, int((until - since) / POINT_SECONDS)))
    found = history.series(history.Scope("deployment", deployment), since, until, most, KEYS)
    return found.points, found.step_seconds


def wake_asked() -> int:
    """Wake deployments that sleep while requests wait for them alone; returns how many."""
    rows = {
        row.pk: row
        for row in Deployment.objects.filter(desired=Deployment.Desired.RUNNING, scaled_to=0)
        .exclude(state__in=_HELD)
        .select_related("active_revision")
    }
    if not rows:
        return 0
    waiting = _for_sleepers(set(rows), demand.waiting())
    woken = 0
    for pk in {**waiting, **_for_sleepers(set(rows), demand.wanted())}:
        row, number = rows[pk], waiting.get(pk, 0)
        least = max(1, scaling_of(row).min_replicas)
        woken += autoscale.change(
            ACTOR, row, Decision(least, "wake", "asked", _why_woken(number), {"asked": number})
        )
    return woken


def _why_woken(number: int) -> str:
    if not number:
        return _("It was asked for, and the route that stands in for it answers meanwhile: it is woken.")
    return ngettext(
        "%(count)d request waits for it at the gateway: it is woken.",
        "%(count)d requests wait for it at the gateway: it is woken.",
        number,
    ) % {"count": number}


def _for_sleepers(sleeping: set[int], asked: Iterable[tuple[int, ...]]) -> dict[int, int]:
    """How many ask for each sleeping deployment: those that no other one behind their name can answer."""
    waits = [ids for ids in asked if sleeping & set(ids)]
    if not waits:
        return {}
    others = {each for ids in waits for each in ids} - sleeping
    serving = set(
        Instance.objects.filter(deployment__in=others, state=states.SERVING).values_list(
            "deployment", flat=True
        )
    )
    found: dict[int, int] = {}
    for ids in waits:
        if serving & set(ids):
            continue
        first = next(each for each in ids if each in sleeping)
        found[first] = found.get(first, 0) + 1
    return found


def opinion(row: Deployment) -> tuple[Policy, Situation, Decision]:
    """What would be decided now, and by what. Changes nothing."""
    policy = policy_of(scaling_of(row))
    now = time.time()
    asked = demand.shared(demand.waiting()).get(row.pk, 0.0)
    found = situation(row, policy, asked, now, _read)
    return policy, found, decide(policy, found)
