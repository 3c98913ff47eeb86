"""Everything that happened to a deployment, its revisions and its servers, out of the audit trail."""

from __future__ import annotations

from typing import Any

from django.db.models import CharField, Q, QuerySet
from django.db.models.functions import Cast

from apps.core.models import AuditEntry
from apps.serving.models import Deployment, Instance, Revision


def entries(deployment: Deployment) -> QuerySet[AuditEntry]:
    """Audit rows of the deployment, its revisions and every server that it ever had, newest first.

    What was written before entries named their deployment (`about`) is found by the servers that still have a row.
    """
    revisions = deployment.revisions.annotate(key=Cast("pk", CharField())).values("key")
    instances = deployment.instances.annotate(key=Cast("pk", CharField())).values("key")
    return AuditEntry.objects.filter(
        Q(object_type=Deployment.kind, object_id=str(deployment.pk))
        | Q(object_type=Revision.kind, object_id__in=revisions)
        | Q(about=f"{Deployment.kind}:{deployment.pk}")
        | Q(object_type=Instance.kind, object_id__in=instances)
    ).order_by("-at", "-id")


def entry_dict(entry: AuditEntry) -> dict[str, Any]:
    """One entry as plain values."""
    return {
        "id": entry.pk,
        "at": entry.at.isoformat(),
        "who": entry.actor_label,
        "verb": entry.verb,
        "object_type": entry.object_type,
        "object": entry.object_label,
        "from_state": entry.from_state or None,
        "to_state": entry.to_state or None,
        "reason": entry.reason or None,
        "sentence": entry.sentence or None,
        "detail": entry.detail,
    }
