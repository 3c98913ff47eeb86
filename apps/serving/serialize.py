"""Rows of this app as plain JSON values, for pages, API, command line and live topics. No secrets.

Times are ISO 8601 text; what is not known is null.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from apps.core.models import StatusModel
from apps.engines.models import Engine
from apps.serving import policies, preview, reach, revisions, selectors, states
from apps.serving.autoscale_policy import scaling_of
from apps.serving.changes import idle_fields
from apps.serving.models import BatchingProfile, Deployment, Instance, ModelRepository, Revision


def iso(moment: datetime | None) -> str | None:
    """ISO 8601 text of a row's time, or None."""
    return moment.isoformat() if moment else None


def status_dict(row: StatusModel) -> dict[str, Any]:
    """The columns that every row with a status has."""
    return {
        "id": row.pk,
        "state": row.state,
        "tone": row.tone,
        "version": row.version,
        "reason": row.reason or None,
        "sentence": row.sentence or None,
        "remedy": row.remedy or None,
        "state_since": iso(row.state_since),
        "created_at": iso(row.created_at),
        "updated_at": iso(row.updated_at),
    }


def batching_profile_dict(profile: BatchingProfile) -> dict[str, Any]:
    """One batching profile with who uses it and what in it does nothing."""
    newest = profile.versions.first()
    return {
        "id": profile.pk,
        **revisions.batching_snapshot(profile),
        "engine": profile.engine,
        "version": newest.number if newest is not None else None,
        "idle": idle_fields(profile),
        "deployments": list(profile.deployments.values_list("name", flat=True)),
        "findings": [finding.as_dict() for finding in preview.batching_findings(profile)],
        "created_at": iso(profile.created_at),
        "updated_at": iso(profile.updated_at),
    }


def model_repository_dict(row: ModelRepository) -> dict[str, Any]:
    """One imported repository: where it lies, what was found, who serves it."""
    report = row.report
    return {
        "id": row.pk,
        "name": row.name,
        "source": row.source,
        "folder": row.folder,
        "fingerprint": row.fingerprint,
        "files": len(row.files),
        "size_bytes": sum(one["size_bytes"] for one in row.files),
        "models": report.get("models", []),
        "findings": report.get("findings", []),
        "graphs": report.get("graphs", {}),
        "not_models": report.get("not_models", []),
        "deployments": list(row.deployments.values_list("name", flat=True)),
        "created_by": row.created_by.get_username() if row.created_by else None,
        "created_at": iso(row.created_at),
        "checked_at": iso(row.checked_at),
    }


def revision_dict(revision: Revision) -> dict[str, Any]:
    """One revision: what it runs, whether it runs."""
    return {
        **status_dict(revision),
        "number": revision.number,
        "active": revision.pk == revision.deployment.active_revision_id,
        "engine": _engine(revision.engine),
        "repository_fingerprint": revision.repository_fingerprint or None,
        "batching": revision.batching,
        "replicas": revision.replicas,
        "placement": revision.placement,
        "created_by": revision.created_by.get_username() if revision.created_by else None,
        "canary_step": revision.canary_step,
        "paused_at": iso(revision.paused_at),
        "promoted_at": iso(revision.promoted_at),
    }


def _engine(engine: Engine | None) -> dict[str, Any] | None:
    if engine is None:
        return None
    return {
        "id": engine.pk,
        "fingerprint": engine.fingerprint,
        "checkpoint": engine.checkpoint.name,
        "builder": engine.builder,
        "quantization": engine.quantization,
        "size_bytes": engine.size_bytes,
        "state": engine.state,
    }


def instance_dict(instance: Instance) -> dict[str, Any]:
    """One instance: where it runs, since when, and why not."""
    return {
        **status_dict(instance),
        "uid": instance.uid,
        "deployment": instance.deployment.name,
        "revision": instance.revision.number,
        "replica": instance.replica,
        "node": instance.node.hostname if instance.node else None,
        "node_id": instance.node.node_id if instance.node else None,
        "slot": f"{instance.gpu.device}{instance.gpu.index}" if instance.gpu else None,
        "device": instance.gpu.device if instance.gpu else None,
        "gpus": [gpu["index"] for gpu in instance.placement.get("gpus", ())],
        "why_there": instance.placement.get("why"),
        "evicted_at": iso(instance.evicted_at),
        "attempt": instance.attempt,
        "restarts": instance.restarts,
        "pid": instance.pid,
        "http_port": instance.http_port,
        "grpc_port": instance.grpc_port,
        "metrics_port": instance.metrics_port,
        "server_version": instance.server_version or None,
        "notices": preview.version_notices(instance.server_version),
        "log_path": instance.log_path or None,
        "serving_since": iso(instance.serving_since),
        "stop_requested_at": iso(instance.stop_requested_at),
        "drain_deadline": iso(instance.drain_deadline),
        "failed_at": iso(instance.failed_at),
        "exit_code": instance.exit_code,
        "diagnosis": instance.diagnosis,
        "may_restart": instance.deployment.desired == Deployment.Desired.RUNNING
        and instance.state
        in (states.SPAWNED, states.LOADING, states.SERVING, states.UNREACHABLE, states.FAILED)
        and instance.stop_requested_at is None,
    }


