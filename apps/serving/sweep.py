"""What keeps deployments true without anybody pressing anything. Run every few seconds on the control queue.

A lost signal loses nothing: the sweep does again what signals do at once.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass

from django.db.models import Q
from django.utils.translation import gettext as _

from apps.core.exceptions import InflightError
from apps.core.transitions import amend, transition
from apps.engines import states as engine_states
from apps.engines.models import Build
from apps.fleet import states as fleet_states
from apps.serving import services, states
from apps.serving.models import Deployment, Instance

log = logging.getLogger(__name__)
ACTOR = "sweep"
MARKED_AT_ONCE = 100


@dataclass(frozen=True, slots=True)
class Swept:
    """What one sweep did, in counts."""

    moved_on: int
    unreachable: int


def sweep() -> Swept:
    """Move waiting deployments on, and mark servers of lost nodes unreachable."""
    moved = sum(advance(row) for row in Deployment.objects.filter(waiting_build__isnull=False))
    return Swept(moved_on=moved, unreachable=mark_unreachable())


def build_ended(build: Build) -> None:
    """Move deployments on that wait for this build, if it has ended."""
    if build.state not in engine_states.BUILD.terminal:
        return
    for deployment in build.waiting.all():
        try:
            advance(deployment)
        except InflightError:
            # The sweep tries again; the worker that ended the build must not fail over this.
            log.exception("deployment %s could not go on after build #%d", deployment.name, build.number)


def advance(deployment: Deployment) -> bool:
    """Go on with a deployment whose build has ended, or say why it cannot. False while it still waits."""
    build = deployment.waiting_build
    if build is None or build.state not in engine_states.BUILD.terminal:
        return False
    if build.state == engine_states.SUCCEEDED and build.engine is not None:
        return services.start_waiting(ACTOR, deployment, build.engine)
    number = f"#{build.number}"
    if build.state == engine_states.CANCELLED:
        sentence = _("Build %(number)s was cancelled.") % {"number": number}
    else:
        sentence = _("Build %(number)s failed: %(cause)s") % {"number": number, "cause": build.sentence}
    reason = f"build_{build.state}"
    remedy = build.remedy or _("Deploy again; that starts a new build.")
    if transition(
        deployment,
        states.FAILED,
        actor=ACTOR,
        sources=[states.WAITING],
        reason=reason,
        sentence=sentence,
        remedy=remedy,
        waiting_build=None,
    ):
        return True
    # It serves an earlier revision meanwhile and goes on doing so.
    return amend(deployment, waiting_build=None, reason=reason, sentence=sentence, remedy=remedy)


def mark_unreachable(silent: Iterable[int] = ()) -> int:
    """Servers of lost nodes may still serve, but nobody looks after them; returns how many were marked.

    `silent`: ids of further nodes that do not answer, those in maintenance.
    At most MARKED_AT_ONCE: a whole rack that is lost must not make a tick late.
    """
    sources = (states.SPAWNED, states.LOADING, states.SERVING, states.DRAINING)
    gone = Q(node__state=fleet_states.LOST) | Q(node__in=list(silent))
    rows = Instance.objects.select_related("node").filter(gone, state__in=sources)
    rows = rows.order_by("pk")[:MARKED_AT_ONCE]
    return sum(
        transition(
            row,
            states.UNREACHABLE,
            actor=ACTOR,
            sources=[row.state],
            reason="node_lost",
            sentence=_("Its node %(node)s does not answer; the server may still serve.") % {"node": row.node},
            remedy=row.node.remedy if row.node else "",
        )
        for row in rows
    )
