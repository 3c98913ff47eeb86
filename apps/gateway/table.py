"""The Table that a gateway process holds in memory, made out of the database, and its version.

Whatever changes keys, routes, external deployments or what serves raises the version in the same transaction and
publishes it on TABLE_CHANNEL after the commit. Messages may be lost, so processes also compare versions every 2 s.
All functions here block.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from django.db import transaction
from django.db.models import F, Q

from apps.core import clock, secrets
from apps.core.secrets import SecretUnreadable
from apps.gateway import adaptive_table
from apps.gateway.domain.facts import QUEUE_SECONDS, KeyFacts, Route, Table, Upstream
from apps.gateway.models import ExternalDeployment, GatewayKey, GatewayRoute, PriorityClass, TableVersion
from apps.realtime.redis_clients import REDIS_ERRORS, sync_client
from apps.serving import selectors as serving
from apps.serving.autoscale_policy import wait_for_waking
from apps.serving.models import Deployment, Instance
from apps.serving.trtllm_files import engine_kind
from apps.streaming.prompts import serving_checkpoint

log = logging.getLogger(__name__)

TABLE_CHANNEL = "gateway:table"
_ROW = 1


def current_version() -> int:
    """Version of what the database holds now."""
    found = TableVersion.objects.filter(pk=_ROW).values_list("version", flat=True).first()
    return found or 0


def bump() -> None:
    """Raise the version, in the transaction of the change if there is one, and tell every process after it."""
    with transaction.atomic():
        if not TableVersion.objects.filter(pk=_ROW).update(version=F("version") + 1, changed_at=clock.now()):
            TableVersion.objects.bulk_create([TableVersion(pk=_ROW, version=0)], ignore_conflicts=True)
            TableVersion.objects.filter(pk=_ROW).update(version=F("version") + 1, changed_at=clock.now())
        transaction.on_commit(_publish)


def _publish() -> None:
    try:
        sync_client().publish(TABLE_CHANNEL, current_version())
    except REDIS_ERRORS as error:
        log.info("The gateway hears of this change with its next look, Redis does not answer: %s", error)


def load_table() -> Table:
    """Everything that a request's path needs. The version is read first: a change meanwhile is loaded next time."""
    version = current_version()
    deployments = {row.name: row for row in serving.deployments()}
    instances = _instances()
    externals = {row.name: row for row in ExternalDeployment.objects.all()}
    given = {row.name: row for row in GatewayRoute.objects.all()}
    bounds = adaptive_table.bounds()
    routes: dict[str, Route] = {}
    for name in {*deployments, *externals, *given}:
        found = _route(name, given.get(name), deployments, instances, externals)
        routes[name] = adaptive_table.bounded(found, bounds)
    return Table(version=version, keys=MappingProxyType(_keys()), routes=MappingProxyType(routes))


def _keys() -> dict[str, KeyFacts]:
    good = Q(expires_at__isnull=True) | Q(expires_at__gt=clock.now())
    rows = GatewayKey.objects.filter(good, revoked_at__isnull=True, owner__is_active=True)
    return {row.digest: key_facts(row) for row in rows}


def key_facts(row: GatewayKey) -> KeyFacts:
    """A key as a request's path knows it."""
    return KeyFacts(
        key_id=row.pk,
        name=row.name,
        prefix=row.prefix,
        routes=None if row.routes is None else frozenset(row.routes),
        expires_at=row.expires_at.timestamp() if row.expires_at else None,
        limits=row.limits,
        priority=PriorityClass(row.priority).fact,
    )


def _instances() -> Mapping[int, list[Instance]]:
    """Instances that could be given new requests, by deployment."""
    found: defaultdict[int, list[Instance]] = defaultdict(list)
    for row in serving.routable_instances():
        found[row.deployment_id].append(row)
    return found


def _route(
    name: str,
    row: GatewayRoute | None,
    deployments: Mapping[str, Deployment],
    instances: Mapping[int, list[Instance]],
    externals: Mapping[str, ExternalDeployment],
) -> Route:
    targets = (row.targets if row else None) or [_own_target(name, deployments)]
    upstreams: list[Upstream] = []
    leads: list[tuple[str, int | None]] = []
    first: Deployment | None = None
    own: list[Deployment] = []
    lengths: list[int] = []
    for target in targets:
        weight, longest = float(target.get("weight", 1.0)), target.get("max_prompt_tokens")
        deployment = deployments.get(str(target.get("deployment", "")))
        external = externals.get(str(target.get("external", "")))
        if deployment is not None:
            first = first or deployment
            own.append(deployment)
            leads.append((f"deployment:{deployment.pk}", longest))
            lengths += _sequence_tokens(deployment)
            upstreams += _own_upstreams(deployment, instances.get(deployment.pk, []), weight, longest)
        elif external is not None:
            leads.append((f"external:{external.name}", longest))
            lengths += [external.max_sequence_tokens] if external.max_sequence_tokens else []
            upstreams += _external_upstreams(external, weight, longest)
    created = row or first or externals.get(name)
    template, tokens = _template(first)
    return Route(
        name=name,
        upstreams=tuple(upstreams),
        targets=tuple(leads),
        template=template,
        tokens=MappingProxyType(tokens),
        max_sequence_tokens=max(lengths, default=None),
        created=int(created.created_at.timestamp()) if created else 0,
        **(_settings(row) if upstreams else _waking(own, _settings(row))),
    )


