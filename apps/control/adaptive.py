"""Adaptive batching on the real gateway: every sweep looks at what requests saw, and moves what needs no restart.

Admitted concurrency and the queue's limit are the gateway's, so they move live. The queue delay is Triton's
and read when a model is loaded: moving it would restart servers, so it is moved in the simulation alone
(benchmarks/adaptive.py) and left to the advisor and the tuner here.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from datetime import timedelta

import numpy as np

from apps.control.domain.adaptive import Aim, Bounds, Move, Pace, Seen, Setting, decide, memory_of
from apps.core import clock
from apps.core.exceptions import InflightError
from apps.gateway import adaptive, running
from apps.gateway.adaptive_models import AdaptiveAdmission
from apps.gateway.models import GatewayRoute, RequestLog
from apps.gateway.table import slots_of
from apps.serving import policies
from apps.serving import selectors as serving
from apps.serving.models import Deployment

log = logging.getLogger(__name__)
# Requests are logged when they end; no answer takes longer than this and still says something of now.
LONGEST_ANSWER_SECONDS = 600.0
MOST_ROWS = 20_000
# (deployment, seconds) -> what its requests saw, for tests that hold the figures.
Read = Callable[[Deployment, float], Seen]


def sweep(read: Read | None = None, now: float | None = None) -> int:
    """Look at every deployment whose adaptive admission is on; returns how many levers were moved."""
    moved = 0
    for row in adaptive.enabled():
        try:
            moved += look(
                row, (read or seen_by)(row.deployment, window_of(row)), time.time() if now is None else now
            )
        except InflightError as error:
            log.info("adaptive batching of %s did not look: %s", row.deployment.name, error.sentence)
    return moved


def window_of(row: AdaptiveAdmission) -> float:
    """Over what time its figures are read, seconds."""
    return float(adaptive.fields_of(row).window_seconds)


def look(row: AdaptiveAdmission, seen: Seen, now: float) -> int:
    """One look at one deployment; returns how many levers were moved."""
    fields, slo = adaptive.fields_of(row), policies.slo_of(row.deployment)
    revision = row.deployment.active_revision
    slots = slots_of(revision.batching) if revision is not None else None
    most = min(one for one in (fields.most_admitted, slots, 4096) if one is not None)
    bounds = Bounds(
        admitted=(min(fields.least_admitted, most), most), queue=(fields.least_queue, fields.most_queue)
    )
    begun = Setting(
        admitted=row.admitted if row.admitted is not None else most,
        queue=row.queue if row.queue is not None else fields.most_queue,
    )
    aim = Aim(fields.ttft_ms or slo.ttft_ms, fields.itl_ms or slo.itl_ms)
    # What a window shows from before a move says nothing of what the move did.
    pace = Pace(fields.hold, float(max(fields.settle_seconds, fields.window_seconds)))
    setting, memory, moves = decide(begun, bounds, aim, pace, seen, memory_of(row.memory), now)
    kept = adaptive.looked(
        row,
        admitted=setting.admitted,
        queue=setting.queue,
        memory=memory.as_dict(),
        sentence=told(seen),
        moves=[_plain(move, seen) for move in moves],
    )
    return len(moves) if kept else 0


def _plain(move: Move, seen: Seen) -> dict[str, object]:
    figures = {
        name: getattr(seen, name)
        for name in (
            "requests",
            "arrivals_per_second",
            "answers_per_second",
            "waiting",
            "running",
            "ttft_ms",
            "itl_ms",
            "slot_seconds",
        )
    }
    return {
        "lever": move.lever,
        "before": move.before,
        "after": move.after,
        "reason": move.reason,
        "sentence": move.sentence,
        "figures": figures,
    }


def told(seen: Seen) -> str:
    """What a look saw, in a line; plain words of the field, so it is not translated."""
    parts = [f"{seen.requests} answers"]
    for title, value, unit in (
        ("arrivals", seen.arrivals_per_second, "/s"),
        ("running", seen.running, ""),
        ("waiting", seen.waiting, ""),
        ("TTFT p90", seen.ttft_ms, " ms"),
        ("ITL p90", seen.itl_ms, " ms"),
    ):
        if value is not None:
            parts.append(f"{title} {value:.1f}{unit}" if unit == "/s" else f"{title} {value:.0f}{unit}")
    return ", ".join(parts)


# ---------------------------------------------------------------------- what requests saw


def seen_by(deployment: Deployment, seconds: float) -> Seen:
    """What requests to a deployment saw in the last seconds, through whatever public names lead to it."""
    names = routes_to(deployment)
    now = clock.now()
    since = now - timedelta(seconds=seconds)
    rows = RequestLog.objects.filter(
        route__in=names, at__gte=since - timedelta(seconds=LONGEST_ANSWER_SECONDS)
    ).values_list("at", "outcome", "ttft_ms", "total_ms", "completion_tokens", "queue_ms")[:MOST_ROWS]
    came, refused, ended = 0, 0, 0
    ttft: list[float] = []
    gaps: list[float] = []
    held: list[float] = []
    for at, outcome, first, total, tokens, queued in rows:
        came += at >= since
        refused += at >= since and outcome == "refused"
        if total is None or at + timedelta(milliseconds=total) < since or outcome != "ok":
            continue
        ended += 1
        held.append(max(0.0, total - (queued or 0.0)) / 1000)
        if first is not None:
            ttft.append(first)
            if tokens is not None and tokens > 1:
                gaps.append((total - first) / (tokens - 1))
    present = [one for one in running.snapshot() if one.route in names]
    came += sum(one.began >= since.timestamp() for one in present)
    return Seen(
        requests=ended,
        arrivals_per_second=came / seconds,
        answers_per_second=ended / seconds,
        waiting=float(sum(one.phase == "waiting" for one in present)),
        running=float(sum(one.phase != "waiting" for one in present)),
        ttft_ms=_p90(ttft),
        itl_ms=_p90(gaps),
        slot_seconds=sum(held) / len(held) if held else None,
        refused_share=refused / came if came else None,
        servers=max(1, len(serving.endpoints(deployment))),
    )


def _p90(values: Sequence[float]) -> float | None:
    return float(np.percentile(values, 90)) if values else None


def routes_to(deployment: Deployment) -> set[str]:
    """Public names whose requests come to this deployment."""
    found = {deployment.name}
    for row in GatewayRoute.objects.all():
        targets = {str(target.get("deployment", "")) for target in row.targets}
        if deployment.name in targets:
            found.add(row.name)
        elif row.name == deployment.name and row.targets:
            found.discard(row.name)
    return found