def deployment_dict(deployment: Deployment) -> dict[str, Any]:
    """One deployment with its revisions' numbers, instances and what may be done with it now."""
    target = selectors.target_revision(deployment)
    active = deployment.active_revision
    instances = list(selectors.shown_instances(deployment))
    profile = deployment.build_profile
    build = deployment.waiting_build
    serving = [row for row in instances if row.state == states.SERVING and row.stop_requested_at is None]
    return {
        **status_dict(deployment),
        "name": deployment.name,
        "desired": deployment.desired,
        "build_profile": profile.name if profile else None,
        "builder": profile.builder if profile else None,
        "checkpoint": profile.checkpoint.name if profile else None,
        "quantization": profile.quantization if profile else None,
        "repository": deployment.repository.name if deployment.repository else None,
        "repository_model": deployment.repository_model or None,
        "serves": deployment.serves,
        "priorities": reach.of(deployment).as_dict(),
        "batching": deployment.batching.name,
        "batching_profile": revisions.batching_snapshot(deployment.batching),
        "replicas": deployment.replicas,
        "placement": deployment.placement,
        "placement_report": deployment.placement_report or None,
        "slo": policies.slo_of(deployment).model_dump(mode="json"),
        "rollout": policies.rollout_of(deployment).model_dump(mode="json"),
        "scaling": scaling_of(deployment).model_dump(mode="json"),
        "scaled_to": deployment.scaled_to,
        "deployed_at": iso(deployment.deployed_at),
        "active_revision": active.number if active else None,
        "target_revision": target.number if target else None,
        "changed": _changed(deployment, target),
        "waiting_build": {"id": build.pk, "number": build.number, "state": build.state} if build else None,
        "replicas_serving": sum(1 for row in serving if active and row.revision_id == active.pk),
        "replicas_wanted": deployment.servers_of(target),
        "instances": [instance_dict(row) for row in instances],
        "actions": _actions(deployment),
    }


def rollout_dict(deployment: Deployment) -> dict[str, Any]:
    """Who gets which share of new requests now, and how far a roll-out is."""
    pending = selectors.pending_revision(deployment)
    active = deployment.active_revision
    settings = policies.rollout_of(deployment)
    return {
        "deployment": deployment.name,
        "version": deployment.version,
        "active": active.number if active else None,
        "pending": pending.number if pending else None,
        "step": pending.canary_step if pending else None,
        "steps": [step.model_dump(mode="json") for step in settings.canary],
        "paused": bool(pending and pending.paused_at),
        "promoted": bool(pending and pending.promoted_at),
        "sentence": (pending.sentence if pending else deployment.sentence) or None,
        "traffic": [
            {
                "uid": found.uid,
                "revision": found.revision,
                "model": found.model,
                "http_url": found.http_url,
                "grpc_url": found.grpc_url,
                "weight": round(weight, 3),
            }
            for found, weight in selectors.weighted_endpoints(deployment)
        ],
    }


def _changed(deployment: Deployment, target: Revision | None) -> bool | None:
    """Whether the configuration differs from what runs or is about to; null before the first revision."""
    if target is None:
        return None
    wanted = revisions.present(deployment)
    if wanted is None:
        return True
    return any(getattr(target, key) != value for key, value in wanted.items())


def _actions(deployment: Deployment) -> dict[str, bool]:
    running = deployment.desired == Deployment.Desired.RUNNING
    return {
        "deploy": deployment.state != states.WAITING,
        "stop": running or deployment.state not in (states.STOPPED, states.STOPPING),
        "roll_back": deployment.revisions.count() > 1,
        "pause": running and selectors.pending_revision(deployment) is not None,
        "delete": deployment.state in (states.STOPPED, states.FAILED)
        and not selectors.live_instances(deployment).exists(),
        "chat": deployment.state in (states.READY, states.DEGRADED, states.ASLEEP),
    }
