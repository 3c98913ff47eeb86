"""Row side of the reconcile tick, for workers: placing replicas, deciding each deployment's state, ending rows.

`workers/reconcile.py` looks after the processes; nothing here touches one.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

from django.db import IntegrityError, transaction
from django.utils.translation import gettext as _

from apps.core import clock, ids
from apps.core.transitions import amend, announce, transition
from apps.fleet import selectors as fleet_selectors
from apps.fleet import services as fleet_services
from apps.fleet.models import Gpu, GpuLease, Node
from apps.fleet.policy import default_share
from apps.serving import policies, rollouts, selectors, states
from apps.serving.domain import rollout
from apps.serving.models import Deployment, Instance, Revision
from apps.serving.rollouts import say

ACTOR = "ctl"
UID_PREFIX = "i-"
# A failure that was overcome stays on the page this long.
HISTORY = timedelta(hours=1)
# Ended servers whose row and log are kept, for each deployment.
KEPT_ROWS = 20


def instances_of(node: Node) -> list[Instance]:
    """Every instance of this node that has a process, may have one, or has one to clear away."""
    rows = Instance.objects.select_related("deployment", "revision__engine", "gpu", "node")
    return list(rows.filter(node=node).exclude(state=states.GONE).order_by("id"))


def reconcile_deployments(node: Node) -> set[int]:
    """Take the next step of every deployment; returns the ids of the instances that must drain."""
    drain: set[int] = set()
    for deployment in _concerned():
        decision = rollout.decide(situation(deployment))
        drain.update(decision.drain)
        if decision.switch:
            switch_revision(deployment)
            continue
        if decision.gave_up is not None:
            rollouts.give_up(deployment, *decision.gave_up)
            continue
        if decision.begin_canary:
            rollouts.begin_canary(deployment)
        for revision_id, replica, restarts in decision.place:
            drain.update(place(node, deployment, revision_id, replica, restarts))
        if decision.state is not None:
            settle(deployment, decision.state)
        tell_of_loops(deployment, decision.loops)
    return drain


def _concerned() -> list[Deployment]:
    wanted = Deployment.objects.filter(desired=Deployment.Desired.RUNNING)
    leaving = Deployment.objects.exclude(desired=Deployment.Desired.RUNNING).exclude(state=states.STOPPED)
    lively = Deployment.objects.filter(instances__state__in=states.INSTANCE_LIVE | {states.PLACED})
    return list((wanted | leaving | lively).distinct().select_related("active_revision"))


def situation(deployment: Deployment) -> rollout.Situation:
    """The deployment as rollout.decide wants it."""
    return rollout.Situation(
        wanted=deployment.desired == Deployment.Desired.RUNNING,
        active=_fact(deployment, deployment.active_revision),
        pending=_fact(deployment, selectors.pending_revision(deployment)),
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
            )
            for row in deployment.instances.all()
        ),
        deployed_at=deployment.deployed_at,
        now=clock.now(),
        held=deployment.state in (states.FAILED, states.WAITING),
        policy=policies.policy_of(deployment),
    )


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


def place(node: Node, deployment: Deployment, revision_id: int, replica: int, restarts: int) -> set[int]:
    """Give a replica an instance row and a lease on a slot of this node.

    Returns instances of the revision that is being replaced which must drain first, where only they stand in the
    way. Where nothing is free the deployment says so and the next tick tries again.
    """
    revision = Revision.objects.select_related("engine").get(pk=revision_id)
    slots = _slots(node, revision)
    if not slots:
        say(
            deployment,
            "no_slot",
            _no_slot_sentence(revision),
            _("Change the placement, or uncordon the node."),
        )
        return set()
    for gpu in slots:
        if _place_on(node, gpu, deployment, revision, replica, restarts):
            return set()
    room = _in_the_way(deployment, revision, slots)
    if room:
        rollouts.tell_stop_first(deployment, revision)
    else:
        say(
            deployment,
            "no_free_share",
            _("Every slot is taken; the server starts when one is free."),
            _("Stop another deployment, wait for the build to end, or give this one a smaller share."),
        )
    return room


def _slots(node: Node, revision: Revision) -> list[Gpu]:
    device = revision.placement.get("device", "any")
    found = [gpu for gpu in fleet_selectors.slots_for_work() if gpu.node_id == node.pk]
    return found if device == "any" else [gpu for gpu in found if gpu.device == device]


def _no_slot_sentence(revision: Revision) -> str:
    device = revision.placement.get("device", "any")
    if device == "any":
        return _("No node takes new work.")
    return _("No node that takes new work has a %(device)s slot.") % {"device": device.upper()}


def _place_on(
    node: Node, gpu: Gpu, deployment: Deployment, revision: Revision, replica: int, restarts: int
) -> bool:
    try:
        with transaction.atomic():
            instance = Instance.objects.create(
                deployment=deployment,
                revision=revision,
                uid=UID_PREFIX + ids.short_id(),
                replica=replica,
                node=node,
                gpu=gpu,
                state=states.PLACED,
                restarts=restarts,
            )
            share = revision.placement.get("share")
            if fleet_services.take_lease(gpu, GpuLease.Purpose.SERVE, instance, share=share) is None:
                transaction.set_rollback(True)
                return False
            announce(instance)
    except IntegrityError:
        # Another worker placed this replica first.
        return True
    return True


def _in_the_way(deployment: Deployment, revision: Revision, slots: list[Gpu]) -> set[int]:
    """Servers of the revision before, as few as make the room by draining, if no build will give it back soon.

    Beside a canary the old servers go on, so none of them is in its way; and only a revision that is rolled out may
    take another's place.
    """
    if revision.state != states.PENDING or rollouts.is_on_trial(deployment, revision):
        return set()
    older = list(
        deployment.instances.filter(state__in=states.INSTANCE_LIVE, gpu__in=slots).exclude(revision=revision)
    )
    for gpu in slots:
        leases = fleet_selectors.open_leases(gpu)
        if leases.filter(purpose=GpuLease.Purpose.BUILD).exists():
            continue
        wanted = revision.placement.get("share") or default_share(gpu, GpuLease.Purpose.SERVE)
        held = {
            lease.holder_id: lease.share
            for lease in leases.filter(holder_kind=Instance.kind, holder_id__in=[row.pk for row in older])
        }
        free = fleet_selectors.free_share(gpu)
        found: set[int] = set()
        # Those that drain already give their room back first, then the highest numbers.
        for row in sorted(older, key=lambda row: (row.state != states.DRAINING, -row.replica)):
            if free >= wanted:
                break
            if row.gpu_id == gpu.pk and row.pk in held:
                free += held[row.pk]
                found.add(row.pk)
        if found and free >= wanted:
            return {row.pk for row in older if row.pk in found and row.state != states.DRAINING}
    return set()


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
    deployment.refresh_from_db(fields=["state", "reason", "sentence", "desired", "version"])
    if state == deployment.state:
        if state == states.READY and deployment.reason in ("no_free_share", "no_slot", "stop_first"):
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
