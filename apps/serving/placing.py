"""Giving replicas a place: a request made of the revision, the fleet's choice with its reason, the leases, the row.

Runs on the node that leads (fleet.leads). What is chosen is only granted by the leases, inside one transaction with
the instance's row, so two leaders for a moment never give one GPU twice.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import Count
from django.utils.translation import gettext as _

from apps.core import clock, database_time, ids
from apps.core.transitions import amend, announce
from apps.fleet import capacity, leases
from apps.fleet import selectors as fleet_selectors
from apps.fleet import states as fleet_states
from apps.fleet.domain.placement import Choice, Host, Refusal, choose, taken
from apps.fleet.models import Gpu, GpuLease, Node
from apps.fleet.policy import PROTOCOL_VERSION
from apps.serving import rollouts, states
from apps.serving.models import Deployment, Instance, Revision
from apps.serving.place_requests import environment_of, request_of

UID_PREFIX = "i-"
# A tick gives so long to placing; what is left waits for the next one.
PLACING_SECONDS = 0.4
# A choice that somebody else took meanwhile is made anew so often.
TRIES = 3
WAITS = frozenset({"no_slot", "no_free_share", "stop_first"})


@dataclass(slots=True)
class Round:
    """One tick's look at the fleet: read once, kept up to date by what this tick grants."""

    hosts: list[Host] = field(default_factory=list)
    until: float = 0.0
    read: bool = False

    def look(self) -> list[Host]:
        """The hosts, read at the first call."""
        if not self.read:
            self.hosts = capacity.hosts()
            self.read = True
        return self.hosts

    def again(self) -> None:
        """Forget what was read: somebody else took what looked free."""
        self.read = False

    @property
    def over(self) -> bool:
        """Whether this tick has placed long enough."""
        return bool(self.until) and time.monotonic() > self.until


def new_round() -> Round:
    """A look for one tick."""
    return Round(until=time.monotonic() + PLACING_SECONDS)


def place(around: Round, deployment: Deployment, revision_id: int, replica: int, restarts: int) -> set[int]:
    """Give a replica an instance row and leases on the best slots.

    Returns instances of the revision that is being replaced which must drain first, where only they stand in the
    way. Where nothing is free the deployment says why, for each kind of node, and a later tick tries again.
    """
    if around.over:
        return set()
    revision = Revision.objects.select_related("engine__checkpoint", "deployment__repository").get(
        pk=revision_id
    )
    found = _grant(around, deployment, revision, replica, restarts)
    if not isinstance(found, Refusal):
        clear_report(deployment)
        return set()
    room = in_the_way(around, deployment, revision) if found.full else set()
    if room:
        rollouts.tell_stop_first(deployment, revision)
    else:
        tell_waiting(deployment, found)
    return room


def _grant(
    around: Round,
    deployment: Deployment,
    revision: Revision,
    replica: int,
    restarts: int,
    instead_of: Instance | None = None,
) -> Instance | Refusal | None:
    """The row that was made, why there is none, or null where another leader has made it."""
    for _try in range(TRIES):
        hosts = around.look()
        request = replace(request_of(revision, hosts), same=servers_by_node(deployment))
        if instead_of is not None:
            hosts = [host for host in hosts if host.node != instead_of.node_id]
        found = choose(request, hosts)
        if isinstance(found, Refusal):
            return found
        try:
            made = _write(found, deployment, revision, replica, restarts, instead_of)
        except IntegrityError:
            # Another leader placed this replica first.
            return None
        if made is not None:
            around.hosts = taken(around.look(), found, request.purpose)
            return made
        around.again()
    return Refusal((), _("Others took the slots that were free; it is tried again."), True)


def servers_by_node(deployment: Deployment) -> dict[int, int]:
    """How many of its servers run on each node, or are about to."""
    rows = deployment.instances.filter(
        state__in=states.INSTANCE_LIVE | {states.PLACED}, evicted_at__isnull=True
    )
    counted = rows.order_by().values_list("node_id").annotate(count=Count("pk"))
    return {node: count for node, count in counted if node is not None}


def _write(
    choice: Choice,
    deployment: Deployment,
    revision: Revision,
    replica: int,
    restarts: int,
    instead_of: Instance | None,
) -> Instance | None:
    """Row and leases in one transaction; null where a slot was taken meanwhile."""
    gpus = {gpu.pk: gpu for gpu in Gpu.objects.filter(pk__in=[slot.gpu for slot in choice.slots])}
    if len(gpus) < len(choice.slots):
        return None
    ordered = [gpus[slot.gpu] for slot in choice.slots]
    node = Node.objects.get(pk=choice.host.node)
    with transaction.atomic():
        if instead_of is not None and not amend(
            instead_of, attempt=instead_of.attempt, states=[instead_of.state], evicted_at=clock.now()
        ):
            return None
        instance = Instance.objects.create(
            deployment=deployment,
            revision=revision,
            uid=UID_PREFIX + ids.short_id(),
            replica=replica,
            node=node,
            gpu=ordered[0],
            state=states.PLACED,
            restarts=restarts,
            placement=_kept(choice, ordered, node, revision),
        )
        purpose = str(revision.placement.get("purpose", GpuLease.Purpose.SERVE))
        if leases.take_leases(ordered, purpose, instance, choice.shares) is None:
            transaction.set_rollback(True)
            return None
        announce(instance)
    return instance


