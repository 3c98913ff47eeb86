"""Writing audit rows."""

from __future__ import annotations

from typing import Any, TypeAlias

from django.contrib.auth.models import AnonymousUser, User
from django.db import models

from apps.core.models import AuditEntry

# A person, or the name of the part of the system that acted ("sweep", "ctl", "gpu0", "cli").
Actor: TypeAlias = User | AnonymousUser | str


def actor_label(actor: Actor) -> str:
    """Name that the audit row keeps, even after the user is deleted."""
    return actor if isinstance(actor, str) else actor.get_username() or "anonymous"


def kind_of(target: models.Model) -> str:
    """Kind word of an object: its class attribute `kind`, else its model name."""
    return str(getattr(target, "kind", "") or target._meta.model_name)


def record(
    actor: Actor,
    verb: str,
    target: models.Model,
    *,
    from_state: str = "",
    to_state: str = "",
    reason: str = "",
    sentence: str = "",
    detail: dict[str, Any] | None = None,
) -> AuditEntry:
    """Write one audit row about `target`. Call it in the transaction of the change that it describes."""
    return AuditEntry.objects.create(
        actor=actor if isinstance(actor, User) else None,
        actor_label=actor_label(actor),
        verb=verb,
        object_type=kind_of(target),
        object_id=str(target.pk),
        object_label=str(target)[:200],
        about=str(getattr(target, "audit_about", "")),
        from_state=from_state,
        to_state=to_state,
        reason=reason,
        sentence=sentence,
        detail=detail or {},
    )
