"""Rows of this app as plain dictionaries, for pages, API and command line."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.models import User

from apps.accounts.models import ApiToken
from apps.accounts.roles import Action, may, roles_of
from apps.core import clock
from apps.core.models import AuditEntry


def token_as_dict(token: ApiToken) -> dict[str, Any]:
    """A token without its text."""
    expired = token.expires_at is not None and token.expires_at <= clock.now()
    return {
        "id": token.pk,
        "name": token.name,
        "owner": token.owner.get_username(),
        "prefix": token.prefix,
        "state": "revoked" if token.revoked_at else "expired" if expired else "active",
        "created_at": token.created_at,
        "expires_at": token.expires_at,
        "revoked_at": token.revoked_at,
        "last_used_at": token.last_used_at,
    }


def person_as_dict(person: User) -> dict[str, Any]:
    """A person with roles and what these allow."""
    return {
        "username": person.get_username(),
        "roles": sorted(roles_of(person)),
        "actions": sorted(action.value for action in Action if may(person, action)),
    }


def audit_as_dict(entry: AuditEntry) -> dict[str, Any]:
    """One line of the audit trail."""
    return {
        "id": entry.pk,
        "at": entry.at,
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
