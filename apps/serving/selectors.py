"""Reads of this app. Nothing here changes a row."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from django.conf import settings
from django.db.models import QuerySet
from django.utils.translation import gettext as _

from apps.core.exceptions import NotFound
from apps.fleet import door_logs, doors
from apps.serving import policies, states
from apps.serving.domain import canary
from apps.serving.models import BatchingProfile, Deployment, Instance, ModelRepository, Revision

NO_PROCESS = (states.GONE, states.FAILED)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where one serving instance answers; loopback only. `model` is its name inside Triton."""

    uid: str
    instance_id: int
    revision: int
    model: str
    http_url: str
    grpc_url: str
    metrics_url: str


def batching_profiles() -> QuerySet[BatchingProfile]:
    """Every batching profile, by name."""
    return BatchingProfile.objects.all()


def batching_profile(name: str) -> BatchingProfile:
    """The profile of that name, or NotFound."""
    found = BatchingProfile.objects.filter(name=name).first()
    if found is None:
        raise NotFound(
            "batching_profile_unknown",
            _("There is no batching profile %(name)s.") % {"name": name},
            field="batching",
            remedy=_("Create it under Configuration, or name another."),
        )
    return found


def model_repositories() -> QuerySet[ModelRepository]:
    """Every imported model repository, by name."""
    return ModelRepository.objects.select_related("created_by")


def model_repository(name: str) -> ModelRepository:
    """The imported model repository of that name, or NotFound."""
    found = model_repositories().filter(name=name).first()
    if found is None:
        raise NotFound(
            "model_repository_unknown",
            _("There is no model repository %(name)s.") % {"name": name},
            field="repository",
            remedy=_("Import it, or name another."),
        )
    return found


def deployments() -> QuerySet[Deployment]:
    """Every deployment with what its dictionary needs."""
    return Deployment.objects.select_related(
        "build_profile__checkpoint", "repository", "batching", "active_revision__engine", "waiting_build"
    )


def deployment(name: str) -> Deployment:
    """The deployment of that public name, or NotFound."""
    found = deployments().filter(name=name).first()
    if found is None:
        raise NotFound(
            "deployment_unknown",
            _("There is no deployment %(name)s.") % {"name": name},
            field="deployment",
            remedy=_("The page Deployments lists those that exist."),
        )
    return found


def target_revision(deployment: Deployment) -> Revision | None:
    """The revision that should run: the newest pending one, else the active one. Null before the first."""
    pending = pending_revision(deployment)
    if pending is not None or deployment.active_revision_id is None:
        return pending
    return Revision.objects.select_related("engine__checkpoint", "deployment").get(
        pk=deployment.active_revision_id
    )


def revision(deployment: Deployment, number: int) -> Revision:
    """One revision of a deployment by its number, or NotFound."""
    rows = Revision.objects.select_related("engine__checkpoint", "deployment", "created_by")
    found = rows.filter(deployment=deployment, number=number).first()
    if found is None:
        raise NotFound(
            "revision_unknown",
            _("%(name)s has no revision %(number)d.") % {"name": deployment.name, "number": number},
            field="revision",
            remedy=_("Choose one of its revisions."),
        )
    return found


def instances() -> QuerySet[Instance]:
    """Every instance, newest first, those that are gone included."""
    return Instance.objects.select_related("deployment", "revision", "node", "gpu")


def instance(uid: str) -> Instance:
    """One instance by its id, or NotFound."""
    found = instances().filter(uid=uid).first()
    if found is None:
        raise NotFound(
            "instance_unknown",
            _("There is no instance %(uid)s.") % {"uid": uid},
            remedy=_("The page of its deployment lists those that exist."),
        )
    return found


def live_instances(deployment: Deployment) -> QuerySet[Instance]:
    """Instances that have, or are about to have, a process."""
    return deployment.instances.exclude(state__in=NO_PROCESS)


def shown_instances(deployment: Deployment) -> QuerySet[Instance]:
    """Instances that a page lists: all but those that are gone."""
    return deployment.instances.exclude(state=states.GONE).select_related("revision", "node", "gpu")


def pending_revision(deployment: Deployment) -> Revision | None:
    """The revision that is being rolled out, null where none is."""
    return (
        Revision.objects.select_related("engine__checkpoint", "deployment")
        .filter(deployment=deployment, state=states.PENDING)
        .order_by("-number")
        .first()
    )


