"""Rows of this app as plain JSON values, for pages, API and command line. No secrets, no digests."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from apps.core import clock
from apps.gateway.domain.facts import Priority
from apps.gateway.models import ExternalDeployment, GatewayKey, GatewayRoute, LimitFields, RequestLog
from apps.gateway.running import RunningRequest
from apps.serving.serialize import iso


def key_state(row: GatewayKey) -> str:
    """Whether a key works: active, expired, revoked or switched_off (its owner is)."""
    if row.revoked_at is not None:
        return "revoked"
    if row.expires_at is not None and row.expires_at <= clock.now():
        return "expired"
    return "active" if row.owner.is_active else "switched_off"


def limits_dict(row: LimitFields) -> dict[str, Any]:
    """The bounds of a key or a route; null: none."""
    return asdict(row.limits)


def key_dict(row: GatewayKey) -> dict[str, Any]:
    """A key without its text."""
    return {
        "id": row.pk,
        "name": row.name,
        "prefix": row.prefix,
        "state": key_state(row),
        "owner": row.owner.get_username(),
        "created_by": row.created_by.get_username() if row.created_by else None,
        "routes": row.routes,
        "priority": row.priority,
        **limits_dict(row),
        "created_at": iso(row.created_at),
        "expires_at": iso(row.expires_at),
        "revoked_at": iso(row.revoked_at),
        "last_used_at": iso(row.last_used_at),
    }


def route_dict(row: GatewayRoute) -> dict[str, Any]:
    """A route's settings."""
    return {
        "id": row.pk,
        "name": row.name,
        "targets": row.targets,
        "fallback": row.fallback,
        **limits_dict(row),
        "queue_size": row.queue_size,
        "queue_seconds": row.queue_seconds,
        "record_bodies": row.record_bodies,
        "body_days": row.body_days,
        "created_at": iso(row.created_at),
        "updated_at": iso(row.updated_at),
    }


def external_dict(row: ExternalDeployment) -> dict[str, Any]:
    """An external deployment; of its secret only whether there is one."""
    return {
        "id": row.pk,
        "name": row.name,
        "base_url": row.base_url,
        "model": row.model,
        "slots": row.slots,
        "max_sequence_tokens": row.max_sequence_tokens,
        "has_secret": bool(row.secret),
        "created_at": iso(row.created_at),
        "updated_at": iso(row.updated_at),
    }


def request_dict(row: RequestLog) -> dict[str, Any]:
    """An ended request without its texts."""
    return {
        "id": row.pk,
        "request_id": row.request_id,
        "at": iso(row.at),
        "key_id": row.key_id or None,
        "key": row.key_name or None,
        "route": row.route,
        "upstream": row.upstream or None,
        "revision": row.revision,
        "endpoint": row.endpoint,
        "status": row.status,
        "outcome": row.outcome,
        "reason": row.reason or None,
        "streamed": row.streamed,
        "priority": row.priority,
        "prompt_tokens": row.prompt_tokens,
        "completion_tokens": row.completion_tokens,
        "cached_tokens": row.cached_tokens,
        "queue_ms": row.queue_ms,
        "ttft_ms": row.ttft_ms,
        "total_ms": row.total_ms,
        "overhead_ms": row.overhead_ms,
        "has_texts": row.bodies_until is not None,
    }


def running_dict(item: RunningRequest) -> dict[str, Any]:
    """A request that runs or waits."""
    return {
        "request_id": item.request_id,
        "key_id": item.key_id,
        "key": item.key_name or None,
        "route": item.route,
        "endpoint": item.endpoint,
        "priority": Priority(item.priority).name.lower(),
        "streamed": item.streamed,
        "began": datetime.fromtimestamp(item.began, UTC).isoformat(),
        "phase": item.phase,
        "upstream": item.upstream or None,
        "queue_seconds": item.queue_seconds,
        "ttft_seconds": item.ttft_seconds,
        "tokens": item.tokens,
    }
