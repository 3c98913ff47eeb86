"""Setting nodes aside and describing them: cordon, maintenance with drain, labels, host policy, forgetting."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.db import transaction
from django.utils.translation import gettext as _

from apps.accounts.roles import Action, require
from apps.core import audit, database_time
from apps.core.exceptions import InvalidInput, NotPossibleNow
from apps.core.transitions import amend, transition
from apps.fleet import states
from apps.fleet.inputs import check_labels, check_policy
from apps.fleet.models import Gpu, GpuLease, Node

# Servers of a node in maintenance look for another place so long before they end without one.
DRAIN_SECONDS = 600
MOST_DRAIN_SECONDS = 7 * 86_400
MOST_REASON = 300
# Labels of nodes that are older than host policies and still count (workers/server_policy.py).
LOOSENING = ("allow_old_triton",)


def set_cordoned(actor: audit.Actor, node: Node, cordoned: bool, reason: str = "") -> Node:
    """Keep new work away from a node, or let it come again. What runs there goes on. Needs the role operator.

    `reason` is shown where something waits because of it; at most 300 characters.
    """
    require(actor, Action.OPERATE)
    kept = _reason(reason) if cordoned else ""
    with transaction.atomic():
        if amend(node, cordoned=cordoned, cordon_reason=kept):
            verb = "node.cordoned" if cordoned else "node.uncordoned"
            audit.record(actor, verb, node, sentence=kept)
    return node


def start_maintenance(
    actor: audit.Actor, node: Node, reason: str = "", drain_seconds: object = DRAIN_SECONDS
) -> Node:
    """Empty a node: no new work, builds run to their end, each server moves to another node before it ends here.

    A server that finds no other place ends after `drain_seconds` (0: at once; at most a week). Asked again it sets a
    new deadline. Needs the role operator. Raises InvalidInput, NotPossibleNow.
    """
    require(actor, Action.OPERATE)
    seconds = _drain_seconds(drain_seconds)
    why = _reason(reason)
    until = database_time.now() + timedelta(seconds=seconds)
    sentence = _("In maintenance: %(why)s") % {"why": why} if why else _("In maintenance.")
    words: dict[str, Any] = {
        "reason": "maintenance",
        "sentence": sentence,
        "remedy": _("Its servers move to other nodes; end the maintenance to let work come again."),
    }
    with transaction.atomic():
        node.refresh_from_db()
        if node.state == states.MAINTENANCE:
            amend(node, drain_deadline=until, **words)
            audit.record(
                actor, "node.maintenance", node, sentence=sentence, detail={"drain_seconds": seconds}
            )
        elif not transition(
            node, states.MAINTENANCE, actor=actor, verb="node.maintenance", drain_deadline=until, **words
        ):
            raise NotPossibleNow(
                "node_not_there",
                _("%(host)s is %(state)s.") % {"host": node, "state": node.state},
                remedy=_("Wait until it has joined."),
            )
    return node


def end_maintenance(actor: audit.Actor, node: Node) -> Node:
    """Let work come to a node again. One that is silent is judged by its beats from then on. Needs operator."""
    require(actor, Action.OPERATE)
    if not transition(
        node,
        states.READY,
        actor=actor,
        sources=[states.MAINTENANCE],
        verb="node.maintenance_ended",
        drain_deadline=None,
    ):
        raise NotPossibleNow(
            "node_not_in_maintenance",
            _("%(host)s is not in maintenance; it is %(state)s.") % {"host": node, "state": node.state},
            remedy=_("Uncordon it if it takes no work."),
        )
    return node


def set_labels(actor: audit.Actor, node: Node, labels: Any) -> Node:
    """Say what a node is, for placement: {key: value} replaces what it had. Needs configure. Raises InvalidInput.

    Labels that loosen what may run there need the role administrator, as the policy does.
    """
    require(actor, Action.CONFIGURE)
    checked = check_labels(labels)
    before = dict(node.labels)
    if any(before.get(key) != checked.get(key) for key in LOOSENING):
        require(actor, Action.ADMINISTER)
    with transaction.atomic():
        if before != checked and amend(node, labels=checked):
            audit.record(actor, "node.labelled", node, detail={"from": before, "to": checked})
    return node


def set_policy(actor: audit.Actor, node: Node, policy: Any) -> Node:
    """Say what Inflight may do with a host; see domain.host_policy. Needs administer: it can allow old servers."""
    require(actor, Action.ADMINISTER)
    checked = check_policy(policy)
    before = dict(node.policy)
    with transaction.atomic():
        if before != checked and amend(node, policy=checked):
            audit.record(actor, "node.policy", node, detail={"from": before, "to": checked})
    return node


def forget_node(actor: audit.Actor, node: Node) -> None:
    """Remove a node that will not come back: one that is lost or in maintenance and on which nobody holds a slot.

    One that does come back joins anew. Needs the role administrator.
    """
    require(actor, Action.ADMINISTER)
    with transaction.atomic():
        node.refresh_from_db()
        held = GpuLease.objects.filter(gpu__node=node, released_at__isnull=True).count()
        if node.state not in (states.LOST, states.MAINTENANCE) or held:
            raise NotPossibleNow(
                "node_in_use",
                _("%(host)s is %(state)s, and %(held)d holders have slots of it.")
                % {"host": node, "state": node.state, "held": held},
                remedy=_("Put it into maintenance and wait until nothing runs there."),
            )
        audit.record(actor, "node.forgotten", node, from_state=node.state)
        Gpu.objects.filter(node=node).delete()
        node.delete()


def _reason(text: str) -> str:
    kept = text.strip()
    if len(kept) > MOST_REASON:
        raise InvalidInput(
            "reason_too_long",
            _("The reason has %(count)d characters.") % {"count": len(kept)},
            field="reason",
            remedy=_("Write at most %(most)d.") % {"most": MOST_REASON},
        )
    return kept


def _drain_seconds(given: object) -> int:
    text = str(given).strip() if given is not None and not isinstance(given, bool) else ""
    if not text.isascii() or not text.isdigit() or int(text) > MOST_DRAIN_SECONDS:
        raise InvalidInput(
            "drain_seconds_unreadable",
            _("“%(text)s” is no time to drain.") % {"text": str(given)[:40]},
            field="drain_seconds",
            remedy=_("Give whole seconds from 0 to %(most)d.") % {"most": MOST_DRAIN_SECONDS},
        )
    return int(text)
