"""Row side of the reconcile tick, for workers: placing replicas, deciding each deployment's state, ending rows.

`workers/reconcile.py` looks after the processes; nothing here touches one.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

from django.db import transaction
from django.db.models import Prefetch
from django.utils.translation import gettext as _

from apps.core import clock
from apps.core.transitions import amend, transition
from apps.fleet import services as fleet_services
from apps.fleet.models import Node
from apps.serving import placing, policies, rollouts, selectors, states
from apps.serving.domain import rollout
from apps.serving.models import Deployment, Instance, Revision
from apps.serving.rollouts import say

ACTOR = "ctl"
UID_PREFIX = placing.UID_PREFIX
# A failure that was overcome stays on the page this long.
HISTORY = timedelta(hours=1)
# Ended servers whose row and log are kept, for each deployment.
KEPT_ROWS = 20


def instances_of(node: Node) -> list[Instance]:
    """Every instance of this node that has a process, may have one, or has one to clear away."""
    rows = Instance.objects.select_related(
        "deployment__repository", "revision__engine__checkpoint", "gpu", "node"
    )
    return list(rows.filter(node=node).exclude(state=states.GONE).order_by("id"))


def reconcile_deployments(node: Node, leads: bool = True) -> set[int]:
    """Take the next step of every deployment; returns the ids of this node's instances that must drain.

    One node leads: it places, switches and says what a deployment is. The others only look which of their own
    servers must drain, which is decided in the same way from the same rows.
    """
    drain: set[int] = set()
    room: set[int] = set()
    around = placing.new_round()
    for deployment in _concerned(None if leads else node):
        decision = rollout.decide(situation(deployment))
        drain.update(decision.drain)
        if leads:
            room.update(_lead(deployment, decision, around))
    if leads:
        placing.relocate(around)
        _ask_others(node, room)
    return drain | room


def _lead(deployment: Deployment, decision: rollout.Decision, around: placing.Round) -> set[int]:
    """Do what was decided for a deployment; returns further instances that must drain."""
    if decision.switch:
        switch_revision(deployment)
        return set()
    if decision.gave_up is not None:
        rollouts.give_up(deployment, *decision.gave_up)
        return set()
    if decision.begin_canary:
        rollouts.begin_canary(deployment)
    drain: set[int] = set()
    for revision_id, replica, restarts in decision.place:
        drain.update(placing.place(around, deployment, revision_id, replica, restarts))
    if not decision.place:
        placing.clear_report(deployment)
    if decision.state is not None:
        settle(deployment, decision.state)
    tell_of_loops(deployment, decision.loops)
    return drain


def _ask_others(node: Node, room: set[int]) -> None:
    """Servers of other nodes that stand in the way of a new one: their own node sees the request and drains them.

    Whatever else must drain its own node decides by itself, from the same rows.
    """
    if room:
        rows = Instance.objects.filter(pk__in=room, stop_requested_at__isnull=True).exclude(node=node)
        for row in rows.filter(state__in=states.INSTANCE_LIVE - {states.DRAINING}):
            amend(row, attempt=row.attempt, states=[row.state], stop_requested_at=clock.now())


def _concerned(node: Node | None) -> list[Deployment]:
    """Deployments that may need a step, with the rows that decide it in three queries; of a node: that it serves."""
    wanted = Deployment.objects.filter(desired=Deployment.Desired.RUNNING)
    leaving = Deployment.objects.exclude(desired=Deployment.Desired.RUNNING).exclude(state=states.STOPPED)
    lively = Deployment.objects.filter(instances__state__in=states.INSTANCE_LIVE | {states.PLACED})
    rows = (wanted | leaving | lively).distinct()
    if node is not None:
        here = Instance.objects.filter(node=node, state__in=states.INSTANCE_LIVE | {states.PLACED})
        rows = Deployment.objects.filter(pk__in=here.values("deployment_id"))
    pending = Prefetch(
        "revisions",
        Revision.objects.filter(state=states.PENDING).order_by("-number"),
        to_attr="pending_revisions",
    )
    return list(rows.select_related("active_revision").prefetch_related("instances", pending))


def situation(deployment: Deployment) -> rollout.Situation:
    """The deployment as rollout.decide wants it."""
    return rollout.Situation(
        wanted=deployment.desired == Deployment.Desired.RUNNING,
        active=_fact(deployment, deployment.active_revision),
        pending=_fact(deployment, _pending(deployment)),
        instances=tuple(
            rollout.InstanceFact(
                id=row.pk,
                revision=row.revision_id,
                replica=row.replica,
                state=row.state,
                reason=row.reason,
                stop_requested=row.stop_requested_at is not None,
                failed_at=row.failed_at,
                serving_since=row.serving_since,
                evicted=row.evicted_at is not None,
            )
            for row in deployment.instances.all()
        ),
        deployed_at=deployment.deployed_at,
        now=clock.now(),
        held=deployment.state in (states.FAILED, states.WAITING),
        policy=policies.policy_of(deployment),
    )


def _pending(deployment: Deployment) -> Revision | None:
    """The revision that is being rolled out, of what was read at once where it was."""
    read: list[Revision] | None = getattr(deployment, "pending_revisions", None)
    if read is None:
        return selectors.pending_revision(deployment)
    return read[0] if read else None


def _fact(deployment: Deployment, revision: Revision | None) -> rollout.RevisionFact | None:
    if revision is None:
        return None
    wanted = deployment.servers_of(revision)
    return rollout.RevisionFact(
        id=revision.pk,
        # What is rolled out must prove itself, so that it is not without a server even if it was about to sleep.
        replicas=max(1, wanted) if revision.state == states.PENDING else wanted,
        step=revision.canary_step,
        moved_at=revision.moved_at or revision.state_since,
        paused=revision.paused_at is not None,
        promoted=revision.promoted_at is not None,
    )


def switch_revision(deployment: Deployment) -> None:
    """The pending revision serves whole: make it the active one. The old one's servers drain from now on."""
    target = selectors.pending_revision(deployment)
    if target is None:
        return
    with transaction.atomic():
        before = deployment.active_revision
        if not transition(target, states.ACTIVE, actor=ACTOR, sources=[states.PENDING], moved_at=clock.now()):
            return
        amend(deployment, active_revision=target)
        if before is not None and before.pk != target.pk:
            transition(before, states.SUPERSEDED, actor=ACTOR, sources=[states.ACTIVE])
    settle(deployment, states.READY)