def _kept(choice: Choice, gpus: list[Gpu], node: Node, revision: Revision) -> dict[str, Any]:
    """How the place was chosen, as the row keeps it."""
    return {
        "why": choice.why,
        "gpus": [{"id": gpu.pk, "index": gpu.index, "device": gpu.device, "uuid": gpu.uuid} for gpu in gpus],
        "share": max(choice.shares),
        "environment": environment_of(node, gpus, choice.shares, revision.placement),
    }


def tell_waiting(deployment: Deployment, refusal: Refusal) -> None:
    """Say on the deployment why a server waits; written where it differs from what is said."""
    report = {"sentence": refusal.sentence, "waits": [wait.as_dict() for wait in refusal.waits]}
    if deployment.placement_report != report:
        amend(deployment, placement_report=report)
    if refusal.full:
        rollouts.say(
            deployment,
            "no_free_share",
            _("Every slot that would do is taken; the server starts when one is free. %(why)s")
            % {"why": refusal.sentence},
            _("Stop another deployment, wait for the build to end, or give this one a smaller share."),
        )
        return
    rollouts.say(
        deployment,
        "no_slot",
        _("No node takes this server. %(why)s") % {"why": refusal.sentence},
        _("Change the placement, uncordon a node, or let one join that has what is asked for."),
    )


def clear_report(deployment: Deployment) -> None:
    """A place was found: nothing waits any more."""
    if deployment.placement_report:
        amend(deployment, placement_report={})


def in_the_way(around: Round, deployment: Deployment, revision: Revision) -> set[int]:
    """Servers of the revision before, as few as make the room by draining, if no build will give it back soon.

    Beside a canary the old servers go on, so none of them is in its way; and only a revision that is rolled out may
    take another's place.
    """
    if revision.state != states.PENDING or rollouts.is_on_trial(deployment, revision):
        return set()
    older = {
        row.pk: row
        for row in deployment.instances.filter(state__in=states.INSTANCE_LIVE).exclude(revision=revision)
    }
    held: dict[int, list[GpuLease]] = {}
    rows = fleet_selectors.all_open_leases().filter(holder_kind=Instance.kind, holder_id__in=list(older))
    for lease in rows:
        held.setdefault(lease.holder_id, []).append(lease)
    hosts = around.look()
    given: set[int] = set()
    # Those that drain already give their room back first, then the highest numbers.
    for row in sorted(older.values(), key=lambda row: (row.state != states.DRAINING, -row.replica)):
        hosts = [_without(host, held.get(row.pk, [])) for host in hosts]
        given.add(row.pk)
        found = choose(replace(request_of(revision, hosts), same={}), hosts)
        if isinstance(found, Choice):
            slots = {slot.gpu for slot in found.slots}
            # Only those that stand on the slots which it would get.
            return {
                pk
                for pk in given
                if older[pk].state != states.DRAINING
                and any(lease.gpu_id in slots for lease in held.get(pk, []))
            }
    return set()


def _without(host: Host, given_back: Iterable[GpuLease]) -> Host:
    back: dict[int, int] = {}
    for lease in given_back:
        back[lease.gpu_id] = back.get(lease.gpu_id, 0) + lease.share
    slots = tuple(
        # A slot on which a build runs becomes free by itself.
        replace(slot, free=slot.free + back[slot.gpu])
        if slot.gpu in back and GpuLease.Purpose.BUILD not in slot.held_for
        else slot
        for slot in host.slots
    )
    return replace(host, slots=slots)


def relocate(around: Round) -> int:
    """Give servers of nodes that are to be empty, or that are lost, a successor elsewhere; returns how many.

    The old one serves on until the successor does (domain.rollout). On a node in maintenance that has no more time,
    what found no other place ends without one.
    """
    moved = 0
    for row in _leaving():
        if around.over:
            break
        if isinstance(_grant(around, row.deployment, row.revision, row.replica, 0, instead_of=row), Instance):
            moved += 1
        elif _time_is_up(row):
            amend(row, states=[states.SERVING], stop_requested_at=clock.now())
    return moved


def _leaving() -> list[Instance]:
    """Serving rows on nodes that drain, and rows of lost nodes, that hold their replica's number still."""
    rows = Instance.objects.select_related(
        "deployment", "revision__engine__checkpoint", "revision__deployment__repository", "node"
    ).filter(
        evicted_at__isnull=True,
        stop_requested_at__isnull=True,
        deployment__desired=Deployment.Desired.RUNNING,
        revision__state__in=(states.ACTIVE, states.PENDING),
    )
    draining = rows.filter(state=states.SERVING, node__state=fleet_states.MAINTENANCE)
    skewed = rows.filter(state=states.SERVING).exclude(node__protocol_version=PROTOCOL_VERSION)
    out_of_reach = (fleet_states.LOST, fleet_states.MAINTENANCE)
    lost = rows.filter(state=states.UNREACHABLE, node__state__in=out_of_reach)
    return sorted({row.pk: row for row in (*draining, *skewed, *lost)}.values(), key=lambda row: row.pk)


def _time_is_up(row: Instance) -> bool:
    node = row.node
    if node is None or node.state != fleet_states.MAINTENANCE or node.drain_deadline is None:
        return False
    return database_time.now() >= node.drain_deadline
