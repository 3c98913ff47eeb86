"""Judging nodes by their beats. A lost node is not a lost job: builds and servers live by their own leases."""

from __future__ import annotations

import logging
from dataclasses import dataclass

import redis
from django.utils.translation import gettext as _

from apps.core import clock
from apps.core.transitions import transition
from apps.fleet import beats, states
from apps.fleet.models import Node
from apps.fleet.policy import LOST_AFTER_SECONDS, ROW_EVERY_SECONDS, SUSPECT_AFTER_SECONDS
from apps.fleet.services import release_expired

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Judgement:
    """What a node's silence means: its new state, and which of the two signs is missing."""

    node: Node
    target: str
    reason: str


def sweep() -> list[Judgement]:
    """Close leases that ran out, then mark silent nodes suspect or lost. Returns what was judged.

    Nothing is judged without Redis. Where more than half of several nodes fall silent at once it is more likely
    that this host is cut off than that they all died, so nothing is judged either.
    """
    release_expired()
    watched = list(Node.objects.filter(state__in=[states.READY, states.SUSPECT]))
    try:
        ages = beats.ages([node.node_id for node in watched])
    except redis.RedisError as error:
        log.warning("Redis does not answer, so no node is judged: %s", error)
        return []
    found = [verdict for node in watched if (verdict := judge(node, ages[node.node_id]))]
    silent = {verdict.node.pk for verdict in found}
    if len(watched) > 1 and len(silent) * 2 > len(watched):
        log.warning("%d of %d nodes are silent at once: doubting this host.", len(silent), len(watched))
        return []
    return [verdict for verdict in found if _apply(verdict)]


def judge(node: Node, ages: beats.Ages) -> Judgement | None:
    """What one node's ages say, or None where it is well. A key that Redis lost is judged by `last_seen`."""
    beat = ages.beat
    if beat is None:
        # The row is written less often than the key, so it is given that much longer.
        seen = node.last_seen or node.created_at
        beat = max(0.0, (clock.now() - seen).total_seconds() - ROW_EVERY_SECONDS)
    echo = beat if ages.echo is None else ages.echo
    silence = max(beat, echo)
    if silence <= SUSPECT_AFTER_SECONDS:
        return None
    reason = "no_heartbeat" if beat > SUSPECT_AFTER_SECONDS else "takes_no_tasks"
    if node.state == states.READY:
        return Judgement(node, states.SUSPECT, reason)
    if silence > LOST_AFTER_SECONDS:
        return Judgement(node, states.LOST, reason)
    return None


def _apply(verdict: Judgement) -> bool:
    node = verdict.node
    if verdict.reason == "no_heartbeat":
        sentence = _("%(host)s sends no heartbeat.") % {"host": node.hostname}
        remedy = _("See whether its control worker runs and reaches Redis: make status on that host.")
    else:
        sentence = _("%(host)s is alive but takes no tasks from its queue.") % {"host": node.hostname}
        remedy = _("Restart its control worker; what it serves goes on.")
    return transition(
        node, verdict.target, actor="sweep", reason=verdict.reason, sentence=sentence, remedy=remedy
    )
