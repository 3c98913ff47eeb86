"""Rows of this app as plain JSON values, for pages, API and command line."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.contrib.auth.models import User

from apps.accounts.models import ApiToken
from apps.accounts.roles import Action, may, roles_of
from apps.core import clock
from apps.core.models import AuditEntry


def _iso(moment: datetime | None) -> str | None:
    return moment.isoformat() if moment else None


def token_state(token: ApiToken) -> str:
    """Whether a token works: active, expired or revoked."""
    if token.revoked_at is not None:
        return "revoked"
    return "expired" if token.expires_at is not None and token.expires_at <= clock.now() else "active"


def token_dict(token: ApiToken) -> dict[str, Any]:
    """A token without its text."""
    return {
        "id": token.pk,
        "name": token.name,
        "owner": token.owner.get_username(),
        "prefix": token.prefix,
        "state": token_state(token),
        "created_at": _iso(token.created_at),
        "expires_at": _iso(token.expires_at),
        "revoked_at": _iso(token.revoked_at),
        "last_used_at": _iso(token.last_used_at),
    }


def person_dict(person: User) -> dict[str, Any]:
    """A person with roles and what these allow."""
    return {
        "username": person.get_username(),
        "roles": sorted(roles_of(person)),
        "actions": sorted(action.value for action in Action if may(person, action)),
    }


def audit_dict(entry: AuditEntry) -> dict[str, Any]:
    """One line of the audit trail."""
    return {
        "id": entry.pk,
        "at": _iso(entry.at),
        "actor": entry.actor_label,
        "verb": entry.verb,
        "object_type": entry.object_type,
        "object_id": entry.object_id,
        "object_label": entry.object_label,
        "from_state": entry.from_state or None,
        "to_state": entry.to_state or None,
        "reason": entry.reason or None,
        "sentence": entry.sentence or None,
        "detail": entry.detail,
    }