def tell_of_loops(deployment: Deployment, loops: Iterable[rollout.Loop]) -> None:
    """Say on the deployment that servers end again and again, and when they are started again; or take it back."""
    worst = max(loops, key=lambda loop: loop.ends, default=None)
    if worst is None:
        if deployment.reason == "crash_loop":
            say(deployment, "", "", "")
        return
    last = Instance.objects.get(pk=worst.instance)
    say(
        deployment,
        "crash_loop",
        _("Server %(replica)d of revision %(revision)d ended %(ends)d times in a row, last: %(cause)s It is started "
          "again at %(again)s UTC.")
        % {
            "replica": worst.replica,
            "revision": last.revision.number,
            "ends": worst.ends,
            "cause": last.sentence,
            "again": f"{worst.again:%H:%M:%S}",
        },
        last.remedy or _("Read its crash reports, correct the cause, then deploy: that starts the count anew."),
    )  # fmt: skip


def settle(deployment: Deployment, state: str) -> None:
    """Write what the deployment is, where that is a move that the control worker makes."""
    says_waiting = deployment.reason in placing.WAITS
    if state == deployment.state and not (state == states.READY and says_waiting):
        return
    deployment.refresh_from_db(fields=["state", "reason", "sentence", "desired", "version"])
    if state == deployment.state:
        if state == states.READY and deployment.reason in placing.WAITS:
            say(deployment, "", "", "")
        return
    source = deployment.state
    if not Deployment.machine.allows(source, state) or (source, state) in _NOT_OURS:
        return
    if source == states.READY and deployment.reason == "rollout_failed":
        transition(
            deployment,
            state,
            actor=ACTOR,
            sources=[source],
            reason="rollout_failed",
            sentence=deployment.sentence,
        )
        return
    reason = sentence = ""
    if state == states.ASLEEP:
        reason = "asleep"
        sentence = _("Nothing was asked of it for a while, so it has no server. The next request wakes it.")
    transition(deployment, state, actor=ACTOR, sources=[source], reason=reason, sentence=sentence)


# Moves that a press of a button or the sweep makes.
_NOT_OURS = frozenset(
    {
        (states.STOPPED, states.STARTING),
        (states.FAILED, states.STARTING),
        (states.WAITING, states.STARTING),
        (states.STOPPING, states.STARTING),
        (states.WAITING, states.FAILED),
    }
)


def settle_stopped(reason: str, sentence: str) -> None:
    """After a node's servers were ended: deployments that should run say so until they start again."""
    for deployment in Deployment.objects.filter(state__in=(states.READY, states.DEGRADED)):
        if not selectors.serving_instances(deployment).exists():
            transition(
                deployment,
                states.STARTING,
                actor=ACTOR,
                sources=[deployment.state],
                reason=reason,
                sentence=sentence,
            )


def release(instance: Instance) -> None:
    """Give the slot of an instance without a process back."""
    fleet_services.release_leases_of(instance)


def forget_old(node: Node) -> list[Instance]:
    """Failed rows that were replaced long ago or whose deployment stopped become gone; returns them."""
    settled = []
    horizon = clock.now() - HISTORY
    rows = Instance.objects.select_related("deployment").filter(
        node=node, state=states.FAILED, pid__isnull=True
    )
    for row in rows:
        stopped = row.deployment.desired == Deployment.Desired.STOPPED
        replaced = (
            row.deployment.state == states.READY and row.failed_at is not None and row.failed_at < horizon
        )
        if (stopped or replaced) and transition(
            row, states.GONE, actor=ACTOR, reason=row.reason, sentence=row.sentence, remedy=row.remedy
        ):
            settled.append(row)
    return settled


def delete_oldest(node: Node) -> None:
    """Delete the rows of servers that ended long ago; their folders follow (see `known_uids`)."""
    gone = Instance.objects.filter(node=node, state=states.GONE)
    for deployment in gone.order_by().values_list("deployment_id", flat=True).distinct():
        kept = gone.filter(deployment=deployment).order_by("-id").values_list("id", flat=True)[:KEPT_ROWS]
        gone.filter(deployment=deployment).exclude(pk__in=list(kept)).delete()


def known_uids() -> set[str]:
    """Ids of every instance that has a row, on whatever node."""
    return set(Instance.objects.values_list("uid", flat=True))