def _settings(row: GatewayRoute | None) -> dict[str, Any]:
    if row is None:
        return {}
    return {
        "route_id": row.pk,
        "limits": row.limits,
        "fallback": row.fallback,
        "queue_size": row.queue_size,
        "queue_seconds": row.queue_seconds,
        "record_bodies": row.record_bodies,
        "body_days": row.body_days,
    }


def _waking(deployments: Iterable[Deployment], settings: dict[str, Any]) -> dict[str, Any]:
    """The same where nothing serves: requests for what sleeps or wakes wait as long as its start may take."""
    waits = [found for row in deployments if (found := wait_for_waking(row)) is not None]
    if not waits:
        return settings
    return {
        **settings,
        "wakes": True,
        "queue_seconds": max(settings.get("queue_seconds", QUEUE_SECONDS), *waits),
    }


def _own_target(name: str, deployments: Mapping[str, Deployment]) -> dict[str, Any]:
    """What a name means without targets: the deployment of that name, else the external one."""
    return {"deployment": name} if name in deployments else {"external": name}


def _own_upstreams(
    deployment: Deployment, instances: Iterable[Instance], weight: float, longest: int | None
) -> list[Upstream]:
    shares = [(share, rows) for _revision, share, rows in serving.traffic(deployment, instances) if rows]
    return [
        Upstream(
            uid=row.uid,
            kind="triton",
            http_url=(address := serving.endpoint(row)).http_url,
            grpc_url=address.grpc_url,
            model=address.model,
            slots=slots_of(row.revision.batching),
            # Relative among the revisions that have instances; together they have the target's weight.
            weight=weight * share / (sum(one for one, _rows in shares) or 1.0) / len(rows),
            deployment_id=deployment.pk,
            revision=row.revision.number,
            max_prompt_tokens=longest,
        )
        for share, rows in shares
        for row in rows
    ]


def slots_of(batching: Mapping[str, Any]) -> int | None:
    """Requests that an instance computes at once, by a revision's batching; None where it does not say."""
    if batching.get("strategy") == "none":
        return 1
    size = batching.get("max_batch_size")
    return int(size) if size else None


def _sequence_tokens(deployment: Deployment) -> list[int]:
    revision = deployment.active_revision
    length = revision.batching.get("max_seq_len") if revision else None
    return [int(length)] if length else []


def _external_upstreams(row: ExternalDeployment, weight: float, longest: int | None) -> list[Upstream]:
    try:
        return [external_upstream(row, weight, longest)]
    except SecretUnreadable as error:
        log.error("External deployment %s is left out: %s %s", row.name, error.sentence, error.remedy)
        return []


def external_upstream(row: ExternalDeployment, weight: float = 1.0, longest: int | None = None) -> Upstream:
    """An external deployment with its secret, as a request's path knows it. Raises SecretUnreadable."""
    return Upstream(
        uid=f"external:{row.name}",
        kind="openai",
        http_url=row.base_url.rstrip("/"),
        model=row.model,
        slots=row.slots,
        weight=weight,
        max_prompt_tokens=longest,
        secret=secrets.decrypt(row.secret) if row.secret else "",
    )


def _template(deployment: Deployment | None) -> tuple[str, dict[str, str]]:
    """Chat template of the first deployment's checkpoint, and what it needs: `bos`, `eos`; `kind` of the engine and
    whether the tokenizer `adds` a BOS (yes, no, empty: not known), for prompts that have exactly one.
    """
    if deployment is None or deployment.checkpoint is None:
        return "", {}
    checkpoint = serving_checkpoint(deployment)
    facts = checkpoint.facts or {}
    return checkpoint.chat_template, {
        "bos": facts.get("bos_token") or "",
        "eos": facts.get("eos_token") or "",
        "kind": engine_kind(deployment.build_profile),
        "adds": "" if facts.get("add_bos") is None else "yes" if facts["add_bos"] else "no",
    }