def serving_instances(deployment: Deployment) -> QuerySet[Instance]:
    """Instances that may be given new requests now: those of `traffic` whose weight is not 0."""
    wanted = [row.pk for weight, rows in _shared(deployment) if weight for row in rows]
    return _serving().filter(pk__in=wanted)


def _shared(deployment: Deployment) -> list[tuple[float, list[Instance]]]:
    """Weights and instances as the database says now; the caller's row may be older than a switch."""
    found = Deployment.objects.filter(pk=deployment.pk).first()
    if found is None:
        return []
    serving = list(_serving().filter(deployment=found))
    return [(weight, rows) for _revision, weight, rows in traffic(found, serving)]


def _serving() -> QuerySet[Instance]:
    return (
        Instance.objects.select_related("deployment", "revision", "node__door")
        .filter(state=states.SERVING, stop_requested_at__isnull=True)
        .order_by("replica", "id")
    )


def routable_instances() -> QuerySet[Instance]:
    """Instances of whatever revision that could be given new requests: serving, with ports, not asked to stop."""
    return _serving().filter(http_port__isnull=False)


def traffic(
    deployment: Deployment, routable: Iterable[Instance] | None = None
) -> list[tuple[int, float, list[Instance]]]:
    """What new requests are shared among: (revision id, its weight out of 100, its instances), weights 0 allowed.

    The active revision first, then the one that is rolled out: with a canary it has the weight of the step, else as
    much as its servers are among all. `routable` are the deployment's rows of `routable_instances`, where the caller
    has read those of many deployments at once.
    """
    if deployment.active_revision_id is None:
        return []
    rows = list(routable_instances().filter(deployment=deployment) if routable is None else routable)
    active = [row for row in rows if row.revision_id == deployment.active_revision_id]
    others = any(row.revision_id != deployment.active_revision_id for row in rows)
    pending = pending_revision(deployment) if others else None
    if pending is None:
        return [(deployment.active_revision_id, 100.0, active)]
    new = [row for row in rows if row.revision_id == pending.pk]
    first, second = canary.shares(
        len(active),
        deployment.active_revision is not None
        and len(active) >= deployment.servers_of(deployment.active_revision),
        len(new),
        policies.steps_of(policies.rollout_of(deployment)),
        pending.canary_step,
        pending.promoted_at is not None,
    )
    return [(deployment.active_revision_id, first, active), (pending.pk, second, new)]


def endpoints(deployment: Deployment) -> list[Endpoint]:
    """Addresses of the instances that may be given new requests."""
    return [endpoint(instance) for instance in serving_instances(deployment)]


def weighted_endpoints(deployment: Deployment) -> list[tuple[Endpoint, float]]:
    """The same with each instance's share of new requests, all together 100."""
    shared = [(weight, rows) for weight, rows in _shared(deployment) if weight and rows]
    whole = sum(weight for weight, _rows in shared)
    return [(endpoint(row), 100.0 * weight / whole / len(rows)) for weight, rows in shared for row in rows]


def endpoint(instance: Instance) -> Endpoint:
    """Address of one instance that has ports: on loopback also for one of another host, through the node's proxy.

    Where the proxy has not opened it (yet) the ports are 0, which nothing answers.
    """
    ports = _ports(instance)
    return Endpoint(
        uid=instance.uid,
        instance_id=instance.pk,
        revision=instance.revision.number,
        model=instance.deployment.name,
        http_url=f"http://127.0.0.1:{ports.http}",
        grpc_url=f"127.0.0.1:{ports.grpc}",
        metrics_url=f"http://127.0.0.1:{ports.metrics}/metrics",
    )


def _ports(instance: Instance) -> doors.NearPorts:
    own = doors.NearPorts(instance.http_port or 0, instance.grpc_port or 0, instance.metrics_port or 0)
    node = instance.node
    # A node without a door is of this host: homes that share it share its loopback.
    if node is None or node.node_id == settings.INFLIGHT_NODE_ID or not doors.has_door(node):
        return own
    return doors.near_ports(instance.uid) or doors.NearPorts(0, 0, 0)


def log_address(instance: Instance) -> str:
    """Where an instance's log is read from here: a path, or its node's door; empty before its first start."""
    return door_logs.address(instance.node, "instance", instance.uid, instance.log_path)


def scrape_targets() -> list[Endpoint]:
    """Every instance whose metrics can be read now, for telemetry: also those that drain."""
    rows = Instance.objects.select_related("deployment", "revision", "node__door").filter(
        state__in=(states.SERVING, states.DRAINING), metrics_port__isnull=False
    )
    return [endpoint(row) for row in rows]
