"""Judging nodes by their beats. A lost node is not a lost job: builds and servers live by their own leases."""

from __future__ import annotations

import logging

import redis
from django.conf import settings
from django.utils.translation import gettext as _

from apps.core import database_time
from apps.core.transitions import transition
from apps.fleet import beats, leads, states
from apps.fleet.domain import silence
from apps.fleet.domain.silence import Judgement, Seen, Verdict
from apps.fleet.models import Node
from apps.fleet.services import release_expired

log = logging.getLogger(__name__)


def sweep() -> list[Verdict]:
    """Say which protocol we speak, close leases that ran out, judge the nodes. Returns what was judged."""
    leads.announce_protocol()
    release_expired()
    return judge_nodes()


def judge_nodes() -> list[Verdict]:
    """Mark silent nodes suspect or lost; two queries and one round trip to Redis where none is.

    Nothing is judged without Redis, nor where so many fall silent at once that we doubt ourselves.
    """
    watched = list(Node.objects.filter(state__in=[states.READY, states.SUSPECT]))
    if not watched:
        return []
    try:
        ages = beats.ages([node.node_id for node in watched])
    except redis.RedisError as error:
        log.warning("Redis does not answer, so no node is judged: %s", error)
        return []
    found = judge(watched, ages)
    if found.doubted:
        log.warning("%d of %d nodes are silent at once: doubting this host.", found.silent, found.watched)
    rows = {node.pk: node for node in watched}
    return [verdict for verdict in found.verdicts if _apply(rows[verdict.node], verdict)]


def silent_in_maintenance() -> list[int]:
    """Ids of nodes in maintenance that have been silent for as long as a lost one.

    Their state stays what a person said; what runs there is out of reach all the same. None where Redis is gone.
    """
    nodes = list(Node.objects.filter(state=states.MAINTENANCE))
    if not nodes:
        return []
    try:
        ages = beats.ages([node.node_id for node in nodes])
    except redis.RedisError:
        return []
    limit = silence.LOST_AFTER_SECONDS
    return [node.pk for node in nodes if (ages[node.node_id].beat or 0.0) > limit]


def judge(nodes: list[Node], ages: dict[str, beats.Ages]) -> Judgement:
    """What the ages of these nodes' beats say of them all together."""
    now = database_time.now()
    own = next((node.pk for node in nodes if node.node_id == settings.INFLIGHT_NODE_ID), None)
    return silence.judge(
        [
            Seen(
                node=node.pk,
                state=node.state,
                beat=ages[node.node_id].beat,
                echo=ages[node.node_id].echo,
                row=max(0.0, (now - (node.last_seen or node.created_at)).total_seconds()),
            )
            for node in nodes
        ],
        own,
    )


def _apply(node: Node, verdict: Verdict) -> bool:
    words = {"host": node.hostname, "seconds": round(verdict.silence)}
    if verdict.reason == silence.NO_HEARTBEAT:
        sentence = _("%(host)s has sent no heartbeat for %(seconds)d s.") % words
        remedy = _("See whether its control worker runs and reaches Redis: make status on that host.")
    else:
        sentence = _("%(host)s is alive but has taken no task from its queue for %(seconds)d s.") % words
        remedy = _("Restart its control worker; what it serves goes on.")
    return transition(
        node, verdict.target, actor="sweep", reason=verdict.reason, sentence=sentence, remedy=remedy
    )
